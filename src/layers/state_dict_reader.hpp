// What layers share: tensors of a state dict, checks of forward(), and rows of [batch, length, width].
#pragma once

#include "core/check.hpp"
#include "core/view_rows.hpp"

#include <headlane/layers.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace headlane::internal {

/// The tensors of one layer. Errors name the layer and the whole name of the tensor.
class Weights {
 public:
  Weights(const char* layer, const StateDict& state, std::string_view prefix)
      : layer_(layer), state_(state), prefix_(prefix) {}

  [[nodiscard]] bool has(std::string_view name) const;
  /// A size of -1 may be anything.
  [[nodiscard]] View<const float, 2> matrix(std::string_view name, Index rows, Index columns) const;
  [[nodiscard]] std::vector<float> vector(std::string_view name, Index size) const;
  /// Empty if it is not there.
  [[nodiscard]] std::vector<float> vector_if_any(std::string_view name, Index size) const;
  [[nodiscard]] std::string name(std::string_view name) const { return prefix_ + std::string(name); }
  [[nodiscard]] const char* layer() const { return layer_; }

 private:
  template <int Rank>
  [[nodiscard]] View<const float, Rank> tensor(std::string_view name, const std::array<Index, Rank>& shape) const;

  const char* layer_;
  const StateDict& state_;
  std::string prefix_;
};

/// Null if there are no elements.
inline View<const float, 1> view_of(const std::vector<float>& v) {
  return {v.empty() ? nullptr : v.data(), {static_cast<Index>(v.size())}};
}

/// x [batch, length, in] and y [batch, length, out] of `function`; y is no input but perhaps x itself, if `in_place`.
void check_forward(const char* function, const View<const float, 3>& x, Index in, const View<float, 3>& y, Index out,
                   bool in_place, int num_threads);

/// Options of attention inside of a layer from x to y.
void check_layer_options(const char* function, const AttentionOptions& options, const Operand& x, const Operand& y);

/// f(x, y, residual) for matrices that hold all rows: one if strides allow, otherwise one for each batch element. Null data of the residual: none.
template <class F>
void for_each_matrix(const View<const float, 3>& x, const View<float, 3>& y, const View<const float, 3>& residual,
                     const F& f) {
  if (is_empty(y)) return;
  const View<const float, 3> from = with_safe_strides(x);
  const bool with = residual.data != nullptr;
  View<const float, 2> x2, residual2;
  View<float, 2> y2;
  if (all_rows(from, x2) && all_rows(y, y2) && (!with || all_rows(residual, residual2))) return f(x2, y2, residual2);
  for (Index b = 0; b < x.shape[0]; ++b)
    f(from.select(0, b), y.select(0, b), with ? residual.select(0, b) : View<const float, 2>{});
}

}  // namespace headlane::internal
