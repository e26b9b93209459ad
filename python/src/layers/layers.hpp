// What the classes of layers share: state dicts, rows [batch, length, d] or [length, d], and the options of attention inside of a layer.
#pragma once

#include "attention/arguments.hpp"
#include "attention/kv_cache.hpp"
#include "core/functions.hpp"

#include <headlane/layers.hpp>

#include <deque>
#include <initializer_list>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace headlane::python {

/// The tensors of a mapping whose names begin with the prefix and then one of `parts`, borrowed. The others are not looked at.
class Tensors {
 public:
  Tensors(const char* layer, nb::handle state, const std::string& prefix,
          std::initializer_list<std::string_view> parts);
  [[nodiscard]] const StateDict& dict() const { return dict_; }

 private:
  std::deque<std::string> names_;
  std::deque<Array> arrays_;
  StateDict dict_;
};

/// Runs `f` without the GIL. Messages name Layer.forward, not Layer::forward.
template <class F>
void compute_layer(const char* function, F f) {
  try {
    const nb::gil_scoped_release release;
    f();
  } catch (const std::invalid_argument& error) {
    std::string text = error.what();
    if (const auto at = text.find("::"); at < text.find(':') + 1) text.replace(at, 2, ".");
    throw std::invalid_argument(text.starts_with(function) ? text : std::string(function) + ": " + text);
  }
}

/// A layer in the memory that Python has for it.
template <class Layer, class... Options>
void construct(Layer* self, const char* name, const Tensors& tensors, const std::string& prefix,
               const Options&... options) {
  std::optional<Layer> layer;
  compute_layer(name, [&] { layer.emplace(tensors.dict(), prefix, options...); });
  new (self) Layer(std::move(*layer));
}

/// [batch, length, d], or [length, d], which is a batch of one.
template <class T>
View<T, 3> rows_of(const char* function, const Array& x) {
  x.require_float();
  require(x.rank() == 2 || x.rank() == 3, function, ": ", x.name(), " has shape ", x,
          "; wanted: [batch, length, d] or [length, d]");
  return {x.floats(),
          {x.rank() == 3 ? x.size(0) : 1, x.size(-2), x.size(-1)},
          {x.rank() == 3 ? x.stride(0) : 0, x.stride(-2), x.stride(-1)}};
}

/// Where a layer writes rows of `width` for those of x.
class Rows {
 public:
  Rows(const char* function, nb::handle x, nb::handle out, Index width)
      : from_(function, "x", x),
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

/// [n] or none.
class Integers {
 public:
  Integers(const char* function, const char* name, nb::handle given);
  [[nodiscard]] View<const Index, 1> view() const;

 private:
  std::optional<Array> array_;
};

/// The options of attention of a call, a mask among them: the tuple of attention/options.cpp.
class LayerScores {
 public:
  LayerScores(const char* function, nb::handle options, nb::handle num_threads)
      : function_(function), given_(function, options, num_threads) {}
  /// For scores [batch, heads, rows, keys]; may be called without the GIL.
  [[nodiscard]] AttentionOptions at(Index batch, Index heads, Index rows, Index keys) const;

 private:
  template <class T>
  View<T, 4> view_of_scores(const Array& x, T* data, const std::array<Index, 4>& shape) const;

  const char* function_;
  ScoreOptions given_;
};

/// A cache and the sequences of it that a call names.
struct CacheArgument {
  CacheArgument(const char* function, const char* name, nb::handle cache, nb::handle numbers);
  [[nodiscard]] explicit operator bool() const { return locked != nullptr; }
  /// Keys of the longest of them.
  [[nodiscard]] Index longest() const;

  LockedKvCache* locked = nullptr;
  std::vector<Index> sequences;
};

/// The options of MultiHeadAttention, EncoderLayer and DecoderLayer, by the names that Python has for them.
MultiHeadAttentionOptions attention_options_of(const char* layer, nb::handle heads, nb::handle kv_heads,
                                               nb::handle scale);

struct LayerArguments {
  nb::handle heads, kv_heads, scale, activation, norm, norm_first, eps;
};
TransformerLayerOptions options_of(const char* layer, const LayerArguments& given);

/// A dict of NumPy arrays.
nb::dict dict_of(const OwnedStateDict& state);

template <class Layer>
nb::dict state_of(const Layer& layer) {
  OwnedStateDict state;
  compute_layer("state_dict", [&] { state = layer.state_dict(); });
  return dict_of(state);
}

}  // namespace headlane::python
