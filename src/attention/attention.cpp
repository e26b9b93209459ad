// attention: the entry. Checks are in check.cpp, how a call is divided in plan.cpp, how its tasks run in schedule.cpp.
#include <headlane/attention.hpp>

#include "attention/check.hpp"
#include "attention/plan.hpp"
#include "core/call_scope.hpp"

namespace headlane {
namespace internal {
namespace {

bool has_rows(const AttentionProblem& p) { return p.batch != 0 && p.q.shape[1] != 0 && p.q.shape[2] != 0; }

AttentionPlan plan(const AttentionProblem& p) {
  const AttentionCut cut(p);
  const bool packs = cut.way != AttentionCut::Way::in_place;
  return {.isa = p.kernel.name,
          .tile_rows = p.kernel.tile_rows,
          .key_block = kernels::block_size,
          .rows_of_task = cut.rows_of_task,
          .key_parts = cut.key_parts,
          .tasks = cut.tasks,
          .threads = p.threads,
          .packs_keys = packs,
          .packs_values = packs && cut.value_block != 0,
          .workspace_bytes = AttentionMemory(p, cut).bytes()};
}

AttentionPlan plan_or_nothing(const AttentionProblem& p) {
  if (!has_rows(p))
    return {.isa = p.kernel.name, .tile_rows = p.kernel.tile_rows, .key_block = kernels::block_size, .threads = 1};
  return plan(p);
}

}  // namespace

void attention_named(const char* function, const View<const float, 4>& q, const KeysAndValues& keys,
                     const View<float, 4>& out, const AttentionOptions& options) {
  const CallScope scope;
  const AttentionProblem problem = checked_attention(function, q, keys, out, options, Look::all);
  if (has_rows(problem)) run_attention(function, problem);
}

}  // namespace internal

using namespace internal;

void attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v, View<float, 4> out,
               const AttentionOptions& options) {
  attention_named("attention", q, {k, v}, out, options);
}

void attention(View<const float, 4> q, const KvCache& cache, std::span<const Index> sequences, View<float, 4> out,
               const AttentionOptions& options) {
  attention_named("attention", q, keys_of("attention", cache, sequences), out, options);
}

AttentionPlan plan_attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v, View<float, 4> out,
                             const AttentionOptions& options) {
  const CallScope scope;
  return plan_or_nothing(checked_attention("plan_attention", q, {k, v}, out, options, Look::shapes));
}

AttentionPlan plan_attention(View<const float, 4> q, const KvCache& cache, std::span<const Index> sequences,
                             View<float, 4> out, const AttentionOptions& options) {
  const CallScope scope;
  return plan_or_nothing(
      checked_attention("plan_attention", q, keys_of("plan_attention", cache, sequences), out, options, Look::shapes));
}

}  // namespace headlane
