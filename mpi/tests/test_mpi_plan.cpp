// What plan_attention() tells of calls over cut sequences.
#include "sequence_case.hpp"
#include "thread_ranks.hpp"

#include <doctest/doctest.h>
#include <headlane/mpi/attention.hpp>

#include <atomic>
#include <cstddef>
#include <vector>

namespace headlane::test {
namespace {

std::vector<mpi::SequencePlan> plans_of(const mpi::AttentionCut& cut, Index heads, Index dim) {
  std::vector<mpi::SequencePlan> plans;
  for (int rank = 0; rank < cut.keys.ranks(); ++rank) {
    const View<const float, 4> q(nullptr, {1, heads, cut.queries->length_of(rank), dim}),
        k(nullptr, {1, heads, cut.keys.length_of(rank), dim});
    plans.push_back(mpi::plan_attention(rank, q, k, k, cut, {.causal = true}));
  }
  return plans;
}

// Every call makes such a plan: one that goes through groups, pieces and ranks takes 8 s.
TEST_CASE("mpi::plan_attention: of 1024 ranks that have a million positions") {
  constexpr int ranks = 1024;
  constexpr Index length = Index{1} << 20, heads = 8, dim = 64;
  const mpi::SequenceCut all = mpi::SequenceCut::cyclic(length, ranks), few = mpi::SequenceCut::cyclic(64 * 512, ranks);
  std::size_t sent = 0, received = 0;
  const auto keys = plans_of({.keys = all, .queries = all}, heads, dim);
  for (int rank = 0; rank < ranks; ++rank) {
    const mpi::SequencePlan& plan = keys[static_cast<std::size_t>(rank)];
    CHECK(plan.travels == mpi::Travels::keys);
    const Index right = all.length_of((rank + 1) % ranks);
    CHECK(plan.bytes_sent == static_cast<std::size_t>((length - right) * 2 * heads * dim) * sizeof(float));
    sent += plan.bytes_sent;
    received += plan.bytes_received;
  }
  CHECK(sent == received);
  sent = received = 0;
  for (const mpi::SequencePlan& plan : plans_of({.keys = all, .queries = few}, heads, dim)) {
    CHECK(plan.travels == mpi::Travels::results);
    sent += plan.bytes_sent;
    received += plan.bytes_received;
  }
  // A partial result of each query between pieces; its result, to the rank that has the query.
  const Index queries = few.length(), apart = queries - few.length_of(all.pieces().back().rank);
  const Index floats = queries * heads * (dim + 2) * (std::ssize(all.pieces()) - 1) + apart * heads * dim;
  CHECK(sent == static_cast<std::size_t>(floats) * sizeof(float));
  CHECK(sent == received);
}

TEST_CASE("mpi::plan_attention: the memory is what a call allocates for messages and partial results") {
  Random random(2);
  int ring = 0, chain = 0;
  for (int i = 0; i < 40; ++i) {
    AttentionSizes s{.batch = random.integer(1, 3),
                     .q_heads = 4,
                     .kv_heads = 2,
                     .q_length = random.integer(1, i % 2 == 0 ? 1500 : 20),
                     .kv_length = random.integer(1, 9000),
                     .head_dim = 8,
                     .value_dim = random.pick(std::vector<Index>{1, 16})};
    if (i % 3 == 1) s.q_length = s.kv_length = random.integer(1, 2500);
    if (i % 10 == 0)
      s = {.q_heads = 80, .kv_heads = 80, .q_length = 1100, .kv_length = 2500, .head_dim = 4, .value_dim = 60};
    const int ranks = random.pick(std::vector<int>{2, 3, 5});
    mpi::AttentionCut cut{.keys = random_cut(s.kv_length, ranks, random)};
    if (i % 10 == 0) cut = {.keys = {ranks, {{.rank = 1, .end = 2048}, {.rank = 0, .begin = 2048, .end = 2500}}}};
    else if (i % 3 != 0) cut.queries = random_cut(s.q_length, ranks, random);
    const AttentionTensors t(s, static_cast<std::uint64_t>(i));
    std::atomic<int> keys = 0;
    CAPTURE(i);
    CHECK_NOTHROW(run_transports(ranks, [&](ThreadTransport& transport) {
      const auto own = [&](const auto& view, const std::optional<mpi::SequenceCut>& by) {
        return by ? view.slice(2, 0, by->length_of(transport.rank())) : view;  // any rows: their bits do not matter
      };
      const auto q = own(t.q.view, cut.queries), k = own(t.k.view, cut.keys), v = own(t.v.view, cut.keys);
      const AttentionOptions options{.lse = i % 2 == 0 ? own(t.lse.view, cut.queries) : View<float, 3>()};
      const Tensor<4> out({s.batch, s.q_heads, q.size(2), s.value_dim});
      most_message_bytes = 0;
      mpi::attention(transport, q, k, v, out.view, cut, options);
      const mpi::SequencePlan plan = mpi::plan_attention(transport.rank(), q, k, v, cut, options);
      if (plan.memory != most_message_bytes)
        throw std::runtime_error("the plan has " + std::to_string(plan.memory) + " bytes, the call " +
                                 std::to_string(most_message_bytes));
      if (plan.travels == mpi::Travels::keys) ++keys;
    }));
    ++(keys > 0 ? ring : chain);
  }
  CHECK(ring > 10);
  CHECK(chain > 10);
}

}  // namespace
}  // namespace headlane::test
