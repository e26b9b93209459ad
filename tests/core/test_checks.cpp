// The argument checks, each limit from both sides: interleaved operands, sizes that fit into
// memory, identical elements, positions, page sizes.
#include "core/check.hpp"
#include "support/illegal.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <set>

namespace headlane::test {

using namespace internal;
namespace {

bool throws(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

template <int Rank>
Operand of(const char* name, const View<const float, Rank>& view) {
  return Caller("f").operand(name, view);
}

TEST_CASE("check_no_overlap: columns of one buffer, every width and distance, against the elements") {
  std::vector<float> memory(256);
  Index apart = 0, interleaved = 0, overlapping = 0;
  for (Index pitch = 1; pitch <= 6; ++pitch)
    for (Index other_pitch : {pitch, 2 * pitch, pitch + 1})
      for (Index a_width = 1; a_width <= pitch; ++a_width)
        for (Index b_width = 1; b_width <= other_pitch; ++b_width)
          for (Index distance = -3 * pitch; distance <= 3 * pitch; ++distance)
            for (const bool reversed : {false, true}) {
              const View<const float, 2> a(memory.data() + 100, {3, a_width}, {pitch, 1});
              View<const float, 2> b(memory.data() + 100 + distance, {3, b_width}, {other_pitch, 1});
              if (reversed) b = {b.data + 2 * other_pitch, b.shape, {-other_pitch, 1}};
              std::set<const float*> elements;
              for_each(a, [&](const float& e) { elements.insert(&e); });
              bool shared = false;
              for_each(b, [&](const float& e) { shared = shared || elements.contains(&e); });
              const bool refused = throws([&] { check_no_overlap(of("a", a), of("b", b)); });
              CHECK_MESSAGE(refused == throws([&] { check_no_overlap(of("b", b), of("a", a)); }), "symmetric");
              // With one pitch the answer is exact, otherwise it may be too careful.
              const bool exact = other_pitch == pitch;
              CHECK_MESSAGE((exact ? refused == shared : refused || !shared), "pitch ", pitch, ", ", other_pitch,
                            ", widths ", a_width, ", ", b_width, ", distance ", distance);
              const bool ranges = std::abs(distance) < 2 * pitch;
              ++(shared ? overlapping : ranges ? interleaved : apart);
            }
  CHECK(apart > 100);
  CHECK(interleaved > 100);
  CHECK(overlapping > 100);
}

TEST_CASE("check_no_overlap: elements of different sizes are apart only if the ranges are") {
  std::vector<Index> memory(64);
  const View<const float, 1> floats(reinterpret_cast<const float*>(memory.data()), {8}, {4});
  const View<const Index, 1> between(memory.data() + 1, {8}, {2}), behind(memory.data() + 15, {8}, {2});
  const auto refused = [&](const View<const Index, 1>& numbers) {
    const Operand of_numbers = Caller("f").operand("numbers", numbers);
    const bool one_way = throws([&] { check_no_overlap(of("x", floats), of_numbers); });
    CHECK(one_way == throws([&] { check_no_overlap(of_numbers, of("x", floats)); }));
    return one_way;
  };
  CHECK(refused(between));
  CHECK(!refused(behind));
}

/// Elements that can be addressed of a type: as many, and as far from the first one, but no more.
template <class T>
void check_limits() {
  constexpr Index limit = std::numeric_limits<Index>::max() / static_cast<Index>(sizeof(T)) / 2;
  alignas(8) static const T one{};
  const auto refused = [&](Index size, Index stride, Index more = 1, Index more_stride = 0) {
    const View<const T, 2> view(&one, {size, more}, {stride, more_stride});
    return throws([&] { check_operand(Caller("f").operand("x", view)); });
  };
  // The number, of elements that are all the same.
  CHECK(!refused(limit, 0));
  CHECK(refused(limit + 1, 0));
  CHECK(!refused(limit / 2, 0, 2));
  CHECK(refused(limit / 2 + 1, 0, 2));
  CHECK(refused(Index{1} << 62, 0, 8));  // whose product is 0 modulo 2^64
  // The distance, both ways, and of both axes together.
  for (const Index sign : {1, -1}) {
    CHECK(!refused(2, sign * limit));
    CHECK(refused(2, sign * (limit + 1)));
    CHECK(!refused(2, sign * (limit - 5), 2, sign * 5));
    CHECK(refused(2, sign * (limit - 5), 2, sign * 6));
    CHECK(refused(2, sign * limit, 2, sign));
    CHECK(!refused(2, sign * limit, 2, -sign * limit));
    CHECK(refused(3, sign * (Index{1} << 62)));  // whose double is less than it
    const Index far = sign * (Index{1} << 62);   // four times that is 0 modulo 2^64
    const View<const T, 4> corners(&one, {2, 2, 2, 2}, {far, far, far, far});
    CHECK(throws([&] { check_operand(Caller("f").operand("x", corners)); }));
  }
}

TEST_CASE("check_operand: as many elements as can be addressed, of every type, and no more") {
  check_limits<float>();
  check_limits<bool>();
  check_limits<Index>();
  const float one = 1;
  CHECK(!throws([&] { check_operand(of("x", View<const float, 1>(&one, {1}))); }));
  CHECK(throws([&] { check_operand(of("x", View<const float, 1>(&one, {-1}))); }));
  CHECK(throws([&] { check_operand(of("x", View<const float, 1>(nullptr, {1}))); }));
  CHECK(!throws([&] { check_operand(of("x", View<const float, 1>(nullptr, {0}))); }));
  for (const std::uintptr_t shift : {1u, 2u, 3u}) {
    const auto* moved = reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(&one) + shift);
    CHECK(throws([&] { check_operand(of("x", View<const float, 1>(moved, {1}))); }));
  }
}

TEST_CASE("check_output: axes nest, or elements coincide") {
  std::vector<float> memory(64);
  for (Index inner = 1; inner <= 4; ++inner)
    for (Index rows = 1; rows <= 3; ++rows)
      for (Index stride = -6; stride <= 6; ++stride)
        for (const Index step : {1, 2}) {
          const View<const float, 2> view(memory.data() + 32, {rows, inner}, {stride, step});
          std::set<const float*> elements;
          for_each(view, [&](const float& e) { elements.insert(&e); });
          const bool distinct = std::ssize(elements) == rows * inner;
          const bool refused = throws([&] { check_output(of("y", view)); });
          CHECK(
              (refused || distinct));  // strides that do not nest, as 2 and 3, are refused though no elements coincide
          const Index reach = (inner - 1) * step;
          if (rows == 1 || inner == 1) CHECK(refused == !distinct);
          else if (std::abs(stride) >= step) CHECK(refused == (std::abs(stride) <= reach));
        }
}

TEST_CASE("check_output: the message says how far the axes within reach") {
  const float one = 1;
  const View<const float, 3> view(&one, {2, 3, 4}, {90, 6, 2});
  CHECK_THROWS_WITH_AS(
      check_output(of("y", view)),
      "f: y of shape [2, 3, 4] overlaps itself: axis 1 has stride 6, the axes within it span 7 elements",
      std::invalid_argument);
}

TEST_CASE("check_elementwise: the same elements whatever the strides of axes of one element") {
  std::vector<float> memory(64);
  const auto refused = [&](const View<const float, 3>& x, const View<const float, 3>& y) {
    return throws([&] { check_elementwise(of("x", x), of("y", y)); });
  };
  float* p = memory.data();
  const View<const float, 3> x(p, {2, 1, 5}, {5, 5, 1});
  for (const Index stride : {Index{0}, Index{1}, Index{-3}, huge, std::numeric_limits<Index>::min()})
    CHECK(!refused(x, {p, {2, 1, 5}, {5, stride, 1}}));
  CHECK(refused(x, {p, {2, 1, 5}, {6, 5, 1}}));  // an axis of two
  CHECK(refused({p, {2, 1, 5}, {6, 5, 1}}, x));
  CHECK(refused(x, {p + 1, {2, 1, 5}, {5, 5, 1}}));
  CHECK(!refused(x, {p + 10, {2, 1, 5}, {5, 5, 1}}));
  CHECK(refused(x, {p + 9, {2, 1, 5}, {5, 5, 1}}));
  CHECK(refused(x, {p + 10, {2, 1, 4}, {5, 5, 1}}));
  const View<const float, 3> y(p + 1, {2, 1, 5});
  CHECK_THROWS_WITH_AS(check_elementwise(of("x", x), of("y", y)),
                       "f: y of shape [2, 1, 5] overlaps x of shape [2, 1, 5]", std::invalid_argument);
}

TEST_CASE("check_elementwise: of 1 to 8 axes, both of as many") {
  const float one = 1;
  const auto message = [&](int rank_x, int rank_y) -> std::string {
    AnyView<const float> x, y;
    x.data = y.data = &one;
    x.shape.fill(1), y.shape.fill(1);
    x.rank = rank_x, y.rank = rank_y;
    try {
      check_elementwise(Caller("f").operand("x", x), Caller("f").operand("y", y));
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  for (int rank = 1; rank <= max_rank; ++rank) CHECK(message(rank, rank).empty());
  for (const int rank : {-1, 0, max_rank + 1, 100})
    CHECK(message(rank, rank) ==
          "f: x has rank " + std::to_string(rank) + ", y has rank " + std::to_string(rank) + ", it may be 1 to 8");
  CHECK(message(2, 3) == "f: x has rank 2, y has rank 3, it may be 1 to 8");
  CHECK(message(3, 2) == "f: x has rank 3, y has rank 2, it may be 1 to 8");
}

TEST_CASE("check_threads: from 0 on") {
  CHECK(!throws([] { check_threads("f", 0); }));
  CHECK(!throws([] { check_threads("f", 1); }));
  CHECK(throws([] { check_threads("f", -1); }));
}

TEST_CASE("rotary_embedding: positions up to 2^36 both ways, and no further, whether given for elements or for rows") {
  constexpr Index most = Index{1} << 36, rows = 5;
  std::vector<float> memory(2 * rows * 4, 1.0f);
  const View<float, 4> x(memory.data(), {2, 1, rows, 4});
  const auto refused = [&](Index offset, const AnyView<const Index>& positions) {
    return throws([&] { rotary_embedding(x, x, {.offset = offset, .positions = positions}); });
  };
  CHECK(!refused(most - rows + 1, {}));
  CHECK(refused(most - rows + 2, {}));
  CHECK(!refused(-most, {}));
  CHECK(refused(-most - 1, {}));
  for (const Index offset : {Index{0}, Index{1000}, Index{-1000}}) {
    const auto with = [&](bool of_rows, Index position) {
      std::vector<Index> positions(of_rows ? 2 * rows : 2, 0);
      positions.back() = position;
      const Index* data = positions.data();
      const AnyView<const Index> all = of_rows ? AnyView<const Index>(View<const Index, 2>(data, {2, rows}))
                                               : AnyView<const Index>(View<const Index, 1>(data, {2}));
      return refused(offset, all);
    };
    const Index up = std::min(most, most - offset), down = std::max(-most, -most - offset);
    CHECK(!with(true, up));
    CHECK(with(true, up + 1));
    CHECK(!with(true, down));
    CHECK(with(true, down - 1));
    const Index of_element = std::min(most, most - offset - rows + 1);  // whose rows follow it
    CHECK(!with(false, of_element));
    if (of_element < most) CHECK(with(false, of_element + 1));
    CHECK(!with(false, down));
    CHECK(with(false, down - 1));
  }
}

TEST_CASE("KvCache: pages of as many elements as can be addressed, and no more") {
  constexpr Index limit = std::numeric_limits<Index>::max() / 4 / 2;
  Index accepted = 0;
  for (const Index page_size : {Index{32}, Index{128}, Index{512}, Index{512} << 20})
    for (const Index dim : {1, 32, 33, 512})
      for (const Index value_dim : {1, 32, 33, 512}) {
        const Index of_head = page_size * (dim + (value_dim + 31) / 32 * 32), most = limit / of_head;
        const KvCache cache(most, dim, value_dim, {.page_size = page_size});
        CHECK(cache.page_bytes() == static_cast<std::size_t>(most * of_head) * 4);
        ++accepted;
        for (const Index heads : {most + 1, 2 * most, Index{1} << 43, Index{1} << 58, Index{1} << 59, huge}) {
          if (heads <= most) continue;
          CHECK_MESSAGE(throws([&] { const KvCache none(heads, dim, value_dim, {.page_size = page_size}); }), heads);
        }
      }
  CHECK(accepted == 64);
}

}  // namespace
}  // namespace headlane::test
