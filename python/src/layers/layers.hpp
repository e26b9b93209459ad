// Shared by the classes of layers: state dicts, rows [batch, length, d] or [length, d], caches, and
// the options of transformer layers.
#pragma once

#include "attention/kv_cache.hpp"
#include "attention/options.hpp"
#include "core/functions.hpp"

#include <headlane/layers.hpp>

#include <deque>
#include <new>
#include <string>
#include <utility>

namespace headlane::python {

/// The tensors and packed weights that a layer is constructed from: those of a mapping whose names
/// are the prefix followed by one of `parts` and anything, borrowed. Other entries are ignored.
class Tensors {
 public:
  Tensors(const Call& call, nb::handle state, nb::handle prefix, const std::vector<std::string_view>& parts);
  [[nodiscard]] const Call& call() const { return *call_; }
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] const StateDict& dict() const { return dict_; }

 private:
  const Call* call_;
  std::string prefix_;
  std::deque<std::string> names_;
  std::deque<Array> arrays_;
  std::vector<nb::object> packed_;  // which a mapping may have made as it was read
  StateDict dict_;
};

/// A layer, constructed without the GIL.
template <class Layer, class... Options>
Layer layer_of(const Tensors& tensors, const Options&... options) {
  std::optional<Layer> layer;
  tensors.call().compute([&] { layer.emplace(tensors.dict(), tensors.prefix(), options...); });
  return std::move(*layer);
}

/// Constructs a layer in the memory that Python has allocated for it.
template <class Layer, class... Options>
void construct(Layer* self, const Tensors& tensors, const Options&... options) {
  new (self) Layer(layer_of<Layer>(tensors, options...));
}

/// [batch, length, d], or [length, d], which is a batch of one.
template <class T>
View<T, 3> rows_of(const Array& x) {
  x.require(x.rank() == 2 || x.rank() == 3, " has shape ", x, "; wanted: [batch, length, d] or [length, d]");
  return view_of<T, 3>(x);
}

/// The rows x of a layer's forward(), and its result: rows of `width`.
class Rows {
 public:
  Rows(const Call& call, nb::handle x, nb::handle out, Index width)
      : from_(call, "x", x, Element::float32),
        view_(rows_of<const float>(from_)),
        result_(call, from_.like(), out, shape(width)) {}
  [[nodiscard]] const View<const float, 3>& x() const { return view_; }
  [[nodiscard]] View<float, 3> y() const { return rows_of<float>(result_.array()); }
  [[nodiscard]] nb::object object() const { return result_.object(); }

 private:
  [[nodiscard]] std::vector<Index> shape(Index width) const {
    std::vector<Index> all = from_.shape();
    all.back() = width;
    return all;
  }

  Array from_;
  View<const float, 3> view_;
  Result result_;
};

/// A vector of integers, or no view for None.
View<const Index, 1> integers_view(const std::optional<Array>& array);

/// The arguments cache and sequences of a call: both, or neither.
struct CacheArgument {
  CacheArgument(const Call& call, const char* name, nb::handle cache, const char* sequences_name, nb::handle given);
  [[nodiscard]] explicit operator bool() const { return locked != nullptr; }
  [[nodiscard]] Index longest() const { return longest_of(locked->cache, sequences); }

  LockedKvCache* locked = nullptr;
  std::vector<Index> sequences;
};

/// The options of MultiHeadAttention.
MultiHeadAttentionOptions attention_options_of(const Call& call, nb::handle heads, nb::handle kv_heads,
                                               nb::handle scale, nb::handle weights, nb::handle activations);

/// The options of EncoderLayer and DecoderLayer but the team, and the names that Python has for
/// them.
struct LayerArguments {
  nb::handle heads, kv_heads, scale, activation, norm, norm_first, eps, weights, activations;
};
TransformerLayerOptions options_of(const Call& call, const LayerArguments& given);

/// A dict of NumPy arrays.
nb::dict dict_of(const OwnedStateDict& state);

template <class Layer>
nb::dict state_of(const Layer& layer) {
  OwnedStateDict state;
  Call("state_dict").compute([&] { state = layer.state_dict(); });
  return dict_of(state);
}

}  // namespace headlane::python
