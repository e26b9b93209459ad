// The caller's floating-point state changes nothing that several ranks compute, and no call changes
// it.
#include "sequence_case.hpp"
#include "support/floating_point_state.hpp"
#include "support/hash.hpp"
#include "thread_ranks.hpp"

#include <doctest/doctest.h>
#include <headlane/mpi/kv_cache.hpp>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace headlane::test {
namespace {

#if defined(__x86_64__)

/// Calls f() in this state; checks that it stays, flags included.
template <class F>
void in_state(unsigned wanted, const F& f) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(wanted);
  f();
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  if (after != wanted) throw std::logic_error("state " + std::to_string(wanted) + " is now " + std::to_string(after));
}

// 1e-40 is denormal: what reads it raises a flag, and DAZ makes it 0.
TEST_CASE("mpi: the caller's state changes no bit, and is what it was after a call") {
  const AttentionSizes s{.q_heads = 2, .kv_heads = 2, .q_length = 4, .kv_length = 600, .head_dim = 8, .value_dim = 8};
  const AttentionTensors whole(s, 5);
  whole.k.view(0, 1, 2, 3) = 1e-40f;
  const AttentionOptions options{.scale = 1e-40f};
  CHECK_NOTHROW(run_transports(2, [&](ThreadTransport& t) {
    const mpi::AttentionCut cut{.keys = mpi::SequenceCut::contiguous(600, 2)};
    const Index first = t.rank() == 0 ? 0 : cut.keys.length_of(0), end = first + cut.keys.length_of(t.rank());
    const View<const float, 4> k = whole.k.view.slice(2, first, end), v = whole.v.view.slice(2, first, end);
    const Tensor<4> out(whole.out.view.shape), of_cache(whole.out.view.shape);
    std::uint64_t expected = 0;
    for (const unsigned state : {0x1f80u, 0x9fc0u, 0u, 0x8040u}) {  // default; FTZ and DAZ; all unmasked; both
      mpi::KvCache cache(t, 2, 8, 8, {.type = DType::int8});
      const std::array<Index, 1> sequence{cache.add()};
      in_state(state, [&] { cache.append(sequence[0], whole.k.view.select(0, 0), whole.v.view.select(0, 0)); });
      in_state(state, [&] { mpi::attention(t, whole.q.view, cache, sequence, of_cache.view, options); });
      in_state(state, [&] { mpi::attention(t, whole.q.view, k, v, out.view, cut, options); });
      Hash hash;
      hash.add(out.view);
      hash.add(of_cache.view);
      if (state == 0x1f80) expected = hash.value();
      if (hash.value() != expected) throw std::logic_error("other bits in state " + std::to_string(state));
    }
  }));
}

#endif

}  // namespace
}  // namespace headlane::test
