// attention: the entry. Checks are in check.cpp, how a call is divided in plan.cpp, how its tasks
// run in schedule.cpp.
#include <headlane/attention.hpp>

#include "attention/check.hpp"
#include "attention/half.hpp"
#include "attention/memory.hpp"
#include "core/call_scope.hpp"

namespace headlane {
namespace internal {
namespace {

AttentionPlan public_plan(const AttentionProblem& p) {
  AttentionPlan result{
      .isa = p.kernel.name, .tile_rows = p.kernel.tile_rows, .key_block = kernels::block_size, .threads = 1};
  if (!has_rows(p)) return result;
  const TaskPlan plan = plan_tasks(p);
  result.rows_of_task = plan.rows_per_task;
  result.key_parts = plan.key_parts;
  result.tasks = plan.tasks;
  result.threads = p.threads;
  result.packs_keys = plan.strategy != Strategy::in_place;
  result.packs_values = result.packs_keys && plan.blocks.value_floats != 0;
  result.workspace_bytes = AttentionMemory(p, plan).bytes();
  return result;
}

}  // namespace

void attention_named(Caller caller, const View<const float, 4>& q, const KeysAndValues& keys, const View<float, 4>& out,
                     const AttentionOptions& options) {
  const CallScope scope;
  const AttentionProblem problem = checked_attention(caller, q, keys, out, options, CheckLevel::full);
  if (!has_rows(problem)) return;
  if (is_half(options.bias)) return attention_named(caller, q, keys, out, with_wide(options, &AttentionOptions::bias));
  run_attention(caller, problem);
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
  return public_plan(checked_attention("plan_attention", q, {k, v}, out, options, CheckLevel::shapes));
}

AttentionPlan plan_attention(View<const float, 4> q, const KvCache& cache, std::span<const Index> sequences,
                             View<float, 4> out, const AttentionOptions& options) {
  const CallScope scope;
  return public_plan(checked_attention("plan_attention", q, keys_of("plan_attention", cache, sequences), out, options,
                                       CheckLevel::shapes));
}

}  // namespace headlane
