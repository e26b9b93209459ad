// KvCache: its sequences, free numbers and page tables, from which a cache can be rebuilt.
#include <doctest/doctest.h>
#include <headlane/kv_cache.hpp>

#include <vector>

namespace headlane::test {
namespace {

using Numbers = std::vector<Index>;

void append(KvCache& cache, Index sequence, Index tokens) {
  const std::vector<float> data(static_cast<std::size_t>(tokens * 4));
  const View<const float, 3> view(data.data(), {1, tokens, 4});
  cache.append(sequence, view, view);
}

TEST_CASE("KvCache: which sequences there are, and which numbers come next") {
  KvCache cache(1, 4, 4, {.page_size = 32, .max_pages = 9});
  CHECK(cache.max_pages() == 9);
  CHECK(cache.sequences().empty());
  CHECK(cache.free_numbers().empty());
  for (Index i = 0; i < 4; ++i) CHECK(cache.add() == i);
  cache.remove(2);
  cache.remove(0);
  CHECK(cache.sequences() == Numbers{1, 3});
  CHECK(cache.free_numbers() == Numbers{0, 2});
  CHECK(cache.has(3));
  for (const Index none : {-1, 0, 2, 4, 1000}) CHECK_FALSE(cache.has(none));
  CHECK(cache.add() == 0);
  CHECK(cache.add() == 2);
  CHECK(cache.add() == 4);
  CHECK(cache.free_numbers().empty());
}

TEST_CASE("KvCache: forks have the same page numbers until one of them is appended to") {
  KvCache cache(1, 4, 4, {.page_size = 32});
  const Index a = cache.add();
  CHECK(cache.page_table(a).empty());
  append(cache, a, 80);
  const Numbers pages = cache.page_table(a);
  REQUIRE(pages.size() == 3);
  const Index b = cache.fork(a), c = cache.fork(a, 40);
  CHECK(cache.page_table(b) == pages);
  CHECK(cache.page_table(c) == Numbers{pages[0], pages[1]});
  append(cache, b, 1);
  CHECK(cache.page_table(a) == pages);
  CHECK(cache.page_table(b)[1] == pages[1]);
  CHECK(cache.page_table(b)[2] != pages[2]);
  CHECK_THROWS_WITH_AS((void)cache.page_table(7), doctest::Contains("KvCache::page_table: sequence 7"),
                       std::invalid_argument);
}

}  // namespace
}  // namespace headlane::test
