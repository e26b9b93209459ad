// Sinusoidal and rotary embeddings, ALiBi's slopes, T5's buckets.
#include <headlane/position.hpp>

#include "core/array_kinds.hpp"
#include "core/functions.hpp"
#include "core/result.hpp"

#include <initializer_list>
#include <utility>

namespace headlane::python {
namespace {

SinusoidalOptions sinusoidal_options(const Call& call, nb::handle offset, nb::handle base, nb::handle doubled,
                                     nb::handle interleaved, float scale, nb::handle num_threads) {
  return {.offset = call.integer("offset", offset),
          .base = call.float64("base", base),
          .exponent = call.flag("doubled_exponent", doubled) ? SinusoidalExponent::doubled : SinusoidalExponent::paper,
          .interleaved = call.flag("interleaved", interleaved),
          .scale = scale,
          .num_threads = call.threads(num_threads)};
}

/// The sizes of a new array, each with its name for messages.
std::vector<Index> sizes(const Call& call, std::initializer_list<std::pair<const char*, nb::handle>> given) {
  std::vector<Index> result;
  for (const auto& [name, object] : given) {
    result.push_back(call.integer(name, object));
    call.require(result.back() >= 0, name, " is ", result.back(), ", the minimum is 0");
  }
  return result;
}

}  // namespace

nb::object sinusoidal_encoding_of(nb::handle length, nb::handle d_model, nb::handle offset, nb::handle base,
                                  nb::handle doubled, nb::handle interleaved, nb::handle out, nb::handle num_threads) {
  const Call call("sinusoidal_encoding");
  const std::vector<Index> shape = sizes(call, {{"length", length}, {"d_model", d_model}});
  const SinusoidalOptions options = sinusoidal_options(call, offset, base, doubled, interleaved, 1.0f, num_threads);
  const Result result(call, {}, out, shape);
  call.compute([&] { sinusoidal_encoding(view_of<float, 2>(result.array()), options); });
  return result.object();
}

nb::object add_sinusoidal_encoding_of(nb::handle x, nb::handle scale, nb::handle offset, nb::handle base,
                                      nb::handle doubled, nb::handle interleaved, nb::handle out,
                                      nb::handle num_threads) {
  const Call call("add_sinusoidal_encoding");
  Array from(call, "x", x, Floats());
  from.require(from.rank() >= 2, " has shape ", from, ", the minimum is [length, d_model]");
  const SinusoidalOptions options =
      sinusoidal_options(call, offset, base, doubled, interleaved, call.float32("scale", scale), num_threads);
  Result result(call, from.like(), out, from.shape(), Floats());
  compute_in_own_type(call, {&from}, result, [&]<class T>(T) {
    add_sinusoidal_encoding(any_view<const T>(from), any_view<T>(result.array()), options);
  });
  return result.object();
}

nb::object rotary_embedding_of(nb::handle x, nb::handle base, nb::handle rotary_dim, nb::handle interleaved,
                               nb::handle offset, nb::handle positions, nb::handle frequencies, nb::handle out,
                               nb::handle num_threads) {
  const Call call("rotary_embedding");
  Array from(call, "x", x, Floats());
  from.require(2 <= from.rank() && from.rank() <= 4, " has shape ", from,
               ", wanted [batch, heads, length, head_dim], the first two or one of them at will");
  RotaryOptions options{.base = call.float64("base", base),
                        .rotary_dim = call.integer("rotary_dim", rotary_dim),
                        .interleaved = call.flag("interleaved", interleaved),
                        .offset = call.integer("offset", offset),
                        .num_threads = call.threads(num_threads)};
  const std::optional<Array> of_positions = optional_integers(call, "positions", positions),
                             of_frequencies = optional_array(call, "frequencies", frequencies, Element::float32);
  if (of_positions) {
    of_positions->require(of_positions->rank() == 1 || of_positions->rank() == 2, " has shape ", *of_positions,
                          ", wanted [batch] or [batch, length]");
    if (of_positions->rank() == 1) options.positions = view_of<const Index, 1>(*of_positions);
    else options.positions = view_of<const Index, 2>(*of_positions);
  }
  if (of_frequencies) {
    of_frequencies->require(of_frequencies->rank() == 1, " has shape ", *of_frequencies, ", wanted one axis");
    options.frequencies = view_of<const float, 1>(*of_frequencies);
  }
  Result result(call, from.like(), out, from.shape(), Floats());
  compute_in_own_type(call, {&from}, result, [&]<class T>(T) {
    rotary_embedding(view_of<const T, 4>(from), view_of<T, 4>(result.array()), options);
  });
  return result.object();
}

nb::object alibi_slopes_of(nb::handle heads) {
  const Call call("alibi_slopes");
  const Result result(call, {}, nb::none(), sizes(call, {{"heads", heads}}));
  call.compute([&] { alibi_slopes(view_of<float, 1>(result.array())); });
  return result.object();
}

nb::object t5_bucket_of(nb::handle distance, nb::handle buckets, nb::handle max_distance, nb::handle bidirectional) {
  const Call call("t5_bucket");
  return nb::int_(t5_bucket(call.integer("distance", distance), call.integer("buckets", buckets),
                            call.integer("max_distance", max_distance), call.flag("bidirectional", bidirectional)));
}

}  // namespace headlane::python
