#include "attention/options.hpp"

#include "core/array_kinds.hpp"
#include "core/errors.hpp"
#include "core/functions.hpp"

#include <algorithm>
#include <utility>

namespace headlane::python {
namespace {

/// The shape that a message asks for.
std::string_view wanted_shape(std::string_view name, int rank) {
  if (rank == 2) return "[heads, buckets]";
  if (name.ends_with("_starts")) return "[sequences + 1]";
  return name == "alibi_slopes" || name == "sinks" ? "[heads]" : "[batch]";
}

}  // namespace

const char* python_name(std::string_view option) {
  constexpr std::pair<std::string_view, const char*> renamed[] = {
      {"causal", "is_causal"},
      {"causal_offsets", "causal_offset"},
      {"window_left", "window"},
      {"window_right", "window"},
      {"mask", "attn_mask"},
      {"bias", "attn_mask"},
      {"relative_bias.table", "relative_bias"},
      {"relative_bias.max_distance", "relative_max_distance"},
      {"relative_bias.bidirectional", "relative_bidirectional"},
      {"lse", ""},
      {"sum", ""},
      {"resume", ""},
      {"workspace", ""},
      {"num_threads", ""},
  };
  for (const auto& [name, in_python] : renamed)
    if (name == option) return in_python;
  return option.data();
}

nb::tuple attention_options() {
  nb::list names;
  AttentionOptions options;
  for_each_option(options, [&](const char* option, const auto&) {
    const nb::str name(python_name(option));
    if (nb::len(name) > 0 && !nb::cast<bool>(names.attr("__contains__")(name))) names.append(name);
  });
  return nb::tuple(names);
}

ScoreOptions::ScoreOptions(const Call& call, nb::handle attn_mask, nb::handle options, nb::handle num_threads)
    : call_(&call) {
  if (!attn_mask.is_none()) set("attn_mask", attn_mask);
  PyObject *name = nullptr, *given = nullptr;
  for (Py_ssize_t at = 0; !options.is_none() && PyDict_Next(options.ptr(), &at, &name, &given) != 0;)
    set(call.text("the name of an option", name), given);
  values.num_threads = call.threads(num_threads);
}

void ScoreOptions::set(std::string_view name, nb::handle given) {
  if (name == "attn_mask") {
    if (given.is_none()) return;
    mask.emplace(*call_, "attn_mask", given);
    if (mask->element() != Element::boolean) mask->require_element(Element::float32);
    return;
  }
  if (name == "window") return set_window(given);
  if (name == "causal_offset") return set_causal_offset(given);
  bool known = false;
  for_each_option(values, [&](const char* option, auto& member) {
    if (name.empty() || python_name(option) != name) return;
    assign(member, python_name(option), given);
    known = true;
  });
  if (!known) call_->fail_as_type("there is no option '", name, "'");
}

template <class T>
void ScoreOptions::assign(T& value, const char* name, nb::handle given) {
  if constexpr (std::is_same_v<T, bool>) value = call_->flag(name, given);
  else if constexpr (std::is_same_v<T, Index>) value = call_->integer(name, given);
  else if constexpr (std::is_same_v<T, float>) value = call_->float32(name, given);
  else if constexpr (std::is_same_v<T, std::optional<float>>) {
    if (!given.is_none()) value = call_->float32(name, given);
  }
}

template <class T, int Rank>
void ScoreOptions::assign(View<T, Rank>& view, const char* name, nb::handle given) {
  if (given.is_none()) return;
  if constexpr (std::is_same_v<T, const std::uint8_t>) mask_bits.emplace(*call_, name, given, Element::uint8);
  else if constexpr (std::is_const_v<T> && Rank < 4) {
    if constexpr (std::is_same_v<T, const Index>) arrays_.emplace_front(*call_, name, int64_array(*call_, name, given));
    else arrays_.emplace_front(*call_, name, given, Element::float32);
    const Array& array = arrays_.front();
    array.require(array.rank() == Rank, " has shape ", array, ", wanted ", wanted_shape(name, Rank));
    view = view_of<T, Rank>(array);
  }
}

/// (left, right); None is unbounded, as is the library's -1.
void ScoreOptions::set_window(nb::handle given) {
  if (given.is_none()) return;
  const nb::object pair = elements_of(given);
  if (!pair.is_valid() || nb::len(pair) != 2) call_->refuse_value("window", given, "a pair (left, right)");
  const auto size = [&](int side, const char* name) {
    const nb::object one = pair[side];
    return one.is_none() ? -1 : call_->integer(name, one);
  };
  values.window_left = size(0, "window_left");
  values.window_right = size(1, "window_right");
}

/// An integer, or integers [batch]. NumPy's and PyTorch's numbers are arrays without axes.
void ScoreOptions::set_causal_offset(nb::handle given) {
  constexpr const char* name = "causal_offset";
  if (PyLong_Check(given.ptr()) != 0 || given.is_none()) {
    values.causal_offset = call_->integer(name, given);
    return;
  }
  const Array offsets(*call_, name, int64_array(*call_, name, given));
  if (offsets.rank() == 0) values.causal_offset = *offsets.data<Index>();
  else assign(values.causal_offsets, name, given);
}

Index ScoreOptions::mask_keys(Index keys) const {
  const View<const Index, 1>& starts = values.key_starts;
  if (!starts) return keys;
  const auto start = [&](Index i) { return static_cast<std::size_t>(starts(i)); };
  Index longest = 0;
  for (Index i = 1; i < starts.size(0); ++i)  // not checked yet: the subtraction must not overflow
    longest = std::max(longest, static_cast<Index>(start(i) - start(i - 1)));
  return longest;
}

template <class T>
View<const T, 4> ScoreOptions::broadcast(const Array& x, const std::array<Index, 4>& scores) const {
  View<const T, 4> view(x.data<T>(), scores, {});
  broadcast_strides(x, scores, view.strides.data(), "the scores, ");
  return view;
}

AttentionOptions ScoreOptions::for_scores(Index batch, Index heads, Index rows, Index keys) const {
  AttentionOptions result = values;
  if (mask && mask->element() == Element::boolean) result.mask = broadcast<bool>(*mask, {batch, heads, rows, keys});
  else if (mask) result.bias = broadcast<float>(*mask, {batch, heads, rows, keys});
  if (mask_bits) result.mask_bits = broadcast<std::uint8_t>(*mask_bits, {batch, heads, rows, (keys + 7) / 8});
  return result;
}

std::vector<const Array*> ScoreOptions::float_arrays() const {
  std::vector<const Array*> floats;
  if (mask && mask->element() == Element::float32) floats.push_back(&*mask);
  for (const Array& array : arrays_)
    if (array.element() == Element::float32) floats.push_back(&array);
  return floats;
}

}  // namespace headlane::python
