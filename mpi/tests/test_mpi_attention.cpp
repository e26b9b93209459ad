// Attention over cut sequences, with ranks that are threads: bit-identical to one process.
#include "sequence_case.hpp"
#include "support/scope.hpp"
#include "thread_ranks.hpp"

#include <doctest/doctest.h>
#include <headlane/mpi/kv_cache.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

namespace headlane::test {
namespace {

AttentionSizes random_sizes(Random& random, int i) {
  AttentionSizes s{.batch = random.integer(1, 2),
                   .q_heads = 4,
                   .kv_heads = random.pick(std::vector<Index>{1, 2, 4}),
                   .q_length = random.integer(1, 40),
                   .kv_length = random.integer(1, 5000),
                   .head_dim = random.pick(std::vector<Index>{8, 16}),
                   .value_dim = random.pick(std::vector<Index>{1, 16, 33})};
  if (i % 3 == 0) s.q_length = s.kv_length = random.integer(1, 2500);
  if (i % 5 == 0) s.q_length = 1;
  return s;
}

TEST_CASE("mpi::attention: random cuts, ranks and options have the bits of one process") {
  Random random(1);
  int ring = 0, chain = 0;
  for (int i = 0; i < (slow_isa() ? 10 : 60); ++i) {
    const AttentionSizes s = random_sizes(random, i);
    RandomOptions given(s);
    AttentionOptions options = given.draw(random, {.one_in = 3});
    options.num_threads = 0;
    const SequenceProblem problem(s, static_cast<std::uint64_t>(i), options);
    const int ranks = random.pick(std::vector<int>{1, 2, 3, 5, 8});
    mpi::AttentionCut cut{.keys = random_cut(s.kv_length, ranks, random)};
    if (i % 2 == 0) cut.queries = random_cut(s.q_length, ranks, random);
    const int threads = static_cast<int>(random.integer(1, 2));
    std::atomic<int> wrong_plans = 0;
    CAPTURE(i);
    CHECK_NOTHROW(run_transports(ranks, [&](ThreadTransport& transport) {
      check_ranks(transport, problem, cut, threads);
      if (transport.size() == 1) return;
      // The bytes that the plan told, and those of the agreement.
      const AttentionTensors& t = problem.tensors;
      const auto of_rank = [&](View<const float, 4> view, const std::optional<mpi::SequenceCut>& by) {
        if (by) view.shape[2] = by->length_of(transport.rank());
        return view;
      };
      AttentionOptions planned = options;
      planned.lse = t.lse.view;
      const mpi::SequencePlan plan =
          mpi::plan_attention(transport.rank(), of_rank(t.q.view, cut.queries), of_rank(t.k.view, cut.keys),
                              of_rank(t.v.view, cut.keys), cut, planned);
      const std::size_t agreement = 16 * static_cast<std::size_t>(ranks);
      if (transport.sent != plan.bytes_sent || transport.received != plan.bytes_received ||
          transport.collective != plan.bytes_collective + agreement)
        ++wrong_plans;
      if (transport.rank() == 0) ++(plan.travels == mpi::Travels::keys ? ring : chain);
    }));
    CHECK_MESSAGE(wrong_plans == 0, problem.text);
  }
  CHECK(ring > (slow_isa() ? 0 : 10));
  CHECK(chain > (slow_isa() ? 0 : 10));
}

TEST_CASE("mpi::attention: four chunks of keys, causal, more queries than are computed at a time") {
  if (slow_isa()) return;
  const AttentionSizes s{
      .batch = 2, .q_heads = 8, .kv_heads = 8, .q_length = 1600, .kv_length = 1600, .head_dim = 128, .value_dim = 128};
  const SequenceProblem problem(s, 1, {.causal = true});
  for (const int ranks : {2, 3})
    CHECK_NOTHROW(run_transports(ranks, [&](ThreadTransport& transport) {
      const mpi::SequenceCut cut = mpi::SequenceCut::cyclic(1600, ranks), one(ranks, {{.rank = 1, .end = 1600}});
      check_ranks(transport, problem, {.keys = cut, .queries = cut}, 1);
      if (ranks == 2) check_ranks(transport, problem, {.keys = cut, .queries = one}, 1);
      if (ranks == 3) check_ranks(transport, problem, {.keys = cut}, 1);
    }));
}

TEST_CASE("mpi::attention: padding queries whose sink is infinite or NaN") {
  AttentionSizes s{.batch = 2, .q_heads = 3, .q_length = 600, .kv_length = 1100, .head_dim = 8, .value_dim = 5};
  const std::array<Index, 2> lengths{2, 550};
  const std::array<float, 3> sinks{infinity, std::numeric_limits<float>::quiet_NaN(), -infinity};
  static const bool visible = true;
  AttentionOptions options{.sinks = {sinks.data(), {3}}, .query_lengths = {lengths.data(), {2}}};
  const SequenceProblem results(s, 4, options);
  options.mask = {&visible, {2, 3, 600, 1100}, {0, 0, 0, 0}};
  const SequenceProblem keys(s, 4, options);
  CHECK_NOTHROW(run_transports(3, [&](ThreadTransport& transport) {
    const auto cut = [](Index length) { return mpi::SequenceCut::contiguous(length, 3); };
    check_ranks(transport, results, {.keys = cut(1100)}, 1);
    check_ranks(transport, keys, {.keys = cut(1100), .queries = cut(600)}, 1);
  }));
}

TEST_CASE("mpi::attention: no keys, no queries, no rows on some ranks") {
  for (const Index keys : {0, 700})
    for (const Index queries : {0, 5}) {
      AttentionSizes s{.q_heads = 2, .q_length = queries, .kv_length = keys, .head_dim = 8, .value_dim = 5};
      const SequenceProblem problem(s, 3, {});
      CHECK_NOTHROW(run_transports(3, [&](ThreadTransport& transport) {
        const auto cut = [](Index length) { return mpi::SequenceCut::contiguous(length, 3); };
        check_ranks(transport, problem, {.keys = cut(keys), .queries = cut(queries)}, 1);
        check_ranks(transport, problem, {.keys = cut(keys)}, 1);
      }));
    }
}

TEST_CASE("mpi::attention: ranks that differ all throw one message that names them") {
  const AttentionSizes s{.q_heads = 2, .q_length = 4, .kv_length = 1100, .head_dim = 8, .value_dim = 8};
  const SequenceProblem problem(s, 4, {});
  const mpi::AttentionCut cut{.keys = mpi::SequenceCut::contiguous(1100, 3)};
  const auto attend = [&](mpi::Transport& transport, const AttentionOptions& options, const mpi::AttentionCut& with,
                          Index missing_rows = 0) {
    const AttentionTensors& t = problem.tensors;
    const std::vector<Index> keys = positions_of(cut.keys, transport.rank());
    const LocalRows<float> k(t.k.view, keys), v(t.v.view, keys);
    const Tensor<4> out(t.out.view.shape);
    const View<const float, 4> fewer = k.view.slice(2, 0, k.view.size(2) - missing_rows);
    mpi::attention(transport, t.q.view, fewer, v.view, out.view, with, options);
    throw std::invalid_argument("it was not refused");
  };
  const mpi::AttentionCut other{.keys = {3, {{1, 0, 512}, {0, 512, 1024}, {2, 1024, 1100}}}};
  check_words(message_of_all([&](mpi::Transport& t) { attend(t, {.causal = t.rank() == 1}, cut); }),
              {"mpi::attention: the ranks differ: ranks 0, 2 have not causal; rank 1 has causal"});
  check_words(message_of_all([&](mpi::Transport& t) { attend(t, {.scale = t.rank() == 2 ? 0.5f : 0.25f}, cut); }),
              {"the ranks differ: ranks 0, 1 have scale 0x1p-2; rank 2 has scale 0x1p-1"});
  check_words(message_of_all([&](mpi::Transport& t) { attend(t, {}, cut, t.rank() == 1 ? 1 : 0); }),
              {"rank 1 has an error", "k has 511 rows, the cut gives rank 1 512"});
  check_words(message_of_all([&](mpi::Transport& t) { attend(t, {}, t.rank() == 0 ? other : cut); }),
              {"rank 0 has", "ranks 1, 2 have"});
  const Index lengths[] = {7000};
  check_words(message_of_all([&](mpi::Transport& t) { attend(t, {.key_lengths = {lengths, {1}}}, cut); }),
              {"key_lengths[0] is 7000"});
  check_words(message_of_all([](mpi::Transport& t) { t.agree(t.rank() == 1 ? "g" : "f", "x of 3, y"); }),
              {"f: the ranks differ: ranks 0, 2 have f: x of 3; rank 1 has g: x of 3"});
  // All ranks make the same mistake, with rows of their own.
  const mpi::AttentionCut cut_too{.keys = cut.keys, .queries = cut.keys};
  const std::string message = message_of_all([&](mpi::Transport& t) {
    const Index rows = cut.keys.length_of(t.rank());
    const Tensor<4> x({1, 2, rows, 8});
    mpi::attention(t, x.view, x.view, x.view, x.view, cut_too);
  });
  check_words(message,
              {"ranks 0, 1 have an error, ", "rank 2 has an error, ", "out of shape [1, 2, 512, 8] overlaps q"});
}

TEST_CASE("mpi::attention: keys and values are checked on ranks without queries, too") {
  const AttentionSizes s{.q_heads = 2, .kv_heads = 2, .q_length = 4, .kv_length = 1100, .head_dim = 8, .value_dim = 8};
  const AttentionTensors t(s, 7);
  const mpi::AttentionCut cut{.keys = mpi::SequenceCut::contiguous(1100, 3),
                              .queries = mpi::SequenceCut::contiguous(4, 3)};
  const std::string message = message_of_all([&](mpi::Transport& transport) {
    const LocalRows<float> k(t.k.view, positions_of(cut.keys, transport.rank()));
    const LocalRows<float> v(t.v.view, positions_of(cut.keys, transport.rank()));
    const Index queries = cut.queries->length_of(transport.rank());
    const View<const float, 4> fewer = transport.rank() == 2 ? View<const float, 4>(v.view).slice(1, 0, 1) : v.view;
    mpi::attention(transport, t.q.view.slice(2, 0, queries), k.view, fewer, t.out.view.slice(2, 0, queries), cut);
    throw std::invalid_argument("it was not refused");
  });
  CHECK_MESSAGE(message.find("rank 2 has an error") != std::string::npos, message);
  CHECK_MESSAGE(message.find("v has 1 heads") != std::string::npos, message);
}

TEST_CASE("mpi::attention: a rank without queries has options of no element, or does not give them") {
  const AttentionSizes s{.batch = 2, .q_heads = 2, .q_length = 512, .kv_length = 512, .head_dim = 8, .value_dim = 8};
  RandomOptions given(s);
  Random random(8);
  for (int i = 0; i < 20; ++i) {
    AttentionOptions options = given.draw(random, {.one_in = 2});
    options.num_threads = 1;
    const SequenceProblem problem(s, 8, options);
    const mpi::SequenceCut cut = mpi::SequenceCut::contiguous(512, 4), first(4, {{.rank = 0, .end = 512}});
    CHECK_NOTHROW(run_transports(4, [&](ThreadTransport& t) {
      check_ranks(t, problem, {.keys = cut, .queries = cut}, 1);
      check_ranks(t, problem, {.keys = first, .queries = cut}, 1);
    }));
  }
  const AttentionTensors t(s, 9);
  const mpi::SequenceCut cut = mpi::SequenceCut::contiguous(512, 3);
  for (const int without : {0, 2}) {  // rank 2 has all queries
    const std::string message = message_of_all([&](mpi::Transport& transport) {
      const auto own = [&](const auto& view) { return view.slice(2, 0, cut.length_of(transport.rank())); };
      const AttentionOptions options{.lse = transport.rank() == without ? View<float, 3>() : own(t.lse.view)};
      mpi::attention(transport, own(t.q.view), own(t.k.view), own(t.v.view), own(t.out.view),
                     {.keys = cut, .queries = cut}, options);
      throw std::invalid_argument("it was not refused");
    });
    CHECK_MESSAGE(message.find("mpi::attention: the ranks differ: ") == 0, message);
    CHECK_MESSAGE(message.find("with lse") != std::string::npos, message);
  }
}

TEST_CASE("mpi::attention: what it does not take is refused by name") {
  const AttentionSizes s{.q_heads = 2, .q_length = 4, .kv_length = 600, .head_dim = 8, .value_dim = 8};
  const AttentionTensors t(s, 5);
  const mpi::AttentionCut cut{.keys = mpi::SequenceCut::contiguous(600, 1)};
  const Index starts[] = {0, 4};
  std::vector<std::byte> bytes(8);
  const Tensor<3> sum(t.lse.view.shape);
  AttentionOptions with_starts;
  with_starts.query_starts = with_starts.key_starts = {starts, {2}};
  const std::vector<std::pair<std::string, AttentionOptions>> calls{
      {"query_starts", with_starts},        {"sum", {.lse = t.lse.view, .sum = sum.view}},
      {"workspace", {.workspace = bytes}},  {"overlaps", {.lse = {t.out.view.data, t.lse.view.shape}}},
      {"window_left", {.window_left = -2}},
  };
  for (const auto& [word, options] : calls) {
    std::string message;
    run_transports(1, [&](ThreadTransport& transport) {
      try {
        mpi::attention(transport, t.q.view, t.k.view, t.v.view, t.out.view, cut, options);
      } catch (const std::invalid_argument& error) {
        message = error.what();
      }
    });
    CHECK_MESSAGE(message.find(word) != std::string::npos, word, " in: ", message);
  }
}

TEST_CASE("mpi::attention: an output that overlaps an option is refused, with tensors and with a cache") {
  const AttentionTensors t({.q_heads = 2, .q_length = 4, .kv_length = 600, .head_dim = 8, .value_dim = 8}, 5);
  const View<float, 4>& out = t.out.view;
  std::fill_n(out.data, 64, 0.0f);
  const std::array<Index, 4> scores{1, 2, 4, 600}, same{};
  const std::vector<std::pair<std::string, AttentionOptions>> calls{
      {"mask", {.mask = {reinterpret_cast<const bool*>(out.data), scores, same}}},
      {"bias", {.bias = View<const float, 4>(out.data, scores, same)}},
      {"alibi_slopes", {.alibi_slopes = {out.data, {2}}}},
      {"relative_bias.table", {.relative_bias = {.table = {out.data, {2, 8}}, .max_distance = 20}}},
      {"sinks", {.sinks = {out.data, {2}}}},
      {"key_lengths", {.key_lengths = {reinterpret_cast<const Index*>(out.data), {1}}}},
  };
  run_transports(1, [&](ThreadTransport& transport) {
    mpi::KvCache cache(transport, 2, 8, 8);
    const Index sequence = cache.add();
    const Tensor<3> k({2, 600, 8});
    cache.append(sequence, k.view, k.view);
    const mpi::AttentionCut cut{.keys = mpi::SequenceCut::contiguous(600, 1)};
    for (const auto& [name, options] : calls) {
      const std::string message = "mpi::attention: out of shape [1, 2, 4, 8] overlaps " + name;
      CHECK_THROWS_WITH_AS(mpi::attention(transport, t.q.view, t.k.view, t.v.view, out, cut, options),
                           doctest::Contains(message.c_str()), std::invalid_argument);
      CHECK_THROWS_WITH_AS(mpi::attention(transport, t.q.view, cache, {&sequence, 1}, out, options),
                           doctest::Contains(message.c_str()), std::invalid_argument);
    }
  });
}

TEST_CASE("SequenceCut: covers every position once, on the grid") {
  Random random(6);
  for (int i = 0; i < 500; ++i) {
    const Index length = random.integer(0, 9000);
    const int ranks = static_cast<int>(random.integer(1, 9));
    for (const mpi::SequenceCut& cut :
         {mpi::SequenceCut::contiguous(length, ranks), mpi::SequenceCut::cyclic(length, ranks)}) {
      CHECK(cut.length() == length);
      CHECK(cut.ranks() == ranks);
      Index end = 0, sum = 0, most = 0;
      std::vector<Index> local(static_cast<std::size_t>(ranks), 0);
      for (const mpi::SequencePiece& piece : cut.pieces()) {
        CHECK(piece.begin == end);
        CHECK(piece.begin % 512 == 0);
        CHECK(piece.size() > 0);
        CHECK(piece.local == local[static_cast<std::size_t>(piece.rank)]);
        local[static_cast<std::size_t>(piece.rank)] += piece.size();
        end = piece.end;
      }
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(cut.length_of(rank) == local[static_cast<std::size_t>(rank)]);
        sum += cut.length_of(rank);
        most = std::max(most, cut.length_of(rank));
      }
      CHECK(sum == length);
      CHECK(most <= (length / 512 / ranks + 9) * 512);
    }
  }
  constexpr Index longest = Index{1} << 62;
  CHECK(mpi::SequenceCut::contiguous(longest, 1000).length() == longest);
  CHECK(mpi::SequenceCut::cyclic(longest, 1000).length() == longest);
  CHECK_THROWS_WITH(mpi::SequenceCut(2, {{0, 0, 100, 0}, {1, 100, 200, 0}}),
                    "SequenceCut: pieces[1] begins at 100, which is not a multiple of 512");
  CHECK_THROWS_WITH(mpi::SequenceCut(2, {{0, 0, 512, 0}, {1, 600, 700, 0}}),
                    "SequenceCut: pieces[1] begins at 600, the one before ends at 512");
  CHECK_THROWS_WITH(mpi::SequenceCut(2, {{2, 0, 512, 0}}), "SequenceCut: pieces[0] has rank 2, there are 2");
  CHECK_THROWS_WITH(mpi::SequenceCut::contiguous(-1, 2), "SequenceCut: length is -1");
  CHECK_THROWS_WITH(mpi::SequenceCut::cyclic(10, 0), "SequenceCut: ranks is 0, the minimum is 1");
}

}  // namespace
}  // namespace headlane::test
