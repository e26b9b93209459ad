// KvCache: the entries, their checks, and appending to all of the named sequences or to none.
#include <headlane/kv_cache.hpp>

#include "attention/kv_pages.hpp"
#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/dispatch.hpp"
#include "kernels/table.hpp"

#include <headlane/limits.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>

namespace headlane {

using namespace internal;

namespace {

/// Returns the pages if their sizes are possible.
KvPages checked(KvPages pages) {
  constexpr Caller caller("KvCache");
  const auto check_dim = [&](const char* name, Index dim) {
    caller.require(dim >= 1 && dim <= max_head_dim, name, " is ", dim, ", it may be 1 to ", max_head_dim);
  };
  caller.require(pages.kv_heads >= 1, "kv_heads is ", pages.kv_heads, ", the minimum is 1");
  check_dim("head_dim", pages.head_dim);
  check_dim("value_dim", pages.value_dim);
  const Index size = pages.page_size;
  caller.require(
      size == 32 || size == 64 || size == 128 || size == 256 || (size > 0 && size % kernels::block_size == 0),
      "page_size is ", size, ", it may be 32, 64, 128, 256 or a multiple of ", kernels::block_size);
  caller.require(pages.max_pages >= 0, "max_pages is ", pages.max_pages, ", the minimum is 0");
  caller.require(pages.type <= DType::int8, "type is ", static_cast<Index>(pages.type),
                 ", which is none of float32 … int8");
  constexpr Index max_bytes = std::numeric_limits<Index>::max() / 8 * 4;  // of floats: max_bytes / 4
  Index bytes = HeadOfPage::bytes_of_token(pages.type, pages.head_dim, pages.value_dim);
  const bool fits = !__builtin_mul_overflow(bytes, size, &bytes) &&
                    !__builtin_mul_overflow(bytes, pages.kv_heads, &bytes) && bytes <= max_bytes;
  caller.require(fits, "a page of page_size ", size, " and kv_heads ", pages.kv_heads,
                 " does not fit into memory: at most ", max_bytes, " bytes can be addressed");
  return pages;
}

void check_sequence(const KvPages& pages, Caller caller, Index sequence) {
  caller.require(pages.has(sequence), "sequence ", sequence, " is not there, the numbers given so far are below ",
                 static_cast<Index>(pages.sequences.size()));
}

/// k or v [..., kv_heads, tokens, columns].
void check_tokens(const KvPages& pages, const Operand& x, Index columns, const char* columns_name) {
  check_operand(x);
  const Index heads = x.shape[x.rank - 3], last = x.shape[x.rank - 1];
  x.require(heads == pages.kv_heads, " has ", heads, " heads, kv_heads is ", pages.kv_heads);
  x.require(last == columns, " has ", last, " columns, ", columns_name, " is ", columns);
}

void check_pair(const KvPages& pages, const Operand& k, const Operand& v) {
  check_tokens(pages, k, pages.head_dim, "head_dim");
  check_tokens(pages, v, pages.value_dim, "value_dim");
  check_same(k, k.rank - 2, "tokens", v, v.rank - 2, "tokens");
}

/// Number of pages that `tokens` more keys of a sequence need, including a copy of its last page if
/// that one is shared. Called once for each sequence of an append: of several that share a last
/// page, the one that comes last may keep it.
Index needed_pages(KvPages& pages, Index sequence, Index tokens) {
  const KvPages::Sequence& growing = pages.at(sequence);
  Index count = pages.pages_of(growing.length + tokens) - pages.pages_of(growing.length);
  if (growing.length % pages.page_size == 0) return count;
  KvPages::Page& last = *growing.pages.back();
  if (last.call != pages.calls) last.claims = 0;
  last.call = pages.calls;
  if (last.holders - last.claims++ > 1) ++count;
  return count;
}

constexpr Caller append_caller("KvCache::append");

/// Throws: the number of x [sequences, kv_heads, tokens, columns] at this position is not finite.
/// For a single sequence, the caller's x lacks the first axis.
[[noreturn]] void refuse(const Operand& x, const std::array<Index, 4>& position) {
  const std::span<const Index> all(position);
  fail(append_caller.function(), ": ", x.name, all.last(static_cast<std::size_t>(x.rank)),
       " is not finite; int8 has no such number");
}

/// Checks what will be appended: no number that the type does not have. Padding is not read.
void check_numbers(const KvPages& pages, const Operand& of_x, const View<const float, 4>& x,
                   const View<const Index, 1>& lengths) {
  if (pages.type != DType::int8) return;
  const auto is_infinite = [](float number) {  // or NaN
    return (std::bit_cast<std::uint32_t>(number) & 0x7f800000u) == 0x7f800000u;
  };
  for (Index s = 0; s < x.shape[0]; ++s)
    for (Index head = 0; head < x.shape[1]; ++head)
      for (Index token = 0; token < (!lengths ? x.shape[2] : lengths(s)); ++token) {
        const float* row = x.data + s * x.strides[0] + head * x.strides[1] + token * x.strides[2];
        bool refused = false;
        for (Index column = 0; column < x.shape[3]; ++column) refused |= is_infinite(row[column * x.strides[3]]);
        if (!refused) continue;
        Index column = 0;
        while (!is_infinite(row[column * x.strides[3]])) ++column;
        refuse(of_x, {s, head, token, column});
      }
}

/// Appends; the arguments are checked, except that no sequence is named twice, and that the type
/// has all numbers: there may be so many of them that no memory holds them.
void append_to(KvPages& pages, std::span<const Index> sequences, const Operand& of_k, const View<const float, 4>& k,
               const Operand& of_v, const View<const float, 4>& v, const View<const Index, 1>& lengths) {
  const CallScope scope;
  const kernels::KernelTable& kernel = active();
  const auto tokens_of = [&](std::size_t i) { return !lengths ? k.shape[2] : lengths(static_cast<Index>(i)); };
  Index count = 0;
  ++pages.calls;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Index& call = pages.at(sequences[i]).call;
    append_caller.require(call != pages.calls, "sequence ", sequences[i], " is named twice in sequences");
    call = pages.calls;
    if (tokens_of(i) > 0) count += needed_pages(pages, sequences[i], tokens_of(i));
  }
  const Index in_use = pages.pages_in_use();
  if (pages.max_pages > 0 && count > pages.max_pages - in_use)
    fail<std::length_error>(append_caller.function(), ": ", in_use, " pages are in use and ", count,
                            " more are needed, max_pages is ", pages.max_pages);
  for (std::size_t i = 0; i < sequences.size(); ++i) pages.reserve_table(sequences[i], tokens_of(i));
  float* const memory = pages.type == DType::float32 ? nullptr : scratch(Purpose::rows, pages.scratch_floats());
  const std::size_t before = pages.pages.size();
  pages.reserve_pages(count);
  try {
    check_numbers(pages, of_k, k, lengths);
    check_numbers(pages, of_v, v, lengths);
  } catch (...) {
    pages.drop_pages(before);
    throw;
  }

  // Nothing fails from here on.
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Index first = pages.length(sequences[i]), batch = static_cast<Index>(i), tokens = tokens_of(i);
    if (tokens == 0) continue;
    pages.grow(sequences[i], tokens);
    pages.write(kernel, sequences[i], first, k.select(0, batch).slice(1, 0, tokens),
                v.select(0, batch).slice(1, 0, tokens), memory);
    pages.at(sequences[i]).length = first + tokens;
  }
}

}  // namespace

KvCache::KvCache(Index kv_heads, Index head_dim, Index value_dim, const KvCacheOptions& options)
    : pages_(std::make_unique<KvPages>(
          checked({kv_heads, head_dim, value_dim, options.page_size, options.max_pages, options.type}))) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvPages& KvCache::pages(const char* function) const {
  Caller(function).require(pages_ != nullptr, "the cache was moved from");
  return *pages_;
}

const KvPages& KvPages::of(const KvCache& cache, Caller caller) { return cache.pages(caller.function()); }

Index KvCache::add() { return pages("KvCache::add").add(-1, 0); }

Index KvCache::fork(Index sequence, Index length) {
  constexpr Caller caller("KvCache::fork");
  KvPages& p = pages(caller.function());
  check_sequence(p, caller, sequence);
  const Index all = p.length(sequence);
  caller.require(length >= -1 && length <= all, "length is ", length, ", sequence ", sequence, " has ", all, " keys");
  return p.add(sequence, length < 0 ? all : length);
}

void KvCache::append(Index sequence, View<const float, 3> k, View<const float, 3> v) {
  KvPages& p = pages(append_caller.function());
  check_sequence(p, append_caller, sequence);
  const Operand of_k = append_caller.operand("k", k), of_v = append_caller.operand("v", v);
  check_pair(p, of_k, of_v);
  append_to(p, {&sequence, 1}, of_k, k.broadcast(0, 1), of_v, v.broadcast(0, 1), {});
}

void KvCache::append(std::span<const Index> sequences, View<const float, 4> k, View<const float, 4> v,
                     View<const Index, 1> lengths) {
  KvPages& p = pages(append_caller.function());
  for (const Index sequence : sequences) check_sequence(p, append_caller, sequence);
  const Operand of_k = append_caller.operand("k", k), of_v = append_caller.operand("v", v);
  check_pair(p, of_k, of_v);
  for (const Operand& x : {of_k, of_v})
    x.require(x.shape[0] == static_cast<Index>(sequences.size()), " has ", x.shape[0], " sequences, sequences has ",
              static_cast<Index>(sequences.size()));
  check_token_lengths(append_caller, "lengths", lengths, static_cast<Index>(sequences.size()), "k", k.shape[2],
                      "tokens");
  append_to(p, sequences, of_k, k, of_v, v, lengths);
}

void KvCache::read(Index sequence, Index first, View<float, 3> k, View<float, 3> v) const {
  constexpr Caller caller("KvCache::read");
  const KvPages& p = pages(caller.function());
  check_sequence(p, caller, sequence);
  const Operand of_k = caller.operand("k", k), of_v = caller.operand("v", v);
  check_output(of_k);
  check_output(of_v);
  check_no_overlap(of_k, of_v);
  check_pair(p, of_k, of_v);
  const Index all = p.length(sequence);
  caller.require(first >= 0 && first <= all && k.shape[1] <= all - first, "first is ", first, " and k has ", k.shape[1],
                 " tokens, sequence ", sequence, " has ", all, " keys");
  p.read(sequence, first, k, v);
}

void KvCache::truncate(Index sequence, Index length) {
  constexpr Caller caller("KvCache::truncate");
  KvPages& p = pages(caller.function());
  check_sequence(p, caller, sequence);
  const Index all = p.length(sequence);
  caller.require(length >= 0 && length <= all, "length is ", length, ", sequence ", sequence, " has ", all, " keys");
  p.truncate(sequence, length);
}

void KvCache::remove(Index sequence) {
  constexpr Caller caller("KvCache::remove");
  check_sequence(pages(caller.function()), caller, sequence);
  pages_->remove(sequence);
}

Index KvCache::length(Index sequence) const {
  constexpr Caller caller("KvCache::length");
  check_sequence(pages(caller.function()), caller, sequence);
  return pages_->length(sequence);
}

std::vector<Index> KvCache::sequences() const {
  const KvPages& p = pages("KvCache::sequences");
  std::vector<Index> numbers;
  for (Index number = 0; number < std::ssize(p.sequences); ++number)
    if (p.has(number)) numbers.push_back(number);
  return numbers;
}

std::vector<Index> KvCache::free_numbers() const {
  const KvPages& p = pages("KvCache::free_numbers");
  std::vector<Index> numbers;
  for (Index number = p.free_number; number >= 0; number = p.at(number).next_free) numbers.push_back(number);
  return numbers;
}

std::vector<Index> KvCache::page_table(Index sequence) const {
  constexpr Caller caller("KvCache::page_table");
  const KvPages& p = pages(caller.function());
  check_sequence(p, caller, sequence);
  std::vector<Index> numbers;
  for (const KvPages::Page* page : p.at(sequence).pages) numbers.push_back(page->number);
  return numbers;
}

bool KvCache::has(Index sequence) const { return pages("KvCache::has").has(sequence); }
Index KvCache::max_pages() const { return pages("KvCache::max_pages").max_pages; }
DType KvCache::type() const { return pages("KvCache::type").type; }
Index KvCache::kv_heads() const { return pages("KvCache::kv_heads").kv_heads; }
Index KvCache::head_dim() const { return pages("KvCache::head_dim").head_dim; }
Index KvCache::value_dim() const { return pages("KvCache::value_dim").value_dim; }
Index KvCache::page_size() const { return pages("KvCache::page_size").page_size; }
Index KvCache::pages_in_use() const { return pages("KvCache::pages_in_use").pages_in_use(); }
std::size_t KvCache::page_bytes() const { return pages("KvCache::page_bytes").page_bytes(); }
std::size_t KvCache::bytes() const {
  const KvPages& p = pages("KvCache::bytes");
  return p.pages.size() * p.page_bytes();
}

}  // namespace headlane
