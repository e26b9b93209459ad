// How calls of attention are divided: the plans of many shapes, options and numbers of threads,
// written down. Bits do not depend on them, speed does: a plan that changes by accident shows here.
#include "attention/check.hpp"
#include "attention/memory.hpp"
#include "support/attention_plans.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

using namespace internal;

std::string text_of(const PlanCase& c) {
  std::ostringstream text;
  text << c.batch << " x " << c.q_heads << "/" << c.kv_heads << " heads, " << c.queries << " x " << c.keys << ", dims "
       << c.head_dim << " " << c.value_dim << ", threads " << c.how.threads << ", tile " << c.how.tile_rows
       << ", option " << static_cast<int>(c.how.option) << ", layout " << static_cast<int>(c.how.layout);
  return text.str();
}

/// f(problem) for the call, whose tensors have no data.
template <class F>
std::string with_problem(const PlanCase& c, const F& f) {
  const auto view = [&](Index heads, Index length, Index dim, Index inner) {
    const bool adjacent = c.how.layout == PlanLayout::heads_adjacent;
    const Index row = (adjacent ? heads : 1) * dim * inner, head = (adjacent ? 1 : length) * dim * inner;
    return View<float, 4>(nullptr, {c.batch, heads, length, dim}, {heads * length * dim * inner, head, row, inner});
  };
  const View<float, 4> q = view(c.q_heads, c.queries, c.head_dim, 1), out = view(c.q_heads, c.queries, c.value_dim, 1),
                       k = view(c.kv_heads, c.keys, c.head_dim, 1),
                       v = view(c.kv_heads, c.keys, c.value_dim, c.how.layout == PlanLayout::strided_values ? 2 : 1);
  AttentionOptions options{.causal = c.how.option == PlanOption::causal || c.how.option == PlanOption::causal_decoding,
                           .num_threads = c.how.threads};
  const std::vector<float> table(static_cast<std::size_t>(c.q_heads * 32));
  const std::vector<Index> numbers(static_cast<std::size_t>(c.batch)), queries{0, 1, c.queries / 3, c.queries},
      keys{0, c.keys / 2, c.keys / 2, c.keys};
  if (c.how.option == PlanOption::causal_decoding) options.causal_offset = c.keys - c.queries;
  if (c.how.option == PlanOption::causal_offsets) options.causal_offsets = {numbers.data(), {c.batch}};
  if (c.how.option == PlanOption::window) options.window_left = options.window_right = 10;
  if (c.how.option == PlanOption::relative_bias) options.relative_bias.table = {table.data(), {c.q_heads, 32}};
  if (c.how.option == PlanOption::variable_length) {
    options.query_starts = {queries.data(), {4}};
    options.key_starts = {keys.data(), {4}};
  }
  KvCache cache(c.kv_heads, c.head_dim, c.value_dim);
  std::vector<Index> sequences;
  if (c.how.option == PlanOption::cache) {
    const std::vector<float> row(512);
    for (Index i = 0; i < c.batch; ++i) {
      sequences.push_back(cache.add());
      cache.append(sequences.back(), {row.data(), {c.kv_heads, c.keys, c.head_dim}, {0, 0, 1}},
                   {row.data(), {c.kv_heads, c.keys, c.value_dim}, {0, 0, 1}});
    }
  }
  const KeysAndValues source =
      c.how.option == PlanOption::cache ? keys_of("plan", cache, sequences) : KeysAndValues{.k = k, .v = v};
  const AttentionProblem p = checked_attention("plan", q, source, out, options, CheckLevel::shapes);
  kernels::KernelTable kernel = p.kernel;
  kernel.tile_rows = c.how.tile_rows;
  return f(AttentionProblem{p.q, p.keys, p.out, p.options, p.batch, p.scale, p.left, p.right, kernel, p.threads});
}

const char* name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::by_head:
      return "by_head";
    case Strategy::by_rows:
      return "by_rows";
    case Strategy::in_place:
      return "in_place";
  }
  return "";
}

/// The plan on one line.
std::string text_of_plan(const AttentionProblem& p) {
  const TaskPlan plan = plan_tasks(p);
  std::ostringstream text;
  text << name_of(plan.strategy) << " threads " << p.threads << " tasks " << plan.tasks << " rows "
       << plan.rows_per_task << " x " << plan.row_parts << (plan.rows_are_heads ? " of heads" : "") << " keys "
       << plan.blocks.keys << " in " << plan.blocks.count << " / " << plan.key_parts << " packed "
       << plan.blocks.key_floats << " + " << plan.blocks.value_floats << " x " << plan.heads_per_round
       << (plan.few_keys ? " few keys" : "") << (plan.prefetches ? " prefetch" : "") << " bytes "
       << AttentionMemory(p, plan).bytes();
  return text.str();
}

TEST_CASE("attention is divided as written down") {
  for (const PlanCase& given : plan_cases()) {
    const std::string plan = with_problem(given, &text_of_plan);
    CHECK_MESSAGE(plan == given.plan, text_of(given), "\n  expected ", given.plan, "\n  got      ", plan);
  }
}

}  // namespace
}  // namespace headlane::test
