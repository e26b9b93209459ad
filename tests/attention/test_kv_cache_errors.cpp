// KvCache: illegal calls and failing allocations leave it unchanged; memory that must not be
// allocated or touched.
#include "support/allocation_count.hpp"
#include "support/illegal.hpp"
#include "support/kv_model.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <algorithm>
#include <cstdint>

#include <sys/mman.h>

namespace headlane::test {
namespace {

TEST_CASE("KvCache: illegal sizes") {
  std::vector<Illegal> calls;
  const auto push = [&](Index heads, Index dim, Index value_dim, const KvCacheOptions& options, const char* name,
                        Index size) {
    calls.push_back({std::string("KvCache, ") + name,
                     [=] { const KvCache cache(heads, dim, value_dim, options); },
                     {"KvCache: ", name, std::to_string(size)}});
  };
  for (const Index wrong : {Index{-1}, -huge}) push(wrong, 4, 4, {}, "kv_heads", wrong);
  for (const Index wrong : {Index{0}, Index{-1}, Index{513}, huge, -huge}) {
    push(1, wrong, 4, {}, "head_dim", wrong);
    push(1, 4, wrong, {}, "value_dim", wrong);
  }
  for (const Index wrong : {Index{0}, Index{-512}, Index{1}, Index{16}, Index{96}, Index{384}, Index{513}, huge + 1})
    push(1, 4, 4, {.page_size = wrong}, "page_size", wrong);
  push(1, 4, 4, {.max_pages = -1}, "max_pages", -1);
  push(1, 4, 4, {.page_size = huge}, "page_size", huge);
  push(huge, 4, 4, {}, "kv_heads", huge);
  push(Index{1} << 30, 4, 4, {.page_size = Index{1} << 30}, "page_size", Index{1} << 30);
  check_illegal(calls, [] { return true; });
  for (const Index page_size : {32, 64, 128, 256, 512, 1024, 1536})
    CHECK(KvCache(1, 1, 1, {page_size, 5}).bytes() == 0);
}

TEST_CASE("KvCache: without kv heads it has the lengths of sequences") {
  KvCache cache(0, 4, 6, {.page_size = 32, .max_pages = 9});
  const std::array<Index, 2> both{cache.add(), cache.add()};
  const std::vector<float> none(1);
  const View<const float, 4> k(none.data(), {2, 0, 40, 4}), v(none.data(), {2, 0, 40, 6});
  const std::vector<Index> lengths{40, 7};
  cache.append(both, k, v, {lengths.data(), {2}});
  cache.append(both[1], k.select(0, 1).slice(1, 0, 3), v.select(0, 1).slice(1, 0, 3));
  const Index forked = cache.fork(both[0], 35);
  cache.append(forked, k.select(0, 1), v.select(0, 1));
  cache.truncate(both[0], 12);
  CHECK(cache.length(both[0]) == 12);
  CHECK(cache.length(both[1]) == 10);
  CHECK(cache.length(forked) == 75);
  CHECK(cache.kv_heads() == 0);
  CHECK(cache.page_bytes() == 0);
  CHECK(cache.bytes() == 0);
  attention({none.data(), {2, 0, 3, 4}}, cache, both, {const_cast<float*>(none.data()), {2, 0, 3, 6}});
  CHECK_THROWS_AS(cache.append(both[0], View<const float, 3>(none.data(), {1, 0, 4}), v.select(0, 0)),
                  std::invalid_argument);
  cache.remove(forked);
  CHECK(!cache.has(forked));
}

// A cache of two sequences of four keys, one that was removed, and its model.
struct Filled {
  KvCache cache{3, 5, 6, {.page_size = 32}};
  KvModel model{32};
  Index a = cache.add(), gone = cache.add(), b = cache.add();
  std::vector<Index> tokens{1, 2, 3, 4};
  Tokens x{cache, tokens};

  Filled() {
    cache.remove(gone);
    for (const Index s : {a, b}) {
      cache.append(s, x.k, x.v);
      model.sequences[s];
      model.append(s, tokens);
    }
  }
};

TEST_CASE("KvCache: illegal calls of append") {
  const char* const f = "KvCache::append";
  Filled filled;
  KvCache& cache = filled.cache;
  const Index a = filled.a, b = filled.b, gone = filled.gone;
  const View<const float, 3> k = filled.x.k, v = filled.x.v;
  const View<const float, 4> ks = k.broadcast(0, 2), vs = v.broadcast(0, 2);
  const std::array<Index, 2> both{a, b}, twice{b, b}, lost{a, gone};
  std::vector<Illegal> calls;
  add(calls, f, "k", wrong_views(k), [&](auto view) { cache.append(a, view, v); });
  add(calls, f, "v", wrong_views(v), [&](auto view) { cache.append(a, k, view); });
  add(calls, f, "k", wrong_views(ks), [&](auto view) { cache.append(both, view, vs); });
  add(calls, f, "v", wrong_views(vs), [&](auto view) { cache.append(both, ks, view); });
  calls.push_back({"named twice", [&] { cache.append(twice, ks, vs); }, {f, "twice", std::to_string(b)}});
  calls.push_back({"named twice, no tokens",
                   [&] { cache.append(twice, ks.slice(2, 0, 0), vs.slice(2, 0, 0)); },
                   {f, "twice", std::to_string(b)}});
  calls.push_back({"lost", [&] { cache.append(lost, ks, vs); }, {f, "sequence", std::to_string(gone)}});
  calls.push_back({"three", [&] { cache.append(both, k.broadcast(0, 3), v.broadcast(0, 3)); }, {f, "k", "3", "2"}});
  calls.push_back({"none", [&] { cache.append({}, ks, vs); }, {f, "k", "2", "0"}});
  for (const std::vector<Index>& wrong : {std::vector<Index>{4, 5}, {-1, 4}, {4}, {4, 4, 4}}) {
    const Index size = static_cast<Index>(wrong.size());
    const std::string says = size != 2      ? std::to_string(size)
                             : wrong[0] < 0 ? "lengths[0] is -1"
                                            : "lengths[1] is 5, k has 4";
    calls.push_back(
        {"lengths", [&, wrong, size] { cache.append(both, ks, vs, {wrong.data(), {size}}); }, {f, "lengths", says}});
  }
  const std::vector<Index> four(3, 4);
  const auto* misaligned = reinterpret_cast<const Index*>(reinterpret_cast<const char*>(four.data()) + 1);
  calls.push_back({"misaligned lengths",
                   [&] { cache.append(both, ks, vs, {misaligned, {2}}); },
                   {f, "lengths is misaligned: its address is 1 modulo 8"}});
  calls.push_back({"no tokens, heads",
                   [&] { cache.append(a, k.slice(0, 0, 2).slice(1, 0, 0), v.slice(1, 0, 0)); },
                   {f, "k", "2 heads", "3"}});
  for (const Index wrong : {gone, Index{3}, Index{-1}, huge, -huge})
    calls.push_back({"append", [&, wrong] { cache.append(wrong, k, v); }, {f, "sequence", std::to_string(wrong), "3"}});
  check_illegal(calls, [&] { return differences(cache, filled.model) == 0; });
  CHECK(illegal_calls() > 75);

  // Legal: nothing is appended.
  cache.append(a, View<const float, 3>(nullptr, {3, 0, 5}), {nullptr, {3, 0, 6}});
  cache.append({}, View<const float, 4>(nullptr, {0, 3, 4, 5}), {nullptr, {0, 3, 4, 6}});
  cache.append(both, View<const float, 4>(nullptr, {2, 3, 0, 5}), {nullptr, {2, 3, 0, 6}});
  CHECK(differences(cache, filled.model) == 0);
}

TEST_CASE("KvCache: illegal calls of fork, truncate, remove and length") {
  Filled filled;
  KvCache& cache = filled.cache;
  const Index a = filled.a;
  std::vector<Illegal> calls;
  for (const Index wrong : {filled.gone, Index{3}, Index{-1}, huge, -huge}) {
    const std::string number = std::to_string(wrong);
    calls.push_back({"fork", [&, wrong] { (void)cache.fork(wrong); }, {"KvCache::fork", "sequence", number}});
    calls.push_back({"truncate", [&, wrong] { cache.truncate(wrong, 0); }, {"KvCache::truncate", "sequence", number}});
    calls.push_back({"remove", [&, wrong] { cache.remove(wrong); }, {"KvCache::remove", "sequence", number}});
    calls.push_back({"length", [&, wrong] { (void)cache.length(wrong); }, {"KvCache::length", "sequence", number}});
  }
  for (const Index wrong : {Index{5}, Index{-2}, huge, -huge}) {
    const std::string number = std::to_string(wrong);
    calls.push_back(
        {"fork, length", [&, wrong] { (void)cache.fork(a, wrong); }, {"KvCache::fork", "length", number, "4"}});
    calls.push_back(
        {"truncate, length", [&, wrong] { cache.truncate(a, wrong); }, {"KvCache::truncate", "length", number, "4"}});
  }
  calls.push_back({"truncate, -1", [&] { cache.truncate(a, -1); }, {"KvCache::truncate", "length", "-1", "4"}});
  check_illegal(calls, [&] { return differences(cache, filled.model) == 0; });
  CHECK(illegal_calls() > 100);
}

#if !defined(HEADLANE_TEST_SANITIZED)  // they have an operator new of their own, and their memory is not the system's
TEST_CASE("KvCache: nothing is allocated while a page lasts") {
  KvCache cache(2, 16, 16, {.page_size = 64});
  const std::array<Index, 2> both{cache.add(), cache.add()};
  const Tokens x(cache, {1, 2, 3, 4});
  const View<const float, 4> k = x.k.broadcast(0, 2), v = x.v.broadcast(0, 2);
  cache.append(both, k, v);
  const long before = allocations;
  for (int i = 0; i < 7; ++i) {
    cache.append(both, k, v);
    cache.append(both[0], x.k, x.v);
  }
  CHECK(allocations == before);
  cache.append(both[0], x.k, x.v);  // the 16th
  CHECK(cache.length(both[0]) == 64);
  CHECK(allocations == before);
  for (int i = 0; i < 20; ++i) {  // pages that were used before
    cache.truncate(both[1], 0);
    for (int j = 0; j < 16; ++j) cache.append(both[1], x.k, x.v);
    cache.remove(both[1]);
    CHECK(cache.add() == both[1]);
  }
  CHECK(allocations <= before + 20);  // the table of a number that was removed
}

// Whether call() throws std::bad_alloc where every allocation fails.
template <class F>
bool fails_without_memory(const F& call) {
  no_memory = true;
  bool thrown = false;
  try {
    call();
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  no_memory = false;
  return thrown;
}

TEST_CASE("KvCache: calls that fail without memory change nothing") {
  KvCache cache(1, 4, 4, {.page_size = 32});
  KvModel model{32};
  const Index a = cache.add();
  const Index b = cache.fork(a);
  model.sequences[a];
  model.sequences[b];
  const std::vector<Index> tokens(40, 3);
  const Tokens x(cache, tokens);
  const std::array<Index, 2> both{a, b};
  cache.append(a, x.k, x.v);
  model.append(a, tokens);
  const std::size_t held = cache.bytes();
  const auto check = [&](const auto& call) {
    CHECK(fails_without_memory(call));
    CHECK(cache.bytes() == held);
    CHECK(differences(cache, model) == 0);
  };
  check([&] { cache.append(both, x.k.broadcast(0, 2), x.v.broadcast(0, 2)); });
  check([&] { static_cast<void>(cache.fork(a)); });
  check([&] { cache.append(b, x.k, x.v); });
  check([&] {
    for (int i = 0; i < 100; ++i) static_cast<void>(cache.add());
  });
  // A table of pages that does not fit into memory.
  const float zero = 0;
  KvCache stored(1, 4, 4, {.page_size = 32, .type = DType::int8});
  (void)stored.add();
  for (const int bits : {57, 50})
    for (KvCache* one : {&cache, &stored})
      CHECK_THROWS_AS(
          one->append(0, {&zero, {1, Index{1} << bits, 4}, {0, 0, 0}}, {&zero, {1, Index{1} << bits, 4}, {0, 0, 0}}),
          std::bad_alloc);
  CHECK(differences(cache, model) == 0);
}

// In one of these cases some of the new pages exist already: the records of pages grow by several.
TEST_CASE("KvCache: an append that needs several pages fails without memory and keeps none of them") {
  for (Index extra = 0; extra < 12; ++extra) {
    KvCache some(1, 1, 1, {.page_size = 32});
    const Index c = some.add(), d = some.add();
    const std::vector<Index> rows(static_cast<std::size_t>(32 * (30 + extra)), 1);
    const Tokens y(some, rows);
    some.append(c, y.k, y.v);
    some.truncate(c, 32);
    some.append(d, y.k.slice(1, 0, 32 * 20), y.v.slice(1, 0, 32 * 20));
    const std::size_t before = some.bytes();
    CHECK(fails_without_memory(
        [&] { some.append(c, y.k.slice(1, 32, 32 * (30 + extra)), y.v.slice(1, 32, 32 * (30 + extra))); }));
    CHECK(some.bytes() == before);
    CHECK(some.pages_in_use() == 21);
    CHECK(some.length(c) == 32);
  }
  // Pages of 2 TB, of which one cannot be allocated.
  KvCache large(1, 512, 512, {.page_size = Index{1} << 29});
  const Index c = large.add();
  const float zero = 0;
  const Index many = Index{1} << 44;
  CHECK_THROWS_AS(large.append(c, {&zero, {1, many, 512}, {0, 0, 0}}, {&zero, {1, many, 512}, {0, 0, 0}}),
                  std::bad_alloc);
  CHECK(large.bytes() == 0);
  CHECK(large.length(c) == 0);
}

/// Number of resident memory pages in the first page of a sequence.
Index resident_pages(const KvCache& cache, Index sequence) {
  constexpr std::size_t page = 4096;
  const auto address =
      reinterpret_cast<std::uintptr_t>(KvPages::of(cache, "test").head(sequence, 0, 0).memory) / page * page;
  std::vector<unsigned char> resident(cache.page_bytes() / page);
  REQUIRE(mincore(reinterpret_cast<void*>(address), resident.size() * page, resident.data()) == 0);
  return std::count_if(resident.begin(), resident.end(), [](unsigned char state) { return (state & 1) != 0; });
}

TEST_CASE("KvCache: of a long page no more is touched than is used") {
  KvCache cache(1, 64, 64, {.page_size = Index{512} * 4096});  // 1 GiB
  const Index a = cache.add();
  const Tokens x(cache, {1, 2, 3, 4});
  cache.append(a, x.k, x.v);
  const Index b = cache.fork(a);
  cache.append(b, x.k, x.v);
  CHECK(cache.bytes() == std::size_t{2} << 30);
  for (const Index sequence : {a, b}) {
    CHECK(resident_pages(cache, sequence) > 0);
    CHECK(resident_pages(cache, sequence) < 100);
  }
}
#endif

}  // namespace
}  // namespace headlane::test
