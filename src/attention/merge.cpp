// merge: results over parts of the keys, put together as attention puts its blocks together.
#include <headlane/merge.hpp>

#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "kernels/table.hpp"

#include <headlane/limits.hpp>

#include <algorithm>
#include <string>

namespace headlane {

using namespace internal;

namespace {

constexpr const char* function = "merge";
constexpr Index rows_of_task = 96;

void check_part(const Operand& part, const Operand& lse, const Operand& sum, const Operand& out) {
  check_operand(part);
  check_operand(lse);
  for (int axis = 0; axis < 4; ++axis) check_same(part, axis, "elements along an axis", out, axis, "elements along it");
  check_same_rows(lse, out);
  if (!sum) return;
  check_operand(sum);
  check_same_rows(sum, out);
}

void check(std::span<const AttentionPart> parts, const View<float, 4>& out, const MergeOptions& o) {
  const Operand of_out = operand(function, "out", out), lse = operand(function, "lse", o.lse),
                sum = operand(function, "sum", o.sum), sinks = operand(function, "sinks", o.sinks);
  check_output(of_out);
  require(out.shape[3] >= 1 && out.shape[3] <= max_head_dim, function, ": out has head_dim ", out.shape[3],
          ", it must be 1 to ", max_head_dim);
  require(!parts.empty(), function, ": there are no parts");
  if (o.lse) {
    check_output(lse);
    check_same_rows(lse, of_out);
    check_no_overlap(lse, of_out);
  }
  if (o.sum) {
    require(o.lse.data != nullptr, function, ": sum is given, but not lse, which a part needs as well");
    require(!o.sinks, function, ": sum and sinks are given; the sinks belong to the last merge");
    check_output(sum);
    check_same_rows(sum, of_out);
    for (const Operand* other : {&of_out, &lse}) check_no_overlap(sum, *other);
  }
  if (o.sinks) {
    check_operand(sinks);
    check_same(sinks, 0, "elements", of_out, 1, "heads");
  }
  check_threads(function, o.num_threads);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = "parts[" + std::to_string(i) + "]";
    const std::string part = name + ".out", part_lse = name + ".lse", part_sum = name + ".sum";
    check_part(operand(function, part.c_str(), parts[i].out), operand(function, part_lse.c_str(), parts[i].lse),
               operand(function, part_sum.c_str(), parts[i].sum), of_out);
    for (const Operand& output : {of_out, lse, sum}) {
      if (!output) continue;
      check_no_overlap(output, operand(function, part.c_str(), parts[i].out));
      check_no_overlap(output, operand(function, part_lse.c_str(), parts[i].lse));
      if (parts[i].sum) check_no_overlap(output, operand(function, part_sum.c_str(), parts[i].sum));
    }
  }
  for (const Operand& output : {of_out, lse})
    if (output && sinks) check_no_overlap(output, sinks);
}

/// Neighbouring rows of a head.
struct HeadRows {
  Index batch, head, first, count;
};

template <class T, int Rank>
T* at(const View<T, Rank>& view, const HeadRows& rows) {
  return view.data + rows.batch * view.strides[0] + rows.head * view.strides[1] + rows.first * view.strides[2];
}

/// A copy of one value a row; a part without sums has sums of 1.
void copy_values(const View<const float, 3>& values, const HeadRows& rows, float* to) {
  for (Index i = 0; i < rows.count; ++i) to[i] = !values ? 1.0f : at(values, rows)[i * values.strides[2]];
}

void copy_part(const kernels::KernelTable& kernel, const AttentionPart& part, const HeadRows& rows,
               const kernels::AttentionState& to) {
  kernel.pack_rows({at(part.out, rows), rows.count, part.out.shape[3], part.out.strides[2], part.out.strides[3]}, 1.0f,
                   to.out);
  copy_values(part.lse, rows, to.max);
  copy_values(part.sum, rows, to.sum);
}

void merge_rows(const kernels::KernelTable& kernel, std::span<const AttentionPart> parts, const View<float, 4>& out,
                const MergeOptions& o, const HeadRows& rows) {
  constexpr Index step = kernels::row_stride;
  float* memory = scratch(Purpose::rows, 2 * rows_of_task * (step + 2) + rows_of_task);
  const auto state_at = [&](float* from) {
    return kernels::AttentionState{from + 2 * rows_of_task, step, from, from + rows_of_task};
  };
  const kernels::AttentionState state = state_at(memory), next = state_at(memory + rows_of_task * (step + 2));
  copy_part(kernel, parts[0], rows, state);
  for (const AttentionPart& part : parts.subspan(1)) {
    copy_part(kernel, part, rows, next);
    kernel.attention_merge(state, {rows.count, out.shape[3], next.out, step, next.max, next.sum});
  }
  float* sinks = memory + 2 * rows_of_task * (step + 2);
  if (o.sinks) std::fill_n(sinks, rows.count, o.sinks(rows.head));
  kernel.attention_finish(state, {.rows = rows.count,
                                  .value_dim = out.shape[3],
                                  .out = at(out, rows),
                                  .row_step = out.strides[2],
                                  .column_step = out.strides[3],
                                  .lse = !o.lse ? nullptr : at(o.lse, rows),
                                  .lse_step = o.lse.strides[2],
                                  .sum = !o.sum ? nullptr : at(o.sum, rows),
                                  .sum_step = o.sum.strides[2],
                                  .sinks = !o.sinks ? nullptr : sinks});
}

}  // namespace

void merge(std::span<const AttentionPart> parts, View<float, 4> out, const MergeOptions& options) {
  const CallScope scope;
  check(parts, out, options);
  const kernels::KernelTable& kernel = active();
  const auto [batch, heads, length, dim] = out.shape;
  if (batch == 0 || heads == 0 || length == 0) return;
  const Index per_head = ceil_div(length, rows_of_task);
  const double elements =
      static_cast<double>(batch * heads) * static_cast<double>(length * dim) * static_cast<double>(parts.size() + 1);
  const int threads = useful_threads(0, elements, options.num_threads);
  parallel_for(batch * heads * per_head, threads, [&](Index task) {
    const Index head = task / per_head, first = task % per_head * rows_of_task;
    merge_rows(kernel, parts, out, options,
               {head / out.shape[1], head % out.shape[1], first, std::min(rows_of_task, out.shape[2] - first)});
  });
}

}  // namespace headlane
