// Softmax over rows. It is bound by memory, so it is compared with a copy of the same shape.
#include "buffer.hpp"
#include "cases.hpp"
#include "machine.hpp"

#include <headlane/softmax.hpp>

namespace bench {

namespace {

struct SoftmaxData {
  explicit SoftmaxData(Index size) : x(size, 1, 8.0f), y(size) {}
  Buffer x, y;
};

Work prepare(Index rows, Index columns) {
  const auto data = std::make_shared<SoftmaxData>(rows * columns);
  const headlane::View<const float, 2> x(data->x.data(), {rows, columns});
  const headlane::View<float, 2> y(data->y.data(), {rows, columns});
  return {.library = [data, x, y] { headlane::softmax(x, y); },
          .naive = [data, rows,
                    columns](int threads) { naive_softmax(data->x.data(), data->y.data(), rows, columns, threads); },
          .limit = [data](std::string_view, int threads) { return copied_elements(data->x, data->y, threads); },
          .output = data->y.values()};
}

}  // namespace

Case softmax_case(Index rows, Index columns, bool quick) {
  const double elements = static_cast<double>(rows) * static_cast<double>(columns);
  return {.op = "softmax",
          .size = std::to_string(rows) + "x" + std::to_string(columns),
          .amount = elements,
          .flops = 30 * elements,  // about; 20 of them for the exponential
          .quick = quick,
          .prepare = [rows, columns] { return prepare(rows, columns); }};
}

std::vector<Case> softmax_cases() {
  return {softmax_case(512, 64), softmax_case(4096, 128), softmax_case(4096, 512, true), softmax_case(512, 4096, true),
          softmax_case(16384, 2048)};
}

}  // namespace bench
