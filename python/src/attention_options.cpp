// The options of attention: from Python's objects to arrays and numbers.
#include "attention_arguments.hpp"

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

template <class T>
constexpr const char* kind = "a number";
template <>
constexpr const char* kind<bool> = "True or False";
template <>
constexpr const char* kind<Index> = "an integer";

[[noreturn]] void fail_as_type(const char* function, const char* name, nb::handle given, const char* wanted) {
  const std::string text = nb::repr(given).c_str();
  throw nb::type_error((std::string(function) + ": " + name + " is " + text + "; wanted: " + wanted).c_str());
}

template <class T>
T number(const char* function, const char* name, nb::handle given) {
  T value{};
  if (!nb::try_cast(given, value)) fail_as_type(function, name, given, kind<T>);
  return value;
}

/// As int64, which is what the library reads.
nb::object integers(const char* function, const char* name, nb::handle given) {
  const nb::object array = nb::module_::import_("numpy").attr("asarray")(given), dtype = array.attr("dtype");
  const std::string of_kind = nb::str(dtype.attr("kind")).c_str();
  if (of_kind != "i" && of_kind != "u" && nb::cast<Index>(array.attr("size")) > 0)
    throw nb::type_error((std::string(function) + ": " + name + " has dtype " + nb::str(nb::handle(dtype)).c_str() +
                          "; wanted: integers")
                             .c_str());
  return array.attr("astype")("int64", nb::arg("copy") = false);
}

/// Both sizes, -1 for what is not bounded.
void set_window(const char* function, nb::handle given, AttentionOptions& options) {
  const nb::object pair = nb::steal(PySequence_Tuple(given.ptr()));
  if (!pair.is_valid()) PyErr_Clear();
  if (!pair.is_valid() || nb::len(pair) != 2)
    throw std::invalid_argument(std::string(function) + ": window is " + nb::repr(given).c_str() +
                                "; wanted: a pair (left, right)");
  const auto size = [&](int side, const char* name) {
    const nb::object one = pair[side];
    return one.is_none() ? -1 : number<Index>(function, name, one);
  };
  options.window_left = size(0, "window_left");
  options.window_right = size(1, "window_right");
}

}  // namespace

ScoreOptions::ScoreOptions(const char* function, nb::handle options, std::optional<int> num_threads) {
  const auto at = [&](Place place) {
    return nb::handle(PyTuple_GetItem(options.ptr(), static_cast<Py_ssize_t>(place)));
  };
  const auto floats = [&](std::optional<Array>& to, const char* name, Place place) {
    if (!at(place).is_none()) to.emplace(function, name, at(place)).require_float();
  };
  const auto of_integers = [&](std::optional<Array>& to, const char* name, Place place) {
    if (!at(place).is_none()) to.emplace(function, name, integers(function, name, at(place)));
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
  numbers.causal = number<bool>(function, "is_causal", at(Place::is_causal));
  if (!at(Place::scale).is_none()) numbers.scale = number<float>(function, "scale", at(Place::scale));
  numbers.softcap = number<float>(function, "softcap", at(Place::softcap));
  if (!at(Place::window).is_none()) set_window(function, at(Place::window), numbers);
  const nb::handle offset = at(Place::causal_offset);
  if (PyLong_Check(offset.ptr()) != 0 || offset.is_none())
    numbers.causal_offset = number<Index>(function, "causal_offset", offset);
  else of_integers(causal_offsets, "causal_offset", Place::causal_offset);
  if (causal_offsets && causal_offsets->rank() == 0) {  // NumPy's and PyTorch's numbers
    numbers.causal_offset = *causal_offsets->integers();
    causal_offsets.reset();
  }
  numbers.relative_bias.max_distance =
      number<Index>(function, "relative_max_distance", at(Place::relative_max_distance));
  numbers.relative_bias.bidirectional =
      number<bool>(function, "relative_bidirectional", at(Place::relative_bidirectional));
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
