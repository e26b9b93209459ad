// What plan_attention() tells of calls over cut sequences.
#include <doctest/doctest.h>
#include <headlane/mpi/attention.hpp>

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

// A plan that looks at each group of queries, piece of keys and rank takes 8 s: every call makes one.
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
  // A partial result of each query between pieces, and a result that goes to the rank with the query.
  const Index queries = few.length(), apart = queries - few.length_of(all.pieces().back().rank);
  const Index floats = queries * heads * (dim + 2) * (std::ssize(all.pieces()) - 1) + apart * heads * dim;
  CHECK(sent == static_cast<std::size_t>(floats) * sizeof(float));
  CHECK(sent == received);
}

}  // namespace
}  // namespace headlane::test
