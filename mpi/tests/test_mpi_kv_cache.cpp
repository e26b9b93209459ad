// A cache that is cut over ranks, which are threads here: bit-identical to one of a single process.
#include "cache_case.hpp"
#include "support/allocation_count.hpp"
#include "support/scope.hpp"
#include "thread_ranks.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace headlane::test {
namespace {

TEST_CASE("mpi::KvCache: random calls have the bits of a cache of one process") {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (std::uint64_t seed = 0; seed < (slow_isa() ? 1 : 5); ++seed) {
      CAPTURE(seed);
      CAPTURE(ranks);
      CHECK_NOTHROW(
          run_transports(ranks, [&](ThreadTransport& t) { check_cache(t, 100 * seed + 7, slow_isa() ? 5 : 15); }));
    }
}

TEST_CASE("mpi::KvCache: blocks go to the ranks evenly, memory too") {
  const AttentionSizes s{.q_heads = 2, .kv_heads = 2, .q_length = 1, .head_dim = 8, .value_dim = 8};
  for (const int ranks : {2, 3, 8})
    CHECK_NOTHROW(run_transports(ranks, [&](ThreadTransport& t) {
      CachePair caches(t, s, {});
      Random random(1);
      caches.add();
      caches.append(0, 16 * 512, random, false);  // a prompt: runs of blocks
      const Index pieces = std::ssize(caches.cut().cut(0).pieces());
      for (int step = 0; step < 3 * 512; ++step) caches.append(0, 1, random, false);
      const mpi::SequenceCut cut = caches.cut().cut(0);
      Index least = cut.length(), most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        least = std::min(least, cut.length_of(rank));
        most = std::max(most, cut.length_of(rank));
      }
      if (pieces != ranks) throw std::runtime_error("the prompt is not one run for each rank");
      if (most - least > 512) throw std::runtime_error("the ranks have unequal numbers of keys");
      const std::size_t of_key = sizeof(float) * 2 * (8 + 32);
      if (caches.cut().bytes() > static_cast<std::size_t>(cut.length_of(t.rank()) + 512) * of_key)
        throw std::runtime_error("a rank has more memory than its keys take");
      caches.check({0}, 5, 1);
    }));
}

TEST_CASE("mpi::attention over a cache: many short sequences, which are all on rank 0, take 32 MiB of blocks") {
  constexpr Index value_dim = 510, queries = 31;
  run_transports(2, [&](ThreadTransport& t) {
    mpi::KvCache cache(t, 1, 1, value_dim, {.page_size = 32});
    Random random(1);
    const Tensor<3> k = random_tensor<3>({1, 2, 1}, random), v = random_tensor<3>({1, 2, value_dim}, random);
    std::vector<Index> all;
    for (int i = 0; i < 64; ++i) {
      all.push_back(cache.add());
      cache.append(all.back(), k.view, v.view);
    }
    const Tensor<4> q = random_tensor<4>({64, 16, queries, 1}, random), out({64, 16, queries, value_dim});
    most_message_bytes = message_bytes;
    mpi::attention(t, q.view, cache, all, out.view, {.num_threads = 1});
    // Blocks, results of runs of blocks, and end results.
    CHECK(most_message_bytes <= std::size_t{3 * 33} << 20);
  });
}

TEST_CASE("mpi::KvCache: bad input") {
  run_transports(1, [&](ThreadTransport& t) {
    mpi::KvCache cache(t, 2, 8, 8);
    const Index sequence = cache.add();
    const Tensor<3> k({2, 5, 8}), v({2, 4, 8});
    CHECK_THROWS_WITH(mpi::KvCache(t, 2, 8, 8, {.page_size = 1024}),
                      "mpi::KvCache::KvCache: page_size is 1024, the maximum is 512");
    CHECK_THROWS_WITH(cache.append(7, k.view, k.view),
                      "mpi::KvCache::append: sequence is 7, which the cache does not have");
    CHECK_THROWS_WITH(cache.append(sequence, k.view, v.view), "mpi::KvCache::append: k has 5 tokens, v has 4");
    CHECK_THROWS_WITH(cache.append(sequence, k.view, k.view, mpi::SequenceCut::contiguous(4, 1)),
                      "mpi::KvCache::append: k has 5 tokens and v 5, the cut gives rank 0 4");
    CHECK_THROWS_WITH(cache.append(sequence, k.view, k.view, mpi::SequenceCut::contiguous(5, 2)),
                      "mpi::KvCache::append: the cut is for 2 ranks, there are 1");
    cache.append(sequence, k.view, k.view);
    CHECK_THROWS_WITH(cache.append(sequence, k.view, k.view, mpi::SequenceCut::contiguous(5, 1)),
                      "mpi::KvCache::append: the sequence has 5 keys, not a multiple of 512");
    CHECK_THROWS_WITH(cache.truncate(sequence, 6), "mpi::KvCache::truncate: length is 6, the sequence has 5 keys");
    CHECK_THROWS_WITH((void)cache.fork(sequence, 6), "mpi::KvCache::fork: length is 6, the sequence has 5 keys");
    mpi::KvCache other = std::move(cache);
    CHECK(other.length(sequence) == 5);
    // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): it is refused
    CHECK_THROWS_WITH((void)cache.add(), "mpi::KvCache::add: the cache was moved from");
    // An append that fails leaves the cache as it was.
    mpi::KvCache numbers(t, 1, 8, 8, {.type = DType::int8});
    const Index one = numbers.add();
    Random random(1);
    const Tensor<3> good = random_tensor<3>({1, 1000, 8}, random);
    numbers.append(one, good.view, good.view);
    const float number = std::exchange(good.view(0, 700, 3), infinity);
    CHECK_THROWS_AS(numbers.append(one, good.view, good.view), std::invalid_argument);
    CHECK(numbers.length(one) == 1000);
    good.view(0, 700, 3) = number;
    numbers.append(one, good.view, good.view);
    CHECK(numbers.length(one) == 2000);
    KvCache whole(1, 8, 8, {.type = DType::int8});
    const Index all = whole.add();
    const Tensor<4> q = random_tensor<4>({1, 1, 1, 8}, random), out(q.view.shape), expected(q.view.shape);
    whole.append(all, good.view, good.view);
    whole.append(all, good.view, good.view);
    mpi::attention(t, q.view, numbers, {&one, 1}, out.view);
    headlane::attention(q.view, whole, {&all, 1}, expected.view);
    CHECK(first_difference(out.view, expected.view) == "");
  });
}

#if !defined(HEADLANE_TEST_SANITIZED)  // sanitizers bring their own operator new
TEST_CASE("mpi::KvCache: add, fork and remove without memory change nothing") {
  run_transports(1, [&](ThreadTransport& t) {
    mpi::KvCache cache(t, 1, 8, 8, {.page_size = 512});
    const Tensor<3> k({1, 20 * 512, 8});
    for (const Index number : {0, 1, 2}) {
      CHECK(cache.add() == number);
      cache.append(number, k.view, k.view);
    }
    const std::size_t bytes = cache.bytes();
    const auto fails_until_it_does_not = [](const auto& call) {
      bool failed = true;
      long n = 0;
      for (; failed && n < 200; ++n) {
        until_failure = n;
        try {
          call();
          failed = false;
        } catch (const std::bad_alloc&) {
        }
        until_failure = -1;
      }
      CHECK(n > 1);
      CHECK_FALSE(failed);
    };
    fails_until_it_does_not([&] { cache.remove(1); });
    Index number = 0;
    fails_until_it_does_not([&] { number = cache.fork(2); });
    CHECK(number == 1);
    fails_until_it_does_not([&] { number = cache.add(); });
    CHECK(number == 3);
    // No page is held by what failed.
    for (const Index sequence : {1, 2}) cache.remove(sequence);
    cache.append(cache.add(), k.view, k.view);
    cache.append(number, k.view, k.view);
    CHECK(cache.bytes() == bytes);
  });
}
#endif

TEST_CASE("mpi::attention over a cache: what one rank refuses, all refuse") {
  std::vector<std::string> messages(2);
  run_transports(2, [&](ThreadTransport& t) {
    mpi::KvCache cache(t, 2, 8, 8);
    const Index sequence = cache.add();
    Random random(1);
    const Tensor<3> k = random_tensor<3>({2, 600, 8}, random);
    cache.append(sequence, k.view, k.view);
    const Tensor<4> q = random_tensor<4>({1, 2, 1, 8}, random), out(q.view.shape);
    const Index wrong = t.rank() == 1 ? 9 : sequence;
    try {
      mpi::attention(t, q.view, cache, {&wrong, 1}, out.view);
    } catch (const std::invalid_argument& error) {
      messages[static_cast<std::size_t>(t.rank())] = error.what();
    }
  });
  CHECK(messages[0] == messages[1]);
  CHECK(messages[0].find("rank 1 has an error") != std::string::npos);
  CHECK(messages[0].find("sequence is 9, which the cache does not have") != std::string::npos);
}

/// A cache of 2048 keys, and attention over it, which every rank has to refuse.
struct CacheOfRank {
  AttentionSizes s{.q_heads = 8, .kv_heads = 2, .head_dim = 8, .value_dim = 8};
  KvCacheOptions options = {};
  std::vector<Index> appended{2048};
  bool moved_from = false;

  void attend(ThreadTransport& t) const {
    mpi::KvCache cache(t, s.kv_heads, s.head_dim, s.value_dim, options);
    const Index sequence = cache.add();
    Random random(1);
    for (const Index tokens : appended) {
      const Tensor<3> k = random_tensor<3>({s.kv_heads, tokens, s.head_dim}, random),
                      v = random_tensor<3>({s.kv_heads, tokens, s.value_dim}, random);
      cache.append(sequence, k.view, v.view);
    }
    const mpi::KvCache other = moved_from ? std::move(cache) : mpi::KvCache(t, 1, 1, 1);
    const Tensor<4> q = random_tensor<4>({1, 8, 1, s.head_dim}, random), out({1, 8, 1, s.value_dim});
    mpi::attention(t, q.view, cache, {&sequence, 1}, out.view);  // NOLINT(bugprone-use-after-move): it is refused
    throw std::invalid_argument("it was not refused");
  }
};

TEST_CASE("mpi::attention over a cache: caches that differ between ranks") {
  std::vector<std::pair<CacheOfRank, std::string>> cases;
  const auto add = [&](const std::string& words) -> CacheOfRank& {
    return cases.emplace_back(CacheOfRank(), words).first;
  };
  add("rank 1 has bfloat16").options.type = DType::bfloat16;
  add("rank 1 has int8").options.type = DType::int8;
  add("rank 1 has 4 kv heads").s.kv_heads = 4;
  add("rank 1 has q 1 8 1 16, ").s.head_dim = 16;
  add("rank 1 has value_dim 5").s.value_dim = 5;
  add("rank 1 has sequences 0 of 2047 keys").appended = {2047};
  add("rank 1 has sequences 0 of 2048 keys in 4 runs").appended = {1024, 1024};
  add("rank 1 has an error, mpi::KvCache::attention: the cache was moved from").moved_from = true;
  for (const auto& [wrong, words] : cases)
    check_words(message_of_all([&](ThreadTransport& t) { (t.rank() == 1 ? wrong : CacheOfRank()).attend(t); }),
                {"mpi::attention: the ranks differ: ranks 0, 2 have ", words});
}

TEST_CASE("mpi::attention over a cache: the ranks of the transport are those of the cache") {
  std::vector<std::unique_ptr<mpi::KvCache>> caches(4);
  run_transports(4, [&](ThreadTransport& t) {
    caches[static_cast<std::size_t>(t.rank())] = std::make_unique<mpi::KvCache>(t, 2, 8, 8);
    (void)caches[static_cast<std::size_t>(t.rank())]->add();
  });
  const auto attend = [&](mpi::Transport& t, int cache) {
    const Tensor<4> q({1, 2, 1, 8}), out(q.view.shape);
    const Index sequence = 0;
    mpi::attention(t, q.view, *caches[static_cast<std::size_t>(cache)], {&sequence, 1}, out.view);
    throw std::invalid_argument("it was not refused");
  };
  check_words(message_of_all([&](ThreadTransport& t) { attend(t, t.rank()); }),
              {"the cache is cut over 4 ranks, the transport has 3"});
  std::vector<std::string> messages(4);
  run_transports(4, [&](ThreadTransport& t) {
    try {
      attend(t, t.rank() ^ (t.rank() < 2 ? 1 : 0));
    } catch (const std::invalid_argument& error) {
      messages[static_cast<std::size_t>(t.rank())] = error.what();
    }
  });
  check_words(messages[3], {"rank 0 has an error", "the cache is that of rank 1, in the transport this is rank 0",
                            "rank 1 has an error", "the cache is that of rank 0, in the transport this is rank 1"});
}

TEST_CASE("mpi::KvCache::append: all ranks refuse what its owner would refuse") {
  Random random(1);
  const auto tensor = [&](Index heads_of, Index columns_of) {
    return random_tensor<3>({heads_of, 5, columns_of}, random);
  };
  const Tensor<3> k = tensor(2, 8), v = tensor(2, 16), heads = tensor(3, 8), columns = tensor(2, 9), bad = tensor(2, 8);
  bad.view(1, 2, 3) = infinity;
  const View<const float, 3> null(nullptr, {2, 5, 8});
  struct Case {
    const char* words;
    View<const float, 3> k, v;
    DType type = DType::float32;
  };
  const Case cases[] = {
      {"append: k has 3 heads, kv_heads is 2", heads.view, v.view},
      {"append: k has 9 columns, head_dim is 8", columns.view, v.view},
      {"append: v has 8 columns, value_dim is 16", k.view, k.view},
      {"append: k has no data", null, v.view},
      {"append: k[1, 2, 3] is not finite; int8 has no such number", bad.view, v.view, DType::int8},
  };
  for (const Case& wrong : cases)
    for (const bool as_cut : {false, true}) {
      // Of its own keys, a rank knows nothing that another one has to refuse.
      if (as_cut && (wrong.type == DType::int8 || wrong.k.data == nullptr)) continue;
      const auto append = [&](ThreadTransport& t, mpi::KvCache& cache, Index sequence) {
        const Index own = mpi::SequenceCut::contiguous(5, 3).length_of(t.rank());
        if (!as_cut) cache.append(sequence, wrong.k, wrong.v);
        else
          cache.append(sequence, wrong.k.slice(1, 0, own), wrong.v.slice(1, 0, own),
                       mpi::SequenceCut::contiguous(5, 3));
      };
      const std::string message = message_of_all([&](ThreadTransport& t) {
        mpi::KvCache cache(t, 2, 8, 16, {.type = wrong.type});
        const Index sequence = cache.add();
        if (!as_cut) cache.append(sequence, k.view, v.view);
        std::string refused = "it was not refused";
        try {
          append(t, cache, sequence);
        } catch (const std::invalid_argument& error) {
          refused = error.what();
        }
        throw std::invalid_argument(refused + "; " + std::to_string(cache.length(sequence)) + " keys");
      });
      check_words(message, {std::string("mpi::KvCache::") + wrong.words, as_cut ? "; 0 keys" : "; 5 keys"});
    }
}

}  // namespace
}  // namespace headlane::test
