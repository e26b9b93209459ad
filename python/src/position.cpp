// Sinusoidal and rotary embeddings, ALiBi's slopes.
#include <headlane/position.hpp>

#include "call.hpp"
#include "functions.hpp"

namespace headlane::python {
namespace {

SinusoidalOptions sinusoidal_options(const char* function, Index offset, double base, bool doubled, bool interleaved,
                                     float scale, std::optional<int> num_threads) {
  return {.offset = offset,
          .base = base,
          .exponent = doubled ? SinusoidalExponent::doubled : SinusoidalExponent::paper,
          .interleaved = interleaved,
          .scale = scale,
          .num_threads = threads_of(function, num_threads)};
}

/// All axes of an array of at most N, the missing ones first, of size 1.
template <class T, int N>
View<T, N> view_of_last(T* data, const Array& array) {
  View<T, N> view;
  view.data = data;
  for (int axis = 0; axis < N; ++axis) {
    const int own = axis - (N - array.rank());
    view.shape[static_cast<std::size_t>(axis)] = own < 0 ? 1 : array.size(own);
    view.strides[static_cast<std::size_t>(axis)] = own < 0 ? 0 : array.stride(own);
  }
  return view;
}

}  // namespace

nb::object sinusoidal_encoding_of(nb::handle out, Index offset, double base, bool doubled, bool interleaved,
                                  std::optional<int> num_threads) {
  constexpr const char* function = "sinusoidal_encoding";
  const Array y(function, "out", out, Access::write);
  y.require_float();
  require(y.rank() == 2, function, ": out has shape ", y, ", wanted [length, d_model]");
  const SinusoidalOptions options = sinusoidal_options(function, offset, base, doubled, interleaved, 1.0f, num_threads);
  compute(function, [&] { sinusoidal_encoding(view_of_last<float, 2>(y.floats(), y), options); });
  announce_write(out);
  return nb::borrow(out);
}

nb::object add_sinusoidal_encoding_of(nb::handle x, float scale, Index offset, double base, bool doubled,
                                      bool interleaved, nb::handle out, std::optional<int> num_threads) {
  constexpr const char* function = "add_sinusoidal_encoding";
  const Array from(function, "x", x);
  from.require_float();
  require(from.rank() >= 2, function, ": x has shape ", from, ", the least is [length, d_model]");
  const SinusoidalOptions options =
      sinusoidal_options(function, offset, base, doubled, interleaved, scale, num_threads);
  const Result result(function, x, out, from.shape());
  compute(function,
          [&] { add_sinusoidal_encoding(any_view<const float>(from), any_view<float>(result.array()), options); });
  return result.object();
}

nb::object rotary_embedding_of(nb::handle x, double base, Index rotary_dim, bool interleaved, Index offset,
                               nb::handle positions, nb::handle frequencies, nb::handle out,
                               std::optional<int> num_threads) {
  constexpr const char* function = "rotary_embedding";
  const Array from(function, "x", x);
  from.require_float();
  require(2 <= from.rank() && from.rank() <= 4, function, ": x has shape ", from,
          ", wanted [batch, heads, length, head_dim], the first two or one of them at will");
  RotaryOptions options{.base = base,
                        .rotary_dim = rotary_dim,
                        .interleaved = interleaved,
                        .offset = offset,
                        .num_threads = threads_of(function, num_threads)};
  std::optional<Array> of_positions, of_frequencies;
  if (!positions.is_none()) {
    of_positions.emplace(function, "positions", positions).require_int64();
    static constexpr Index nothing = 0;  // empty arrays may have no address, which would mean that there are none
    const Index* data = of_positions->integers() != nullptr ? of_positions->integers() : &nothing;
    require(of_positions->rank() == 1 || of_positions->rank() == 2, function, ": positions has shape ", *of_positions,
            ", wanted [batch] or [batch, length]");
    if (of_positions->rank() == 1) options.positions = view_of_last<const Index, 1>(data, *of_positions);
    else options.positions = view_of_last<const Index, 2>(data, *of_positions);
  }
  if (!frequencies.is_none()) {
    of_frequencies.emplace(function, "frequencies", frequencies).require_float();
    static constexpr float nothing = 0;
    require(of_frequencies->rank() == 1, function, ": frequencies has shape ", *of_frequencies, ", wanted one axis");
    const float* data = of_frequencies->floats() != nullptr ? of_frequencies->floats() : &nothing;
    options.frequencies = view_of_last<const float, 1>(data, *of_frequencies);
  }
  const Result result(function, x, out, from.shape());
  compute(function, [&] {
    rotary_embedding(view_of_last<const float, 4>(from.floats(), from),
                     view_of_last<float, 4>(result.array().floats(), result.array()), options);
  });
  return result.object();
}

nb::object alibi_slopes_of(nb::handle out) {
  constexpr const char* function = "alibi_slopes";
  const Array slopes(function, "out", out, Access::write);
  slopes.require_float();
  require(slopes.rank() == 1, function, ": out has shape ", slopes, ", wanted [heads]");
  compute(function, [&] { alibi_slopes(view_of_last<float, 1>(slopes.floats(), slopes)); });
  return nb::borrow(out);
}

}  // namespace headlane::python
