// Sinusoidal and rotary embeddings, ALiBi's slopes.
#include <headlane/position.hpp>

#include "core/array_kinds.hpp"
#include "core/call.hpp"
#include "core/functions.hpp"

#include <initializer_list>
#include <utility>

namespace headlane::python {
namespace {

SinusoidalOptions sinusoidal_options(const char* function, nb::handle offset, nb::handle base, nb::handle doubled,
                                     nb::handle interleaved, float scale, nb::handle num_threads) {
  return {.offset = integer_of(function, "offset", offset),
          .base = double_of(function, "base", base),
          .exponent =
              flag_of(function, "doubled_exponent", doubled) ? SinusoidalExponent::doubled : SinusoidalExponent::paper,
          .interleaved = flag_of(function, "interleaved", interleaved),
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

/// Sizes of a new array, by the names that messages give them.
std::vector<Index> sizes(const char* function, std::initializer_list<std::pair<const char*, nb::handle>> given) {
  std::vector<Index> result;
  for (const auto& [name, object] : given) {
    result.push_back(integer_of(function, name, object));
    require(result.back() >= 0, function, ": ", name, " is ", result.back(), ", the least is 0");
  }
  return result;
}

}  // namespace

nb::object sinusoidal_encoding_of(nb::handle length, nb::handle d_model, nb::handle offset, nb::handle base,
                                  nb::handle doubled, nb::handle interleaved, nb::handle out, nb::handle num_threads) {
  constexpr const char* function = "sinusoidal_encoding";
  const std::vector<Index> shape = sizes(function, {{"length", length}, {"d_model", d_model}});
  const SinusoidalOptions options = sinusoidal_options(function, offset, base, doubled, interleaved, 1.0f, num_threads);
  const Result result(function, nb::none(), out, shape);
  compute(function,
          [&] { sinusoidal_encoding(view_of_last<float, 2>(result.array().floats(), result.array()), options); });
  return result.object();
}

nb::object add_sinusoidal_encoding_of(nb::handle x, nb::handle scale, nb::handle offset, nb::handle base,
                                      nb::handle doubled, nb::handle interleaved, nb::handle out,
                                      nb::handle num_threads) {
  constexpr const char* function = "add_sinusoidal_encoding";
  const Array from(function, "x", x);
  from.require_float();
  require(from.rank() >= 2, function, ": x has shape ", from, ", the least is [length, d_model]");
  const SinusoidalOptions options =
      sinusoidal_options(function, offset, base, doubled, interleaved, float_of(function, "scale", scale), num_threads);
  const Result result(function, x, out, from.shape());
  compute(function,
          [&] { add_sinusoidal_encoding(any_view<const float>(from), any_view<float>(result.array()), options); });
  return result.object();
}

nb::object rotary_embedding_of(nb::handle x, nb::handle base, nb::handle rotary_dim, nb::handle interleaved,
                               nb::handle offset, nb::handle positions, nb::handle frequencies, nb::handle out,
                               nb::handle num_threads) {
  constexpr const char* function = "rotary_embedding";
  const Array from(function, "x", x);
  from.require_float();
  require(2 <= from.rank() && from.rank() <= 4, function, ": x has shape ", from,
          ", wanted [batch, heads, length, head_dim], the first two or one of them at will");
  RotaryOptions options{.base = double_of(function, "base", base),
                        .rotary_dim = integer_of(function, "rotary_dim", rotary_dim),
                        .interleaved = flag_of(function, "interleaved", interleaved),
                        .offset = integer_of(function, "offset", offset),
                        .num_threads = threads_of(function, num_threads)};
  std::optional<Array> of_positions, of_frequencies;
  if (!positions.is_none()) {
    of_positions.emplace(function, "positions", int64_array(function, "positions", positions));
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

nb::object alibi_slopes_of(nb::handle heads) {
  constexpr const char* function = "alibi_slopes";
  const Result result(function, nb::none(), nb::none(), sizes(function, {{"heads", heads}}));
  compute(function, [&] { alibi_slopes(view_of_last<float, 1>(result.array().floats(), result.array())); });
  return result.object();
}

nb::object t5_bucket_of(nb::handle distance, nb::handle buckets, nb::handle max_distance, nb::handle bidirectional) {
  constexpr const char* function = "t5_bucket";
  return nb::int_(t5_bucket(integer_of(function, "distance", distance), integer_of(function, "buckets", buckets),
                            integer_of(function, "max_distance", max_distance),
                            flag_of(function, "bidirectional", bidirectional)));
}

}  // namespace headlane::python
