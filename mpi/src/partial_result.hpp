// Partial results of attention, in memory that can be sent: out, not divided, then the maxima and
// the sums of its rows.
#pragma once

#include "part_options.hpp"

#include <headlane/merge.hpp>
#include <headlane/view.hpp>

#include <cstddef>

namespace headlane::mpi::internal {

/// [count, heads, rows] partial results of value_dim elements, in `data` of size() floats.
struct PartialResult {
  float* data = nullptr;
  Index count = 0, heads = 0, rows = 0, value_dim = 0;

  [[nodiscard]] Index states() const { return count * heads * rows; }
  [[nodiscard]] Index size() const { return states() * (value_dim + 2); }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size()) * sizeof(float); }

  [[nodiscard]] View<float, 4> out() const { return {data, {count, heads, rows, value_dim}}; }
  [[nodiscard]] View<float, 3> max() const { return {data + states() * value_dim, {count, heads, rows}}; }
  [[nodiscard]] View<float, 3> sum() const { return {data + states() * (value_dim + 1), {count, heads, rows}}; }
  /// Number `i` of the `count`, a part for merge().
  [[nodiscard]] AttentionPart part(Index i) const {
    return {out().slice(0, i, i + 1), max().slice(0, i, i + 1), sum().slice(0, i, i + 1)};
  }
};

/// Copies rows of elements, [batch, heads, rows, dim].
void copy(const View<const float, 4>& from, const View<float, 4>& to);

/// Sets padding queries to 0 in out [heads, rows, value_dim] and to -inf in lse [heads, rows], if
/// that is given: those from position query_length of their sequence on, to which merge() gave what
/// their sink has.
void clear_padding(const View<float, 3>& out, const View<float, 2>& lse, const Rows& rows, Index query_length);

}  // namespace headlane::mpi::internal
