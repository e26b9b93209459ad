// Sinusoidal and rotary embeddings, ALiBi's slopes, T5's buckets.
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

/// The sizes of a new array, each with its name for messages.
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
  compute(function, [&] { sinusoidal_encoding(view_of<float, 2>(result.array()), options); });
  return result.object();
}

nb::object add_sinusoidal_encoding_of(nb::handle x, nb::handle scale, nb::handle offset, nb::handle base,
                                      nb::handle doubled, nb::handle interleaved, nb::handle out,
                                      nb::handle num_threads) {
  constexpr const char* function = "add_sinusoidal_encoding";
  const Array from(function, "x", x, Element::float32);
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
  const Array from(function, "x", x, Element::float32);
  require(2 <= from.rank() && from.rank() <= 4, function, ": x has shape ", from,
          ", wanted [batch, heads, length, head_dim], the first two or one of them at will");
  RotaryOptions options{.base = double_of(function, "base", base),
                        .rotary_dim = integer_of(function, "rotary_dim", rotary_dim),
                        .interleaved = flag_of(function, "interleaved", interleaved),
                        .offset = integer_of(function, "offset", offset),
                        .num_threads = threads_of(function, num_threads)};
  const std::optional<Array> of_positions = optional_integers(function, "positions", positions),
                             of_frequencies = optional_array(function, "frequencies", frequencies, Element::float32);
  if (of_positions) {
    require(of_positions->rank() == 1 || of_positions->rank() == 2, function, ": positions has shape ", *of_positions,
            ", wanted [batch] or [batch, length]");
    if (of_positions->rank() == 1) options.positions = view_of<const Index, 1>(*of_positions);
    else options.positions = view_of<const Index, 2>(*of_positions);
  }
  if (of_frequencies) {
    require(of_frequencies->rank() == 1, function, ": frequencies has shape ", *of_frequencies, ", wanted one axis");
    options.frequencies = view_of<const float, 1>(*of_frequencies);
  }
  const Result result(function, x, out, from.shape());
  compute(function,
          [&] { rotary_embedding(view_of<const float, 4>(from), view_of<float, 4>(result.array()), options); });
  return result.object();
}

nb::object alibi_slopes_of(nb::handle heads) {
  constexpr const char* function = "alibi_slopes";
  const Result result(function, nb::none(), nb::none(), sizes(function, {{"heads", heads}}));
  compute(function, [&] { alibi_slopes(view_of<float, 1>(result.array())); });
  return result.object();
}

nb::object t5_bucket_of(nb::handle distance, nb::handle buckets, nb::handle max_distance, nb::handle bidirectional) {
  constexpr const char* function = "t5_bucket";
  return nb::int_(t5_bucket(integer_of(function, "distance", distance), integer_of(function, "buckets", buckets),
                            integer_of(function, "max_distance", max_distance),
                            flag_of(function, "bidirectional", bidirectional)));
}

}  // namespace headlane::python
