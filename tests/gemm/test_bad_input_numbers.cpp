// PackedMatrix::from_numbers and unpack with numbers: every argument wrong in every way.
#include "support/illegal.hpp"

#include <headlane/packed_matrix.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

namespace headlane::test {
namespace {

const char* const function = "PackedMatrix::from_numbers";

struct Arguments {
  std::vector<bfloat16> bfloats = std::vector<bfloat16>(64 * 5);
  std::vector<float16> halves = std::vector<float16>(64 * 5);
  std::vector<std::int8_t> numbers = std::vector<std::int8_t>(64 * 5);
  std::vector<float> scales = std::vector<float>(5, 1.0f);
  std::vector<float16> group_scales = std::vector<float16>(2 * 5);
  View<const bfloat16, 2> b{bfloats.data(), {64, 5}};
  View<const float16, 2> h{halves.data(), {64, 5}};
  View<const std::int8_t, 2> q{numbers.data(), {64, 5}};
  View<const float, 1> s{scales.data(), {5}};
  View<const float16, 2> g{group_scales.data(), {2, 5}};
};

/// Errors of a view that a sole argument can have, and one of bytes: another size is as good, and
/// any address is aligned.
template <class T, int Rank>
std::vector<Wrong<T, Rank>> wrong_alone(const View<T, Rank>& view, bool sizes, bool alignment) {
  std::vector<Wrong<T, Rank>> wrong = wrong_views(view);
  std::erase_if(wrong, [&](const Wrong<T, Rank>& one) {
    return (!sizes && (one.what.starts_with("one more") || one.what.starts_with("one less"))) ||
           (!alignment && one.what == "misaligned");
  });
  return wrong;
}

TEST_CASE("from_numbers: views and sizes that are wrong") {
  const Arguments in;
  std::vector<Illegal> calls;
  add(calls, function, "numbers", wrong_alone(in.b, false, true),
      [](const auto& b) { static_cast<void>(PackedMatrix::from_numbers(b)); });
  add(calls, function, "numbers", wrong_alone(in.h, false, true),
      [](const auto& b) { static_cast<void>(PackedMatrix::from_numbers(b)); });
  const auto of_columns = [&in](const auto& q) { static_cast<void>(PackedMatrix::from_numbers(q, in.s)); };
  std::vector<Wrong<const std::int8_t, 2>> wrong = wrong_alone(in.q, true, false);
  std::erase_if(wrong,
                [](const auto& one) { return one.what == "one more on axis 0" || one.what == "one less on axis 0"; });
  add(calls, function, "numbers", wrong, of_columns);
  add(calls, function, "scales", wrong_alone(in.s, true, true),
      [&in](const auto& s) { static_cast<void>(PackedMatrix::from_numbers(in.q, s)); });
  for (const DType type : {DType::int8_group32, DType::int4_group32}) {
    std::vector<Wrong<const std::int8_t, 2>> grouped = wrong_alone(in.q, true, false);
    std::erase_if(grouped, [](const auto& one) { return one.what == "one less on axis 0"; });
    add(calls, function, "numbers", grouped,
        [&in, type](const auto& q) { static_cast<void>(PackedMatrix::from_numbers(q, in.g, type)); });
    add(calls, function, "scales", wrong_alone(in.g, true, true),
        [&in, type](const auto& g) { static_cast<void>(PackedMatrix::from_numbers(in.q, g, type)); });
  }
  check_illegal(calls, [] { return true; });
}

template <class Call>
void expect(const char* message, const Call& call) {
  CHECK_THROWS_WITH_AS(static_cast<void>(call()), message, std::invalid_argument);
}

TEST_CASE("from_numbers: shapes that do not fit, types, threads") {
  const Arguments in;
  const auto group = DType::int8_group32;
  expect("PackedMatrix::from_numbers: numbers has 5 columns, scales has 4 elements",
         [&] { return PackedMatrix::from_numbers(in.q, in.s.slice(0, 0, 4)); });
  expect("PackedMatrix::from_numbers: numbers has 5 columns, scales has 4 columns",
         [&] { return PackedMatrix::from_numbers(in.q, in.g.slice(1, 0, 4), group); });
  expect("PackedMatrix::from_numbers: scales has 1 rows, numbers of shape [64, 5] has 2 groups of 32 rows",
         [&] { return PackedMatrix::from_numbers(in.q, in.g.slice(0, 0, 1), group); });
  expect("PackedMatrix::from_numbers: scales has 2 rows, numbers of shape [32, 5] has 1 groups of 32 rows",
         [&] { return PackedMatrix::from_numbers(in.q.slice(0, 0, 32), in.g, group); });
  expect("PackedMatrix::from_numbers: type is int8, it may be int8_group32 or int4_group32",
         [&] { return PackedMatrix::from_numbers(in.q, in.g, DType::int8); });
  expect("PackedMatrix::from_numbers: type is 9, which is none of float32 … int4_group32",
         [&] { return PackedMatrix::from_numbers(in.q, in.g, static_cast<DType>(9)); });
  const NumbersOptions less{.num_threads = -1};
  const char* const threads = "PackedMatrix::from_numbers: num_threads is -1, the minimum is 0";
  expect(threads, [&] { return PackedMatrix::from_numbers(in.b, less); });
  expect(threads, [&] { return PackedMatrix::from_numbers(in.h, less); });
  expect(threads, [&] { return PackedMatrix::from_numbers(in.q, in.s, less); });
  expect(threads, [&] { return PackedMatrix::from_numbers(in.q, in.g, group, less); });
  const std::int8_t one = 1;
  const Index rows = Index{1} << 58;  // a broadcast
  expect(
      "PackedMatrix::from_numbers: numbers of shape [288230376151711744, 5] does not fit into memory: at most "
      "1152921504606846975 elements can be addressed, columns in whole panels of 32",
      [&] { return PackedMatrix::from_numbers(View<const std::int8_t, 2>(&one, {rows, 5}, {0, 0}), in.s); });
  CHECK_THROWS_AS(static_cast<void>(
                      PackedMatrix::from_numbers(View<const std::int8_t, 2>(&one, {Index{1} << 50, 5}, {0, 0}), in.s)),
                  std::bad_alloc);
}

TEST_CASE("from_numbers: scales that are not finite, or too large") {
  Arguments in;
  const auto of_columns = [&] { return PackedMatrix::from_numbers(in.q, in.s); };
  using Scale = std::pair<float, const char*>;
  for (const auto& [scale, text] :
       {Scale(infinity, "inf"), Scale(-infinity, "-inf"), Scale(nan, "nan"), Scale(-3e36f, "-3e+36")}) {
    in.scales[3] = scale;
    expect((std::string("PackedMatrix::from_numbers: scales[3] is ") + text + "; 127 times a scale must be finite")
               .c_str(),
           of_columns);
  }
  in.scales[3] = std::numeric_limits<float>::max() / 127.5f;
  CHECK(of_columns().bytes() > 0);
  for (const auto& [scale, text] : {Scale(infinity, "inf"), Scale(-infinity, "-inf")}) {
    in.group_scales[8] = float16(scale);
    expect((std::string("PackedMatrix::from_numbers: scales[1, 3] is ") + text + "; a scale must be finite").c_str(),
           [&] { return PackedMatrix::from_numbers(in.q, in.g, DType::int4_group32); });
  }
  in.group_scales[8] = float16(-65504.0f);
  CHECK(PackedMatrix::from_numbers(in.q, in.g, DType::int8_group32).bytes() > 0);
}

TEST_CASE("from_numbers: matrices without elements") {
  const View<const std::int8_t, 2> no_rows(nullptr, {0, 5}), no_columns(nullptr, {5, 0});
  const Arguments in;
  CHECK(PackedMatrix::from_numbers(no_rows, in.s).columns() == 5);
  CHECK(PackedMatrix::from_numbers(no_columns, View<const float, 1>(nullptr, {0})).rows() == 5);
  const View<const float16, 2> none(nullptr, {0, 5});
  CHECK(PackedMatrix::from_numbers(no_rows, none, DType::int8_group32).bytes() == 0);
  CHECK(PackedMatrix::from_numbers(none).type() == DType::float16);
  CHECK(PackedMatrix::from_numbers(View<const bfloat16, 2>(nullptr, {Index{1} << 62, 0})).bytes() == 0);
  std::array<float, 5> scales{1, 1, 1, 1, 1};
  PackedMatrix::from_numbers(no_rows, in.s)
      .unpack(View<std::int8_t, 2>(nullptr, {0, 5}), View<float, 2>(scales.data(), {1, 5}));
  CHECK(scales == std::array<float, 5>{});
}

TEST_CASE("unpack: numbers and scales that are wrong") {
  const Arguments in;
  const PackedMatrix columns = PackedMatrix::from_numbers(in.q, in.s),
                     groups = PackedMatrix::from_numbers(in.q, in.g, DType::int4_group32);
  Tensor<2> scales({2, 5});
  std::vector<std::int8_t> memory(64 * 5, 77);
  const View<std::int8_t, 2> q(memory.data(), {64, 5});
  const View<float, 2> s = scales.view, of_columns = s.slice(0, 0, 1);
  expect("PackedMatrix::unpack: numbers is [63, 5], the matrix is 64 x 5",
         [&] { return columns.unpack(q.slice(0, 0, 63), of_columns), 0; });
  expect("PackedMatrix::unpack: scales is [2, 5], the scales of the matrix are 1 x 5",
         [&] { return columns.unpack(q, s), 0; });
  expect("PackedMatrix::unpack: scales is [1, 5], the scales of the matrix are 2 x 5",
         [&] { return groups.unpack(q, of_columns), 0; });
  expect("PackedMatrix::unpack: scales is [2, 4], the scales of the matrix are 2 x 5",
         [&] { return groups.unpack(q, s.slice(1, 0, 4)), 0; });
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    const std::string message =
        std::string("PackedMatrix::unpack: the matrix is of ") + name_of(type) + ", it has no numbers and scales";
    const PackedMatrix other(View<const float, 2>(s), {.type = type});
    expect(message.c_str(), [&] { return other.unpack(q, s), 0; });
  }
  std::vector<Illegal> calls;
  std::vector<Wrong<std::int8_t, 2>> wrong = wrong_views(q);
  std::erase_if(wrong, [](const auto& one) { return one.what == "misaligned"; });
  wrong.push_back({"stride 0", with_stride(q, 0, 0), {"overlaps itself"}});
  wrong.push_back({"among the scales", {reinterpret_cast<std::int8_t*>(s.data), {64, 5}, {5, 1}}, {"overlaps"}});
  add(calls, "PackedMatrix::unpack", "numbers", wrong, [&](const auto& view) { groups.unpack(view, s); });
  add(calls, "PackedMatrix::unpack", "scales", wrong_outputs(s), [&](const auto& view) { groups.unpack(q, view); });
  check_illegal(calls, [&] { return all_sentinels(s) && memory == std::vector<std::int8_t>(64 * 5, 77); });
}

}  // namespace
}  // namespace headlane::test
