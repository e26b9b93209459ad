// Element-wise and row-wise operations without products: norms, GELU, positions. They are bound by
// memory, so they are compared with a copy of as many bytes.
#include "buffer.hpp"
#include "cases.hpp"
#include "machine.hpp"

#include <headlane/activation.hpp>
#include <headlane/norm.hpp>
#include <headlane/position.hpp>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace bench {

namespace {

using headlane::View;

constexpr Index rotary_length = 2048;

struct ElementsData {
  ElementsData(Index size, Index columns) : x(size, 1, 4.0f), y(size), weight(columns, 2), bias(columns, 3) {}
  Buffer x, y, weight, bias;
};

using Data = std::shared_ptr<ElementsData>;
using Calls = std::pair<std::function<void()>, std::function<void(int threads)>>;  // the library's, the naive loops'

// make(data, x, y): the calls that read x and write y, rows × columns each.
template <class Make>
Case elements_case(const std::string& op, const std::string& size, Index rows, Index columns, double flops, bool quick,
                   const Make& make) {
  const double elements = static_cast<double>(rows) * static_cast<double>(columns);
  const auto prepare = [=] {
    const auto data = std::make_shared<ElementsData>(rows * columns, columns);
    auto [library, naive] = make(data, View<const float, 2>(data->x.data(), {rows, columns}),
                                 View<float, 2>(data->y.data(), {rows, columns}));
    return Work{.library = std::move(library),
                .naive = std::move(naive),
                .limit = [data](std::string_view, int threads) { return copied_elements(data->x, data->y, threads); },
                .output = data->y.values()};
  };
  return {.op = op, .size = size, .amount = elements, .flops = flops * elements, .quick = quick, .prepare = prepare};
}

std::string shape_name(Index rows, Index columns) { return std::to_string(rows) + "x" + std::to_string(columns); }

Case norm_case(Index rows, Index columns, bool rms, bool quick = false) {
  const auto calls = [rms, rows, columns](const Data& data, View<const float, 2> x, View<float, 2> y) -> Calls {
    const View<const float, 1> weight(data->weight.data(), {columns});
    const View<const float, 1> bias(data->bias.data(), {columns});
    const auto naive = [=](int threads) {
      naive_norm(x.data, weight.data, rms ? nullptr : bias.data, y.data, rows, columns, threads);
    };
    if (rms) return {[=] { headlane::rms_norm(x, y, {.weight = weight}); }, naive};
    return {[=] { headlane::layer_norm(x, y, {.weight = weight, .bias = bias}); }, naive};
  };
  return elements_case("norm", (rms ? "rms-" : "layer-") + shape_name(rows, columns), rows, columns, 10, quick, calls);
}

Case gelu_case(Index rows, Index columns, bool quick = false) {
  const auto calls = [rows, columns](const Data&, View<const float, 2> x, View<float, 2> y) -> Calls {
    return {[=] { headlane::activate(x, y, headlane::Activation::gelu); },
            [=](int threads) { naive_gelu(x.data, y.data, rows * columns, threads); }};
  };
  return elements_case("activation", "gelu-" + shape_name(rows, columns), rows, columns, 30, quick, calls);
}

// The position encoding, written without reading anything or added to x.
Case sinusoidal_case(Index rows, Index columns, bool add, bool quick = false) {
  const auto calls = [=](const Data&, View<const float, 2> x, View<float, 2> y) -> Calls {
    const auto naive = [=](int threads) { naive_sinusoidal(add ? x.data : nullptr, y.data, rows, columns, threads); };
    if (add) return {[=] { headlane::add_sinusoidal_encoding(x, y); }, naive};
    return {[=] { headlane::sinusoidal_encoding(y); }, naive};
  };
  return elements_case("position", (add ? "add-" : "sinus-") + shape_name(rows, columns), rows, columns, 20, quick,
                       calls);
}

Case rotary_case(bool quick = false) {
  const auto calls = [](const Data&, View<const float, 2> x, View<float, 2> y) -> Calls {
    const std::array<Index, 4> shape{1, heads, rotary_length, head_dim};
    return {[=] { headlane::rotary_embedding({x.data, shape}, {y.data, shape}); },
            [=](int threads) { naive_rotary(x.data, y.data, heads, rotary_length, threads); }};
  };
  return elements_case("position", "rotary-" + std::to_string(heads) + "x" + shape_name(rotary_length, head_dim),
                       heads * rotary_length, head_dim, 20, quick, calls);
}

}  // namespace

std::vector<Case> norm_cases() {
  return {norm_case(2048, 512, false, true), norm_case(2048, 512, true, true), norm_case(512, 4096, false),
          norm_case(512, 4096, true)};
}

std::vector<Case> activation_cases() { return {gelu_case(2048, 512, true), gelu_case(2048, 2048)}; }

std::vector<Case> position_cases() {
  return {sinusoidal_case(2048, 512, false, true), sinusoidal_case(2048, 512, true, true), rotary_case(true)};
}

}  // namespace bench
