// What the ranks of a team compute together: each its own columns, gathered in scratch memory.
#pragma once

#include <headlane/team.hpp>
#include <headlane/view.hpp>

namespace headlane::internal {

/// An output y [batch, length, shares.count() · width] of which each rank computes its columns.
/// Without a team, or in one of a single rank, it is y itself.
///
///     const TeamOutput out(shares, 1, y);
///     … computes out.own() …
///     out.gather(num_threads);
///
/// Staging is scratch memory, rank after rank: a thread has one TeamOutput at a time. A single row
/// of adjacent elements is gathered in place.
class TeamOutput {
 public:
  TeamOutput(const Shares& shares, Index width, const View<float, 3>& y);

  /// The columns of this rank, [batch, length, shares.own() · width].
  [[nodiscard]] const View<float, 3>& own() const { return own_; }
  /// The same columns of another view of y's shape; null data stays null.
  [[nodiscard]] View<const float, 3> own_of(const View<const float, 3>& view) const;
  /// Completes y; collective.
  void gather(int num_threads) const;

 private:
  const Shares& shares_;
  Index width_, rows_;
  View<float, 3> y_, own_;
  float* staging_ = nullptr;  // null: y itself
};

}  // namespace headlane::internal
