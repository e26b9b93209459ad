// MultiHeadAttention: forward() and what belongs to it.
#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "layers/attention_layer.hpp"
#include "layers/half.hpp"
#include "layers/together.hpp"

namespace headlane {

using namespace internal;

namespace {

/// y = layer(x), checked.
void run(Caller caller, const MultiHeadAttention& layer, const View<const float, 3>& x, const KeySource& source,
         const View<float, 3>& y, const AttentionOptions& options) {
  if (source.kind != KeySource::Kind::growing_cache) return attend(caller, layer, x, source, y, {}, options);
  AppendGuard appended(*source.growing, source.sequences);
  attend(caller, layer, x, source, y, {}, options);
  appended.commit();
}

void forward_floats(Caller caller, const MultiHeadAttention& layer, const View<const float, 3>& x,
                    const KeySource& source, const View<float, 3>& y, const AttentionOptions& options) {
  const CallScope scope;
  check_attention_together(layer,
                           {caller.operand("x", x), caller.operand("y", y), caller.operand("memory", source.memory)},
                           source, DType::float32, options);
  const ComparedScope compared(layer.shares().team());
  run(caller, layer, x, source, y, options);
}

/// `rows` has the memory of the source.
void forward_halves(Caller caller, const MultiHeadAttention& layer, const HalfRows& rows, KeySource source,
                    const AttentionOptions& options) {
  const CallScope scope;
  check_attention_together(layer, rows.operands(caller), source, rows.type, options);
  const ComparedScope compared(layer.shares().team());
  const WideRows wide(rows, options.num_threads);
  source.memory = wide.memory;
  run(caller, layer, wide.x, source, wide.y, options);
  wide.round();
}

constexpr Caller forward_caller = "MultiHeadAttention::forward",
                 projected_caller = "MultiHeadAttention::forward_projected",
                 project_caller = "MultiHeadAttention::project_memory";
constexpr KeySource::Kind from_memory = KeySource::Kind::memory;

void project_checked(const MultiHeadAttention& layer, const View<const float, 3>& memory, KvCache& cache,
                     std::span<const Index> sequences, const ProjectMemoryOptions& options) {
  AppendGuard appended(cache, sequences);
  project_memory(layer, memory, cache, sequences, options);
  appended.commit();
}

void project_halves(const MultiHeadAttention& layer, const HalfRows& memory, KvCache& cache,
                    std::span<const Index> sequences, const ProjectMemoryOptions& options) {
  const CallScope scope;
  check_project_memory(layer, project_caller.operand("memory", memory.x), cache, sequences, options);
  const WideRows wide(memory, options.num_threads);
  project_checked(layer, wide.x, cache, sequences, options);
}

}  // namespace

void MultiHeadAttention::forward(View<const float, 3> x, View<float, 3> y, const AttentionOptions& options) const {
  forward_floats(forward_caller, *this, x, {}, y, options);
}
void MultiHeadAttention::forward(View<const bfloat16, 3> x, View<bfloat16, 3> y,
                                 const AttentionOptions& options) const {
  forward_halves(forward_caller, *this, half_rows(x, y), {}, options);
}
void MultiHeadAttention::forward(View<const float16, 3> x, View<float16, 3> y, const AttentionOptions& options) const {
  forward_halves(forward_caller, *this, half_rows(x, y), {}, options);
}

void MultiHeadAttention::forward(View<const float, 3> x, View<const float, 3> memory, View<float, 3> y,
                                 const AttentionOptions& options) const {
  forward_floats(forward_caller, *this, x, {.kind = from_memory, .memory = memory}, y, options);
}
void MultiHeadAttention::forward(View<const bfloat16, 3> x, View<const bfloat16, 3> memory, View<bfloat16, 3> y,
                                 const AttentionOptions& options) const {
  forward_halves(forward_caller, *this, half_rows(x, y, memory), {.kind = from_memory}, options);
}
void MultiHeadAttention::forward(View<const float16, 3> x, View<const float16, 3> memory, View<float16, 3> y,
                                 const AttentionOptions& options) const {
  forward_halves(forward_caller, *this, half_rows(x, y, memory), {.kind = from_memory}, options);
}

void MultiHeadAttention::forward(View<const float, 3> x, KvCache& cache, std::span<const Index> sequences,
                                 View<float, 3> y, const AttentionOptions& options) const {
  forward_floats(forward_caller, *this, x, growing(cache, sequences), y, options);
}
void MultiHeadAttention::forward(View<const bfloat16, 3> x, KvCache& cache, std::span<const Index> sequences,
                                 View<bfloat16, 3> y, const AttentionOptions& options) const {
  forward_halves(forward_caller, *this, half_rows(x, y), growing(cache, sequences), options);
}
void MultiHeadAttention::forward(View<const float16, 3> x, KvCache& cache, std::span<const Index> sequences,
                                 View<float16, 3> y, const AttentionOptions& options) const {
  forward_halves(forward_caller, *this, half_rows(x, y), growing(cache, sequences), options);
}

void MultiHeadAttention::forward_projected(View<const float, 3> x, const KvCache& cache,
                                           std::span<const Index> sequences, View<float, 3> y,
                                           const AttentionOptions& options) const {
  forward_floats(projected_caller, *this, x, projected(cache, sequences), y, options);
}
void MultiHeadAttention::forward_projected(View<const bfloat16, 3> x, const KvCache& cache,
                                           std::span<const Index> sequences, View<bfloat16, 3> y,
                                           const AttentionOptions& options) const {
  forward_halves(projected_caller, *this, half_rows(x, y), projected(cache, sequences), options);
}
void MultiHeadAttention::forward_projected(View<const float16, 3> x, const KvCache& cache,
                                           std::span<const Index> sequences, View<float16, 3> y,
                                           const AttentionOptions& options) const {
  forward_halves(projected_caller, *this, half_rows(x, y), projected(cache, sequences), options);
}

void MultiHeadAttention::project_memory(View<const float, 3> memory, KvCache& cache, std::span<const Index> sequences,
                                        const ProjectMemoryOptions& options) const {
  const CallScope scope;
  check_project_memory(*this, project_caller.operand("memory", memory), cache, sequences, options);
  project_checked(*this, memory, cache, sequences, options);
}
void MultiHeadAttention::project_memory(View<const bfloat16, 3> memory, KvCache& cache,
                                        std::span<const Index> sequences, const ProjectMemoryOptions& options) const {
  project_halves(*this, half_rows(memory, {}), cache, sequences, options);
}
void MultiHeadAttention::project_memory(View<const float16, 3> memory, KvCache& cache, std::span<const Index> sequences,
                                        const ProjectMemoryOptions& options) const {
  project_halves(*this, half_rows(memory, {}), cache, sequences, options);
}

}  // namespace headlane
