// PackedMatrix::unpack and unpack_columns: every argument wrong in every way.
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"

#include <headlane/packed_matrix.hpp>

namespace headlane::test {
namespace {

/// As wrong_outputs, of 16 bits.
template <class T>
std::vector<Wrong<T, 2>> wrong_halves(const View<T, 2>& good) {
  std::vector<Wrong<T, 2>> all = wrong_views(good);
  for (int axis = 0; axis < 2; ++axis)
    all.push_back({"stride 0 on axis " + std::to_string(axis), with_stride(good, axis, 0), {"overlap"}});
  return all;
}

struct Fixture {
  Tensor<2> elements{{40, 70}}, out{{40, 70}}, rows{{3, 40}};
  HalfTensor<bfloat16, 2> bfloats{{40, 70}}, bfloat_rows{{3, 40}};
  HalfTensor<float16, 2> halves{{40, 70}}, half_rows{{3, 40}};
  std::vector<Index> wanted{1, 69, 0};
  View<const Index, 1> columns{wanted.data(), {3}};
  PackedMatrix packed;

  Fixture() {
    for_each(elements.view, [](float& x) { x = 1; });
    packed = PackedMatrix(elements.view);
  }
  [[nodiscard]] bool untouched() const {
    return all_sentinels(out.view) && all_sentinels(rows.view) && untouched(bfloats) && untouched(bfloat_rows) &&
           untouched(halves) && untouched(half_rows);
  }

 private:
  template <class T>
  static bool untouched(const HalfTensor<T, 2>& tensor) {
    bool all = true;
    for_each(tensor.view, [&](const T& x) { all = all && x.bits == half_sentinel; });
    return all;
  }
};

TEST_CASE("unpack: an output that is wrong") {
  const Fixture f;
  std::vector<Illegal> calls;
  const auto unpack = [&f](const auto& view) { f.packed.unpack(view); };
  add(calls, "PackedMatrix::unpack", "out", wrong_outputs(f.out.view), unpack);
  add(calls, "PackedMatrix::unpack", "out", wrong_halves(f.bfloats.view), unpack);
  add(calls, "PackedMatrix::unpack", "out", wrong_halves(f.halves.view), unpack);
  add(calls, "PackedMatrix::unpack", "out",
      std::vector<Wrong<float, 2>>{{"transposed", f.out.view.transposed(), {"out is [70, 40], the matrix is 40 x 70"}}},
      unpack);
  const std::vector<std::string> threads{"PackedMatrix::unpack: num_threads is -1, the minimum is 0"};
  calls.push_back({"threads", [&f] { f.packed.unpack(f.out.view, -1); }, threads});
  calls.push_back({"threads, bfloat16", [&f] { f.packed.unpack(f.bfloats.view, -1); }, threads});
  calls.push_back({"threads, float16", [&f] { f.packed.unpack(f.halves.view, -1); }, threads});
  const PackedMatrix int8(f.elements.view, {.type = DType::int8});
  std::vector<std::int8_t> numbers(40 * 70);
  calls.push_back(
      {"threads, numbers", [&] { int8.unpack({numbers.data(), {40, 70}}, f.out.view.slice(0, 0, 1), -1); }, threads});
  check_illegal(calls, [&f] { return f.untouched(); });
}

TEST_CASE("unpack_columns: views that are wrong") {
  const Fixture f;
  std::vector<Illegal> calls;
  const char* const function = "PackedMatrix::unpack_columns";
  const auto unpack = [&f](const auto& view) { f.packed.unpack_columns(f.columns, view); };
  add(calls, function, "out", wrong_outputs(f.rows.view), unpack);
  add(calls, function, "out", wrong_halves(f.bfloat_rows.view), unpack);
  add(calls, function, "out", wrong_halves(f.half_rows.view), unpack);
  add(calls, function, "columns", wrong_views(f.columns),
      [&f](const auto& view) { f.packed.unpack_columns(view, f.rows.view); });
  add(calls, function, "out",
      std::vector<Wrong<float, 2>>{{"transposed",
                                    f.rows.view.transposed(),
                                    {"out is [40, 3], it must be 3 x 40: a row for each of the columns"}}},
      unpack);
  const std::vector<std::string> threads{"PackedMatrix::unpack_columns: num_threads is -1, the minimum is 0"};
  calls.push_back({"threads", [&f] { f.packed.unpack_columns(f.columns, f.rows.view, -1); }, threads});
  calls.push_back({"threads, bfloat16", [&f] { f.packed.unpack_columns(f.columns, f.bfloat_rows.view, -1); }, threads});
  calls.push_back({"threads, float16", [&f] { f.packed.unpack_columns(f.columns, f.half_rows.view, -1); }, threads});
  check_illegal(calls, [&f] { return f.untouched(); });
}

TEST_CASE("unpack_columns: a column that is none, at any position, and nothing is written") {
  Fixture f;
  std::vector<Illegal> calls;
  for (std::size_t i = 0; i < 3; ++i)
    for (const Index column : {Index{-1}, Index{70}, huge, -huge}) {
      std::vector<Index> wanted = f.wanted;
      wanted[i] = column;
      const std::vector<std::string> words{"PackedMatrix::unpack_columns: columns[" + std::to_string(i) + "] is " +
                                           std::to_string(column) + ", the matrix has 70 columns"};
      calls.push_back({"float32", [&f, wanted] { f.packed.unpack_columns({wanted.data(), {3}}, f.rows.view); }, words});
      calls.push_back(
          {"bfloat16", [&f, wanted] { f.packed.unpack_columns({wanted.data(), {3}}, f.bfloat_rows.view); }, words});
      calls.push_back(
          {"float16", [&f, wanted] { f.packed.unpack_columns({wanted.data(), {3}}, f.half_rows.view); }, words});
    }
  const PackedMatrix none, no_rows(View<const float, 2>(nullptr, {0, 5}));
  const Index five = 5;
  calls.push_back({"no columns",
                   [&] { none.unpack_columns({&five, {1}}, View<float, 2>(nullptr, {1, 0})); },
                   {"columns[0] is 5, the matrix has 0 columns"}});
  calls.push_back({"no rows",
                   [&] { no_rows.unpack_columns({&five, {1}}, View<float, 2>(nullptr, {1, 0})); },
                   {"columns[0] is 5, the matrix has 5 columns"}});
  check_illegal(calls, [&f] { return f.untouched(); });
}

TEST_CASE("unpack_columns: out among the columns") {
  const Fixture f;
  std::vector<Index> memory(200, 1);
  auto* const floats = reinterpret_cast<float*>(memory.data());
  CHECK_THROWS_WITH_AS(f.packed.unpack_columns({memory.data() + 30, {3}}, View<float, 2>(floats, {3, 40})),
                       doctest::Contains("PackedMatrix::unpack_columns: out of shape [3, 40] overlaps columns"),
                       std::invalid_argument);
  CHECK(memory == std::vector<Index>(200, 1));
  f.packed.unpack_columns({memory.data() + 60, {3}}, View<float, 2>(floats, {3, 40}));
  CHECK(floats[119] == 1);
}

}  // namespace
}  // namespace headlane::test
