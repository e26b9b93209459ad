// merge: combines partial results over disjoint keys as attention combines its blocks of keys.
#include <headlane/merge.hpp>

#include "attention/check.hpp"
#include "attention/memory.hpp"
#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "kernels/table.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller("merge");
constexpr Index rows_per_task = 96;

void check_part(const Operand& part, const Operand& lse, const Operand& sum, const Operand& out) {
  check_operand(part);
  check_operand(lse);
  for (int axis = 0; axis < 4; ++axis) check_same(part, axis, "elements along an axis", out, axis, "elements along it");
  check_same_rows(lse, out);
  if (!sum) return;
  check_operand(sum);
  check_same_rows(sum, out);
}

template <class T>
void check(std::span<const AttentionPartOf<T>> parts, const View<T, 4>& out, const MergeOptions& o) {
  const Operand of_out = caller.operand("out", out), lse = caller.operand("lse", o.lse),
                sum = caller.operand("sum", o.sum), sinks = caller.operand("sinks", o.sinks);
  check_output(of_out);
  check_head_dim(of_out);
  caller.require(!parts.empty(), "there are no parts");
  if (o.lse) {
    check_output(lse);
    check_same_rows(lse, of_out);
    check_no_overlap(lse, of_out);
  }
  if (o.sum) {
    caller.require(o.lse.data != nullptr, "sum is given, but not lse, which a part needs as well");
    caller.require(!o.sinks, "sum and sinks are given; the sinks belong to the last merge");
    check_output(sum);
    check_same_rows(sum, of_out);
    for (const Operand* other : {&of_out, &lse}) check_no_overlap(sum, *other);
  }
  if (o.sinks) {
    check_operand(sinks);
    check_same(sinks, 0, "elements", of_out, 1, "heads");
  }
  check_threads(caller, o.num_threads);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = "parts[" + std::to_string(i) + "]";
    const std::string part = name + ".out", part_lse = name + ".lse", part_sum = name + ".sum";
    const Operand inputs[] = {caller.operand(part.c_str(), parts[i].out),
                              caller.operand(part_lse.c_str(), parts[i].lse),
                              caller.operand(part_sum.c_str(), parts[i].sum)};
    check_part(inputs[0], inputs[1], inputs[2], of_out);
    for (const Operand& output : {of_out, lse, sum})
      for (const Operand& input : inputs)
        if (output && input) check_no_overlap(output, input);
  }
  for (const Operand& output : {of_out, lse})
    if (output && sinks) check_no_overlap(output, sinks);
}

/// Adjacent rows of a head.
struct HeadRows {
  Index batch, head, first, count;
};

template <class T, int Rank>
T* first_row(const View<T, Rank>& view, const HeadRows& rows) {
  return view.data + rows.batch * view.strides[0] + rows.head * view.strides[1] + rows.first * view.strides[2];
}

/// Copies one value for each row; without values (a part that has no sums) they are 1.
void copy_values(const View<const float, 3>& values, const HeadRows& rows, float* to) {
  for (Index i = 0; i < rows.count; ++i) to[i] = !values ? 1.0f : first_row(values, rows)[i * values.strides[2]];
}

/// The rows as a matrix.
template <class T>
AnyView<T> matrix(const View<T, 4>& view, const HeadRows& rows) {
  return View<T, 2>(first_row(view, rows), {rows.count, view.shape[3]}, {view.strides[2], view.strides[3]});
}

/// The same of a block of scratch memory.
AnyView<float> matrix(float* block, Index rows, Index columns) {
  return View<float, 2>(block, {rows, columns}, {kernels::packed_row_stride, 1});
}

/// The parts and the result, of float or of 16 bits.
template <class T>
struct Tensors {
  std::span<const AttentionPartOf<T>> parts;
  View<T, 4> out;
  DType type;
};

template <class T>
void copy_part(const kernels::KernelTable& kernel, const AttentionPartOf<T>& part, DType type, const HeadRows& rows,
               const kernels::AttentionState& to) {
  const View<const T, 4>& out = part.out;
  const Index dim = out.shape[3];
  if constexpr (std::is_same_v<T, float>) {
    kernel.pack_rows({first_row(out, rows), rows.count, dim, out.strides[2], out.strides[3]}, 1.0f, to.out);
  } else {
    convert_all(kernel, HalfInput(matrix(out, rows), type), matrix(to.out, rows.count, dim), 1);
    for (Index i = 0; i < rows.count; ++i)  // whole vectors are merged
      std::fill_n(to.out + i * to.out_step + dim, round_up(dim, kernels::lanes) - dim, 0.0f);
  }
  copy_values(part.lse, rows, to.max);
  copy_values(part.sum, rows, to.sum);
}

/// Scratch memory of a task: the result so far, the next part, and a sink for each row.
struct Buffers {
  kernels::AttentionState state, part;
  float* sinks;
};

Buffers carve(Arena& arena) {
  const auto state = [&] {
    return kernels::AttentionState{.out = arena.take(rows_per_task * kernels::packed_row_stride),
                                   .out_step = kernels::packed_row_stride,
                                   .max = arena.take(rows_per_task),
                                   .sum = arena.take(rows_per_task)};
  };
  return {.state = state(), .part = state(), .sinks = arena.take(rows_per_task)};
}

template <class T>
void merge_rows(const kernels::KernelTable& kernel, const Tensors<T>& x, const MergeOptions& o, const HeadRows& rows) {
  constexpr bool is_half = !std::is_same_v<T, float>;
  const auto [state, next, sinks] = carved_from_scratch(Purpose::rows, &carve);
  const View<T, 4>& out = x.out;
  copy_part(kernel, x.parts[0], x.type, rows, state);
  for (const AttentionPartOf<T>& part : x.parts.subspan(1)) {
    copy_part(kernel, part, x.type, rows, next);
    kernel.attention_merge(state, next, rows.count, out.shape[3]);
  }
  if (o.sinks) std::fill_n(sinks, rows.count, o.sinks(rows.head));
  float* result = next.out;
  Index row_step = kernels::packed_row_stride, column_step = 1;
  if constexpr (!is_half) {
    result = first_row(out, rows);
    row_step = out.strides[2];
    column_step = out.strides[3];
  }
  kernel.attention_finish(state, {.rows = rows.count,
                                  .value_dim = out.shape[3],
                                  .out = result,
                                  .row_step = row_step,
                                  .column_step = column_step,
                                  .lse = !o.lse ? nullptr : first_row(o.lse, rows),
                                  .lse_step = o.lse.strides[2],
                                  .sum = !o.sum ? nullptr : first_row(o.sum, rows),
                                  .sum_step = o.sum.strides[2],
                                  .sinks = !o.sinks ? nullptr : sinks});
  if constexpr (is_half)
    convert_all(kernel, as_input(matrix(result, rows.count, out.shape[3])), HalfOutput(matrix(out, rows), x.type), 1);
}

template <class T>
void run(const Tensors<T>& x, const MergeOptions& options) {
  check(x.parts, x.out, options);
  const kernels::KernelTable& kernel = active();
  const auto [batch, heads, length, dim] = x.out.shape;
  if (batch == 0 || heads == 0 || length == 0) return;
  const Index per_head = ceil_div(length, rows_per_task);
  const double elements =
      static_cast<double>(batch * heads) * static_cast<double>(length * dim) * static_cast<double>(x.parts.size() + 1);
  const int threads = useful_threads(0, elements, options.num_threads);
  parallel_for(batch * heads * per_head, threads, [&](Index task) {
    const Index head = task / per_head, first = task % per_head * rows_per_task;
    merge_rows(kernel, x, options,
               {head / x.out.shape[1], head % x.out.shape[1], first, std::min(rows_per_task, x.out.shape[2] - first)});
  });
}

template <class T>
void run_halves(std::span<const AttentionPartOf<T>> parts, const View<T, 4>& out, const MergeOptions& options) {
  const CallScope scope;
  auto& bits = kept_object<std::vector<AttentionPartOf<std::uint16_t>>>();
  bits.clear();
  for (const AttentionPartOf<T>& part : parts) bits.push_back({bits_of(part.out), part.lse, part.sum});
  run<std::uint16_t>({bits, bits_of(out), type_of<T>}, options);
}

}  // namespace

void merge(std::span<const AttentionPart> parts, View<float, 4> out, const MergeOptions& options) {
  const CallScope scope;
  run<float>({parts, out, DType::float32}, options);
}
void merge(std::span<const AttentionPartOf<bfloat16>> parts, View<bfloat16, 4> out, const MergeOptions& options) {
  run_halves(parts, out, options);
}
void merge(std::span<const AttentionPartOf<float16>> parts, View<float16, 4> out, const MergeOptions& options) {
  run_halves(parts, out, options);
}

}  // namespace headlane
