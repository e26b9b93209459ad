#include "attention/check.hpp"
#include "core/round.hpp"
#include "position/t5_bucket.hpp"

#include <limits>

namespace headlane::internal {
namespace {

void check_outputs(const AttentionArguments& a) {
  const AttentionOptions& options = a.options;
  if (options.sum) {
    a.caller.require(options.lse.data != nullptr, "sum is given, but not lse, which a part needs as well");
    a.caller.require(!options.sinks, "sum and sinks are given; the sinks of parts belong to merge");
  }
  a.caller.require(!options.resume || options.sum, "resume is given, but not sum, a part of what is resumed");
  for_each_output(a.caller, options, [&](const Operand& output) {
    check_output(output);
    check_same_rows(output, a.q);
    if (a.level == CheckLevel::shapes) return;
    check_no_overlap(output, a.out);
    check_no_overlap(output, a.q);
    if (a.cached) return;
    check_no_overlap(output, a.k);
    if (a.v.rank != 0) check_no_overlap(output, a.v);
  });
  if (options.sum) check_no_overlap(a.caller.operand("sum", options.sum), a.caller.operand("lse", options.lse));
}

/// Each input as an operand, and against all outputs. Its shape is checked below.
void check_inputs(const AttentionArguments& a) {
  for_each_input(a.caller, a.options, [&](const Operand& input) {
    check_operand(input);
    if (a.level == CheckLevel::shapes) return;
    check_no_overlap(a.out, input);
    for_each_output(a.caller, a.options, [&](const Operand& output) { check_no_overlap(output, input); });
  });
}

/// Tasks write there while they read inputs and write outputs.
void check_workspace(const AttentionArguments& a) {
  const std::span<std::byte> given = a.options.workspace;
  if (a.level == CheckLevel::shapes || given.data() == nullptr) return;
  const View<std::byte, 1> bytes(given.data(), {std::ssize(given)});
  const Operand workspace = a.caller.operand("workspace", bytes);
  const auto check = [&](const Operand& other) { check_no_overlap(workspace, other); };
  check(a.out);
  check(a.q);
  if (!a.cached) check(a.k);
  if (!a.cached && a.v.rank != 0) check(a.v);
  for_each_input(a.caller, a.options, check);
  for_each_output(a.caller, a.options, check);
}

/// Starts of sequences that share a batch element.
void check_starts(const char* name, const View<const Index, 1>& starts, const Operand& x) {
  const Caller caller = x.caller;
  caller.require(starts.shape[0] >= 1, name, " has no elements, a batch without sequences has 1");
  Index before = 0;
  for (Index i = 0; i < starts.shape[0]; ++i) {
    const Index start = starts(i);
    caller.require(start >= before && start <= x.shape[2], name, "[", i, "] is ", start, ", it must be ", before,
                   " to ", x.shape[2], ", for ", x.name, " has ", x.shape[2], " rows and starts do not decrease");
    before = start;
  }
}

void check_variable_length(const AttentionArguments& a) {
  const View<const Index, 1>&queries = a.options.query_starts, &keys = a.options.key_starts;
  if (!queries) return;
  a.q.require(a.q.shape[0] == 1, " has ", a.q.shape[0], " batch elements, with query_starts it has 1");
  check_starts("query_starts", queries, a.q);
  check_starts("key_starts", keys, a.k);
  a.caller.require(queries.shape[0] == keys.shape[0], "query_starts has ", queries.shape[0],
                   " elements, key_starts has ", keys.shape[0]);
}

/// A mask or a bias. `keys`: of the longest element; `keys_per_element` of them share an element.
void check_per_score(const AttentionArguments& a, const Operand& given, Index keys, Index keys_per_element = 1) {
  if (!given) return;
  check_same_rows(given, a.q);
  given.require(given.shape[3] == ceil_div(keys, keys_per_element), " has ", given.shape[3],
                keys_per_element == 1 ? " keys, " : " bytes of keys, ", a.k.name, " has ", keys,
                !a.options.key_starts ? " keys" : " keys in its longest sequence");
}

/// One value for each query head.
void check_per_head(const AttentionArguments& a, const Operand& values) {
  if (values) check_same(values, 0, "elements", a.q, 1, "heads");
}

/// One value for each batch element.
void check_per_element(const AttentionArguments& a, const Operand& values) {
  if (!values) return;
  const Index batch = batch_of(a);
  values.require(values.shape[0] == batch, " has ", values.shape[0], " elements, there are ", batch,
                 !a.options.query_starts ? " batch elements" : " sequences");
}

/// Lengths, none above the size that it shortens: that of its sequence, or of the axis of x.
void check_lengths(const AttentionArguments& a, const char* name, const View<const Index, 1>& lengths,
                   const View<const Index, 1>& starts, const Operand& x, const char* rows) {
  if (!lengths) return;
  check_per_element(a, a.caller.operand(name, lengths));
  for (Index i = 0; i < lengths.shape[0]; ++i) {
    const Index length = lengths(i), max = !starts ? x.shape[2] : starts(i + 1) - starts(i);
    a.caller.require(length >= 0 && length <= max, name, "[", i, "] is ", length, ", ", x.name, " has ", max, " ", rows,
                     !starts ? "" : " in that sequence");
  }
}

void check_window(Caller caller, const char* name, Index size) {
  caller.require(size >= -1, name, " is ", size, ", the minimum is -1 (not bounded)");
}

void check_relative_bias(const AttentionArguments& a) {
  const RelativeBias& bias = a.options.relative_bias;
  const Operand table = a.caller.operand("relative_bias.table", bias.table);
  if (!table) return;
  check_same(table, 0, "rows", a.q, 1, "heads");
  check_t5_buckets(a.caller, table.shape[1], bias.max_distance, bias.bidirectional);
}

}  // namespace

Index batch_of(const AttentionArguments& a) {
  return !a.options.query_starts ? a.q.shape[0] : a.options.query_starts.shape[0] - 1;
}

void check_options(const AttentionArguments& a) {
  const AttentionOptions& options = a.options;
  const Caller caller = a.caller;
  const bool has_starts = options.query_starts.data != nullptr;
  caller.require(has_starts == (options.key_starts.data != nullptr), has_starts ? "query_starts" : "key_starts",
                 " is given, but not ", has_starts ? "key_starts" : "query_starts");
  check_outputs(a);
  check_inputs(a);
  check_workspace(a);
  check_variable_length(a);
  const Index keys = longest_of(options.key_starts, a.k.shape[2]);
  check_per_score(a, caller.operand("mask", options.mask), keys);
  check_per_score(a, caller.operand("mask_bits", options.mask_bits), keys, 8);
  check_per_score(a, caller.operand("bias", options.bias), keys);
  check_lengths(a, "key_lengths", options.key_lengths, options.key_starts, a.k, "keys");
  check_lengths(a, "query_lengths", options.query_lengths, options.query_starts, a.q, "rows");
  check_per_element(a, caller.operand("causal_offsets", options.causal_offsets));
  check_per_head(a, caller.operand("alibi_slopes", options.alibi_slopes));
  check_per_head(a, caller.operand("sinks", options.sinks));
  check_relative_bias(a);
  check_window(caller, "window_left", options.window_left);
  check_window(caller, "window_right", options.window_right);
  caller.require(options.softcap >= 0.0f && options.softcap < std::numeric_limits<float>::infinity(),
                 "softcap must be a finite number from 0 (none) on");
  check_threads(caller, options.num_threads);
}

}  // namespace headlane::internal
