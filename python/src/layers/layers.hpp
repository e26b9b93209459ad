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

/// The tensors of a mapping whose names are the prefix followed by one of `parts` and anything,
/// borrowed. Other entries are ignored.
class Tensors {
 public:
  Tensors(const char* layer, nb::handle state, const std::string& prefix, const std::vector<std::string_view>& parts);
  [[nodiscard]] const StateDict& dict() const { return dict_; }

 private:
  std::deque<std::string> names_;
  std::deque<Array> arrays_;
  StateDict dict_;
};

/// Constructs a layer in the memory that Python has allocated for it.
template <class Layer, class... Options>
void construct(Layer* self, const char* name, const Tensors& tensors, const std::string& prefix,
               const Options&... options) {
  std::optional<Layer> layer;
  compute(name, [&] { layer.emplace(tensors.dict(), prefix, options...); });
  new (self) Layer(std::move(*layer));
}

/// [batch, length, d], or [length, d], which is a batch of one.
template <class T>
View<T, 3> rows_of(const char* function, const Array& x) {
  require(x.rank() == 2 || x.rank() == 3, function, ": ", x.name(), " has shape ", x,
          "; wanted: [batch, length, d] or [length, d]");
  return view_of<T, 3>(x);
}

/// The rows x of a layer's forward(), and its result: rows of `width`.
class Rows {
 public:
  Rows(const char* function, nb::handle x, nb::handle out, Index width)
      : from_(function, "x", x, Element::float32),
        view_(rows_of<const float>(function, from_)),
        result_(function, x, out, shape(width)) {}
  [[nodiscard]] const View<const float, 3>& x() const { return view_; }
  [[nodiscard]] View<float, 3> y() const { return rows_of<float>("", result_.array()); }
  [[nodiscard]] int rank() const { return from_.rank(); }
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
View<const Index, 1> integers_view(const char* function, const std::optional<Array>& array);

/// The arguments cache and sequences of a call: both, or neither.
struct CacheArgument {
  CacheArgument(const char* function, const char* name, nb::handle cache, const char* sequences_name, nb::handle given);
  [[nodiscard]] explicit operator bool() const { return locked != nullptr; }
  [[nodiscard]] Index longest() const { return longest_of(locked->cache, sequences); }

  LockedKvCache* locked = nullptr;
  std::vector<Index> sequences;
};

/// The options of MultiHeadAttention.
MultiHeadAttentionOptions attention_options_of(const char* layer, nb::handle heads, nb::handle kv_heads,
                                               nb::handle scale);

/// The options of EncoderLayer and DecoderLayer, and the names that Python has for them.
struct LayerArguments {
  nb::handle heads, kv_heads, scale, activation, norm, norm_first, eps;
};
TransformerLayerOptions options_of(const char* layer, const LayerArguments& given);

/// A dict of NumPy arrays.
nb::dict dict_of(const OwnedStateDict& state);

template <class Layer>
nb::dict state_of(const Layer& layer) {
  OwnedStateDict state;
  compute("state_dict", [&] { state = layer.state_dict(); });
  return dict_of(state);
}

}  // namespace headlane::python
