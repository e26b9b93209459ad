// The options of attention. for_each_option (headlane/attention_options.hpp) is their list:
// Python's names of them, and how each is converted, are derived from it.
#pragma once

#include "core/result.hpp"

#include <headlane/attention.hpp>

#include <forward_list>

namespace headlane::python {

/// Python's name of an option of the library. Empty for those that Python does not have as options:
/// outputs, workspace, num_threads.
const char* python_name(std::string_view option);

/// The options of one call, with their arrays borrowed. Construction and destruction need the GIL.
class ScoreOptions {
 public:
  /// `options`: a dict, or None for no options. Throws TypeError for a name that is no option.
  ScoreOptions(const Call& call, nb::handle attn_mask, nb::handle options, nb::handle num_threads);

  /// All options but the masks, whose strides depend on the shape of the scores.
  AttentionOptions values{};
  std::optional<Array> mask, mask_bits;

  /// Keys along the last axis of a mask, where key has `keys` rows: with key_starts, those of the
  /// longest sequence.
  [[nodiscard]] Index mask_keys(Index keys) const;
  /// All options for scores of this shape; `keys` as mask_keys() returned. Needs no GIL.
  [[nodiscard]] AttentionOptions for_scores(Index batch, Index heads, Index rows, Index keys) const;
  /// The arrays of float32 among the options, which an output must not overlap.
  [[nodiscard]] std::vector<const Array*> float_arrays() const;

 private:
  void set(std::string_view name, nb::handle given);
  void set_window(nb::handle given);
  void set_causal_offset(nb::handle given);
  template <class T, int Rank>
  void assign(View<T, Rank>& view, const char* name, nb::handle given);
  template <class T>
  void assign(T& value, const char* name, nb::handle given);
  template <class T>
  [[nodiscard]] View<const T, 4> broadcast(const Array& x, const std::array<Index, 4>& scores) const;

  const Call* call_;
  std::forward_list<Array> arrays_;  // those of `values`; they do not move
};

}  // namespace headlane::python
