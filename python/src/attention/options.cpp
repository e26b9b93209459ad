// The options of attention: from Python's objects to arrays and numbers.
#include "attention/arguments.hpp"
#include "core/array_kinds.hpp"

#include <algorithm>

namespace headlane::python {
namespace {

/// The order of the tuple, which is that of _DEFAULTS in headlane/_attention.py.
enum class Place : Py_ssize_t {
  attn_mask,
  is_causal,
  scale,
  causal_offset,
  softcap,
  window,
  key_lengths,
  query_lengths,
  alibi_slopes,
  sinks,
  mask_bits,
  relative_bias,
  relative_max_distance,
  relative_bidirectional,
  query_starts,
  key_starts
};

/// Both sizes, -1 for what is not bounded.
void set_window(const char* function, nb::handle given, AttentionOptions& options) {
  const nb::object pair = nb::steal(PySequence_Tuple(given.ptr()));
  if (!pair.is_valid()) PyErr_Clear();
  if (!pair.is_valid() || nb::len(pair) != 2) fail_as_type(function, "window", given, "a pair (left, right)");
  const auto size = [&](int side, const char* name) {
    const nb::object one = pair[side];
    return one.is_none() ? -1 : integer_of(function, name, one);
  };
  options.window_left = size(0, "window_left");
  options.window_right = size(1, "window_right");
}

}  // namespace

ScoreOptions::ScoreOptions(const char* function, nb::handle options, nb::handle num_threads) {
  const auto at = [&](Place place) {
    return nb::handle(PyTuple_GetItem(options.ptr(), static_cast<Py_ssize_t>(place)));
  };
  const auto floats = [&](std::optional<Array>& to, const char* name, Place place) {
    if (!at(place).is_none()) to.emplace(function, name, at(place)).require_float();
  };
  const auto of_integers = [&](std::optional<Array>& to, const char* name, Place place) {
    if (!at(place).is_none()) to.emplace(function, name, int64_array(function, name, at(place)));
  };
  if (!at(Place::attn_mask).is_none()) mask.emplace(function, "attn_mask", at(Place::attn_mask));
  if (mask && !mask->is_bool()) mask->require_float();
  if (!at(Place::mask_bits).is_none()) mask_bits.emplace(function, "mask_bits", at(Place::mask_bits)).require_uint8();
  floats(alibi_slopes, "alibi_slopes", Place::alibi_slopes);
  floats(sinks, "sinks", Place::sinks);
  floats(relative_bias, "relative_bias", Place::relative_bias);
  of_integers(key_lengths, "key_lengths", Place::key_lengths);
  of_integers(query_lengths, "query_lengths", Place::query_lengths);
  of_integers(query_starts, "query_starts", Place::query_starts);
  of_integers(key_starts, "key_starts", Place::key_starts);
  numbers.causal = flag_of(function, "is_causal", at(Place::is_causal));
  if (!at(Place::scale).is_none()) numbers.scale = float_of(function, "scale", at(Place::scale));
  numbers.softcap = float_of(function, "softcap", at(Place::softcap));
  if (!at(Place::window).is_none()) set_window(function, at(Place::window), numbers);
  const nb::handle offset = at(Place::causal_offset);
  if (PyLong_Check(offset.ptr()) != 0 || offset.is_none())
    numbers.causal_offset = integer_of(function, "causal_offset", offset);
  else of_integers(causal_offsets, "causal_offset", Place::causal_offset);
  if (causal_offsets && causal_offsets->rank() == 0) {  // NumPy's and PyTorch's numbers
    numbers.causal_offset = *causal_offsets->integers();
    causal_offsets.reset();
  }
  numbers.relative_bias.max_distance = integer_of(function, "relative_max_distance", at(Place::relative_max_distance));
  numbers.relative_bias.bidirectional = flag_of(function, "relative_bidirectional", at(Place::relative_bidirectional));
  numbers.num_threads = threads_of(function, num_threads);
}

Index ScoreOptions::keys_of_mask(Index keys) const {
  if (!key_starts || key_starts->rank() != 1) return keys;
  Index longest = 0;
  const auto start = [&](Index i) {
    return static_cast<std::size_t>(key_starts->integers()[i * key_starts->stride(0)]);
  };
  for (Index i = 1; i < key_starts->size(0); ++i)  // the library checks them; here they may be anything
    longest = std::max(longest, static_cast<Index>(start(i) - start(i - 1)));
  return longest;
}

}  // namespace headlane::python
