// causal_convolution: checks, and tasks of 256 channels, which go through all tokens, 64 at a time.
#include <headlane/causal_convolution.hpp>

#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "core/view_rows.hpp"
#include "kernels/table.hpp"

#include <headlane/limits.hpp>

#include <algorithm>
#include <utility>

namespace headlane {

using namespace internal;

namespace {

using kernels::KernelTable;

constexpr Caller caller("causal_convolution");
/// Weighs the work against the cost of starting threads.
constexpr double operations_per_element = 20.0;
/// Channels of a task, and tokens that it takes at a time.
constexpr Index task_channels = 256, chunk_tokens = 64;

void check_state(const Operand& state, const Operand& x, const Operand& weight, const Operand& y) {
  check_output(state);
  check_same(state, 0, "batch elements", x, 0, "batch elements");
  check_same(state, 1, "channels", x, 2, "channels");
  state.require(state.shape[2] == weight.shape[1] - 1, " has ", state.shape[2], " tokens, wanted ", weight.shape[1] - 1,
                " (weight has width ", weight.shape[1], ")");
  check_no_overlap(y, state);
  for (const Operand* input : {&x, &weight}) check_no_overlap(state, *input);
}

void check(const Operand& x, const Operand& y, const View<const float, 2>& weight,
           const CausalConvolutionOptions& options) {
  const Operand w = caller.operand("weight", weight), bias = caller.operand("bias", options.bias),
                state = caller.operand("state", options.state);
  check_operand(x);
  check_operand(w);
  check_same(w, 0, "channels", x, 2, "channels");
  w.require(w.shape[1] >= 1 && w.shape[1] <= max_convolution_width, " has width ", w.shape[1], ", it must be 1 to ",
            max_convolution_width);
  check_output(y);
  check_same(y, 0, "batch elements", x, 0, "batch elements");
  check_same(y, 1, "tokens", x, 1, "tokens");
  check_same(y, 2, "channels", x, 2, "channels");
  for (const Operand* input : {&x, &w}) check_no_overlap(y, *input);
  if (state) check_state(state, x, w, y);
  if (bias) {
    check_operand(bias);
    check_same(bias, 0, "channels", x, 2, "channels");
    check_no_overlap(y, bias);
    if (state) check_no_overlap(state, bias);
  }
  caller.require(options.activation >= Activation::none && options.activation <= Activation::erf, "activation is ",
                 static_cast<Index>(options.activation), ", which is none of none … erf");
  check_threads(caller, options.num_threads);
}

/// The call, shared by all tasks.
struct Problem {
  const KernelTable& kernel;
  const View<const float, 3>& x;
  const View<float, 3>& y;
  const CausalConvolutionOptions& options;
  const float *weight, *bias;  ///< [width, weight_step], and [weight_step] or null
  Index width, weight_step;
};

/// One task: some channels of a batch element.
struct Task {
  const Problem& p;
  Index b, first, channels;
  const float** rows;           ///< [width - 1 + chunk_tokens]
  float *before, *copy, *sums;  ///< [width - 1, task_channels], and [chunk_tokens, task_channels] twice
};

/// Rows [count, channels] between memory of any strides and scratch.
void copy_rows(const KernelTable& kernel, const float* from, Index row_step, Index column_step, Index count,
               Index channels, float* to) {
  kernel.copy_rows({from, count, channels, row_step, column_step}, to, task_channels, 1);
}

/// The inputs before the first token.
void begin(const Task& task) {
  const View<float, 3>& state = task.p.options.state;
  const Index count = task.p.width - 1;
  if (count == 0) return;
  if (!state) std::fill_n(task.before, count * task_channels, 0.0f);
  else
    copy_rows(task.p.kernel, &state(task.b, task.first, 0), state.stride(2), state.stride(1), count, task.channels,
              task.before);
}

/// The rows of a chunk, where they are, or copies of them.
void find_rows(const Task& task, Index token, Index tokens) {
  const View<const float, 3>& x = task.p.x;
  const Index before = task.p.width - 1;
  const float* from = &x(task.b, token, task.first);
  Index step = x.stride(1);
  if (task.channels > 1 && x.stride(2) != 1) {
    copy_rows(task.p.kernel, from, step, x.stride(2), tokens, task.channels, task.copy);
    from = task.copy, step = task_channels;
  }
  for (Index i = 0; i < before; ++i) task.rows[i] = task.before + i * task_channels;
  for (Index t = 0; t < tokens; ++t) task.rows[before + t] = from + t * step;
}

void convolve(const Task& task, Index token, Index tokens) {
  const View<float, 3>& y = task.p.y;
  const bool copies = task.channels > 1 && y.stride(2) != 1;
  float* const to = &y(task.b, token, task.first);
  kernels::ConvolvedTokens call{};
  call.tokens = tokens, call.channels = task.channels, call.width = task.p.width;
  call.rows = task.rows;
  call.weight = task.p.weight + task.first, call.weight_step = task.p.weight_step;
  call.bias = task.p.bias == nullptr ? nullptr : task.p.bias + task.first;
  call.y = copies ? task.sums : to, call.y_step = copies ? task_channels : y.stride(1);
  task.p.kernel.causal_convolution(call);
  if (task.p.options.activation != Activation::none) {
    for (Index t = 0; t < tokens; ++t) {
      float* const row = call.y + t * call.y_step;
      task.p.kernel.activate(task.p.options.activation, row, row, task.channels);
    }
  }
  if (copies)
    task.p.kernel.copy_rows({task.sums, tokens, task.channels, task_channels, 1}, to, y.stride(1), y.stride(2));
}

/// The last width - 1 rows of a chunk come before the next one. Rows move forward, one by one.
void keep_rows(const Task& task, Index tokens) {
  for (Index i = 0; i < task.p.width - 1; ++i)
    std::copy_n(task.rows[tokens + i], task.channels, task.before + i * task_channels);
}

void run_task(const Problem& p, Index number) {
  const Index channels = p.x.size(2), blocks = ceil_div(channels, task_channels), before = p.width - 1;
  const Index b = number / blocks, first = number % blocks * task_channels;
  const Index chunk = chunk_tokens * task_channels;
  float* const memory = scratch(Purpose::block, before * task_channels + 2 * chunk);
  float* const copy = memory + before * task_channels;
  const Task task{p,
                  b,
                  first,
                  std::min(task_channels, channels - first),
                  scratch_array<const float*>(Purpose::rows, before + chunk_tokens),
                  memory,
                  copy,
                  copy + chunk};
  begin(task);
  for (Index token = 0; token < p.x.size(1); token += chunk_tokens) {
    const Index tokens = std::min(chunk_tokens, p.x.size(1) - token);
    find_rows(task, token, tokens);
    convolve(task, token, tokens);
    keep_rows(task, tokens);
  }
  const View<float, 3>& state = p.options.state;
  if (state && before > 0)
    p.kernel.copy_rows({memory, before, task.channels, task_channels, 1}, &state(b, first, 0), state.stride(2),
                       state.stride(1));
}

void run(const View<const float, 3>& x, const View<const float, 2>& weight, const View<float, 3>& y,
         const CausalConvolutionOptions& options) {
  const KernelTable& kernel = active();
  const Index channels = x.size(2), width = weight.size(1), step = step_of_copy(channels);
  float* const memory = scratch(Purpose::shared, (width + 1) * step);
  std::fill_n(memory, (width + 1) * step, 0.0f);  // behind the last channel, too
  kernel.copy_rows({weight.data, width, channels, weight.stride(1), weight.stride(0)}, memory, step, 1);
  float* const bias = !options.bias ? nullptr : memory + width * step;
  if (bias != nullptr) kernel.copy_rows({options.bias.data, 1, channels, 0, options.bias.stride(0)}, bias, step, 1);
  const Problem p{kernel, x, y, options, memory, bias, width, step};
  const double elements = static_cast<double>(x.size(0)) * static_cast<double>(x.size(1) * channels);
  const int threads = useful_threads(operations_per_element * elements, 2.0 * elements, options.num_threads);
  parallel_for(x.size(0) * ceil_div(channels, task_channels), threads, [&](Index task) { run_task(p, task); });
}

void run(const HalfInput& x, const View<const float, 2>& weight, const HalfOutput& y,
         const CausalConvolutionOptions& options) {
  const CallScope scope;
  check(caller.operand("x", x), caller.operand("y", y), weight, options);
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  HalfCopies copies(kernel, options.num_threads);
  copies.reserve(x);
  copies.reserve(as_input(y));
  copies.allocate();
  const AnyView<float> from = copies.add(x), to = copies.room(as_input(y));
  run(as_view<3>(from), weight, as_view<3>(to), options);
  copies.round(as_input(to), y);
}

}  // namespace

void causal_convolution(View<const float, 3> x, View<const float, 2> weight, View<float, 3> y,
                        const CausalConvolutionOptions& options) {
  const CallScope scope;
  check(caller.operand("x", x), caller.operand("y", y), weight, options);
  active();
  if (!is_empty(y)) run(x, weight, y, options);
}
void causal_convolution(View<const bfloat16, 3> x, View<const float, 2> weight, View<bfloat16, 3> y,
                        const CausalConvolutionOptions& options) {
  run(HalfInput(AnyView<const bfloat16>(x)), weight, HalfOutput(AnyView<bfloat16>(y)), options);
}
void causal_convolution(View<const float16, 3> x, View<const float, 2> weight, View<float16, 3> y,
                        const CausalConvolutionOptions& options) {
  run(HalfInput(AnyView<const float16>(x)), weight, HalfOutput(AnyView<float16>(y)), options);
}

}  // namespace headlane
