#include "attention/check.hpp"
#include "core/round.hpp"
#include "position/t5_bucket.hpp"

#include <limits>

namespace headlane::internal {
namespace {

/// lse or sum.
void check_per_row(const AttentionOperands& o, const Operand& output) {
  check_output(output);
  check_same_rows(output, o.q);
}

void check_sum(const AttentionOperands& o, const AttentionOptions& options) {
  if (!options.sum) return;
  require(options.lse.data != nullptr, o.function, ": sum is given, but not lse, which a part needs as well");
  require(!options.sinks, o.function, ": sum and sinks are given; the sinks of parts belong to merge");
  check_per_row(o, o.operand("sum", options.sum));
  check_no_overlap(o.operand("sum", options.sum), o.operand("lse", options.lse));
}

/// A mask or a bias. `keys`: of the longest element; `per_step` of them share an element.
void check_per_score(const AttentionOperands& o, const AttentionOptions& options, const Operand& given, Index keys,
                     Index per_step = 1) {
  if (!given) return;
  o.check_input(given, options);
  check_same_rows(given, o.q);
  require(given.shape[3] == ceil_div(keys, per_step), o.function, ": ", given.name, " has ", given.shape[3],
          per_step == 1 ? " keys, " : " bytes of keys, ", o.k.name, " has ", keys,
          !options.key_starts ? " keys" : " keys in its longest sequence");
}

/// One value for each query head.
void check_per_head(const AttentionOperands& o, const AttentionOptions& options, const Operand& values) {
  if (!values) return;
  o.check_input(values, options);
  check_same(values, 0, "elements", o.q, 1, "heads");
}

/// One value for each batch element.
void check_per_element(const AttentionOperands& o, const AttentionOptions& options, const Operand& values,
                       Index batch) {
  if (!values) return;
  o.check_input(values, options);
  require(values.shape[0] == batch, o.function, ": ", values.name, " has ", values.shape[0], " elements, there are ",
          batch, !options.query_starts ? " batch elements" : " sequences");
}

/// Lengths, none above the size that it shortens: that of its sequence, or of the axis.
void check_lengths(const AttentionOperands& o, const AttentionOptions& options, const char* name,
                   const View<const Index, 1>& lengths, const View<const Index, 1>& starts, const Operand& of,
                   const char* what, Index batch) {
  check_per_element(o, options, o.operand(name, lengths), batch);
  for (Index i = 0; i < batch && lengths; ++i) {
    const Index length = lengths(i);
    const Index most = !starts ? of.shape[2] : starts(i + 1) - starts(i);
    require(length >= 0 && length <= most, o.function, ": ", name, "[", i, "] is ", length, ", ", of.name, " has ",
            most, " ", what, !starts ? "" : " in that sequence");
  }
}

/// Sequences one behind the other.
void check_starts(const AttentionOperands& o, const AttentionOptions& options, const char* name,
                  const View<const Index, 1>& starts, const Operand& of) {
  o.check_input(o.operand(name, starts), options);
  require(starts.shape[0] >= 1, o.function, ": ", name, " has no elements, a batch without sequences has 1");
  Index before = 0;
  for (Index i = 0; i < starts.shape[0]; ++i) {
    const Index start = starts(i);
    require(start >= before && start <= of.shape[2], o.function, ": ", name, "[", i, "] is ", start, ", it must be ",
            before, " to ", of.shape[2], ", for ", of.name, " has ", of.shape[2], " rows and starts do not decrease");
    before = start;
  }
}

void check_window(const char* function, const char* name, Index size) {
  require(size >= -1, function, ": ", name, " is ", size, ", the least is -1 (not bounded)");
}

void check_relative(const AttentionOperands& o, const AttentionOptions& options) {
  const RelativeBias& bias = options.relative_bias;
  const Operand table = o.operand("relative_bias.table", bias.table);
  if (!table) return;
  o.check_input(table, options);
  check_same(table, 0, "rows", o.q, 1, "heads");
  check_t5_buckets(o.function, table.shape[1], bias.max_distance, bias.bidirectional);
}

}  // namespace

void AttentionOperands::check_input(const Operand& input, const AttentionOptions& options) const {
  check_operand(input);
  if (look == Look::shapes) return;
  check_no_overlap(result, input);
  if (options.lse) check_no_overlap(operand("lse", options.lse), input);
  if (options.sum) check_no_overlap(operand("sum", options.sum), input);
}

Index batch_of(const AttentionOperands& o, const AttentionOptions& options) {
  return !options.query_starts ? o.q.shape[0] : options.query_starts.shape[0] - 1;
}

void check_options(const AttentionOperands& o, const AttentionOptions& options, Index batch) {
  const bool ragged = options.query_starts.data != nullptr;
  require(ragged == (options.key_starts.data != nullptr), o.function, ": ", ragged ? "query_starts" : "key_starts",
          " is given, but not ", ragged ? "key_starts" : "query_starts");
  if (options.lse) {
    const Operand lse = o.operand("lse", options.lse);
    check_per_row(o, lse);
    if (o.look == Look::all) check_no_overlap(lse, o.result);
  }
  check_sum(o, options);
  if (options.sum && o.look == Look::all) check_no_overlap(o.operand("sum", options.sum), o.result);
  if (ragged) {
    require(o.q.shape[0] == 1, o.function, ": q has ", o.q.shape[0], " batch elements, a ragged batch has 1");
    check_starts(o, options, "query_starts", options.query_starts, o.q);
    check_starts(o, options, "key_starts", options.key_starts, o.k);
    require(options.query_starts.shape[0] == options.key_starts.shape[0], o.function, ": query_starts has ",
            options.query_starts.shape[0], " elements, key_starts has ", options.key_starts.shape[0]);
  }
  const Index keys = longest_of(options.key_starts, o.k.shape[2]);
  check_per_score(o, options, o.operand("mask", options.mask), keys);
  check_per_score(o, options, o.operand("mask_bits", options.mask_bits), keys, 8);
  check_per_score(o, options, o.operand("bias", options.bias), keys);
  check_lengths(o, options, "key_lengths", options.key_lengths, options.key_starts, o.k, "keys", batch);
  check_lengths(o, options, "query_lengths", options.query_lengths, options.query_starts, o.q, "rows", batch);
  check_per_element(o, options, o.operand("causal_offsets", options.causal_offsets), batch);
  check_per_head(o, options, o.operand("alibi_slopes", options.alibi_slopes));
  check_per_head(o, options, o.operand("sinks", options.sinks));
  check_relative(o, options);
  check_window(o.function, "window_left", options.window_left);
  check_window(o.function, "window_right", options.window_right);
  require(options.softcap >= 0.0f && options.softcap < std::numeric_limits<float>::infinity(), o.function,
          ": softcap must be a finite number from 0 (none) on");
  check_threads(o.function, options.num_threads);
}

}  // namespace headlane::internal
