#include "attention/kv_check.hpp"

namespace headlane::internal {
namespace {

/// k or v [..., kv_heads, tokens, columns].
void check_tokens(const KvPages& pages, const Operand& x, Index columns, const char* columns_name) {
  check_operand(x);
  const Index heads = x.shape[x.rank - 3], last = x.shape[x.rank - 1];
  x.require(heads == pages.kv_heads, " has ", heads, " heads, kv_heads is ", pages.kv_heads);
  x.require(last == columns, " has ", last, " columns, ", columns_name, " is ", columns);
}

}  // namespace

void check_sequence(const KvPages& pages, Caller caller, Index sequence) {
  caller.require(pages.has(sequence), "sequence ", sequence, " is not there, the numbers given so far are below ",
                 static_cast<Index>(pages.sequences.size()));
}

void check_named_once(KvPages& pages, Caller caller, std::span<const Index> sequences) {
  ++pages.calls;
  for (const Index sequence : sequences) {
    Index& call = pages.at(sequence).call;
    caller.require(call != pages.calls, "sequence ", sequence, " is named twice in sequences");
    call = pages.calls;
  }
}

void check_pair(const KvPages& pages, const Operand& k, const Operand& v) {
  check_tokens(pages, k, pages.head_dim, "head_dim");
  check_tokens(pages, v, pages.value_dim, "value_dim");
  check_same(k, k.rank - 2, "tokens", v, v.rank - 2, "tokens");
}

}  // namespace headlane::internal
