// Team: processes that compute the same layers together (tensor parallelism). What a layer does
// with one: layers.hpp.
#pragma once

#include <headlane/export.h>
#include <headlane/index.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace headlane {

/// Processes ("ranks") that compute layers together, each with a share of the columns of their
/// weights.
///
/// A program implements it over whatever connects the processes. Each rank has an object of its
/// own. The member functions but rank() and size() are collective: every rank of the team calls
/// them, in the same order and with the same arguments but for what is its own.
/// Threads: one thread at a time calls an object, that of the call of a layer or model.
/// Errors: a failure of the connection is an exception of the implementation, which the layer or
///   model passes on. An exception that only some ranks throw, such as std::bad_alloc, leaves the
///   others waiting: the implementation has to end them, too. abandoned() tells it.
class HEADLANE_API Team {
 public:
  virtual ~Team();

  /// 0 … size()-1; neither ever changes.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Completes a buffer of which each rank has computed a part: on return the elements
  /// begins[r] … begins[r+1]-1 of every rank hold, bit by bit, what rank r had there.
  ///
  /// begins has size()+1 elements, the first one is 0, and they do not decrease; a part may be
  /// empty. Other elements of the buffer are left alone.
  virtual void all_gather(float* buffer, std::span<const Index> begins) = 0;

  /// Throws std::invalid_argument on every rank, with one message that names the ranks and their
  /// texts, unless all ranks pass the same text. `what` begins the message. Layers and models call
  /// it when they are made, and in each call before anything else is sent; the text of a rank that
  /// refuses its arguments begins with "an error, ".
  virtual void agree(std::string_view what, std::string_view mine) = 0;

  /// An exception ends a call of a layer or model on this rank after the ranks have agreed. Others
  /// may not have it: they are out of step. It sends nothing.
  virtual void abandoned() noexcept {}

 protected:
  Team() = default;
  Team(const Team&) = default;
  Team(Team&&) = default;
  Team& operator=(const Team&) = default;
  Team& operator=(Team&&) = default;
};

/// How columns or heads are cut over the ranks of a team: each has a range of whole units, but for
/// the last unit, which may be shorter. Shares differ by at most one unit; with fewer units than
/// ranks, some are empty.
class HEADLANE_API Shares {
 public:
  /// Of nothing.
  Shares() = default;
  /// team: null is a team of one rank, which has everything. count >= 0, unit >= 1.
  Shares(Team* team, Index count, Index unit);

  /// All of them.
  [[nodiscard]] Index count() const { return begins_.empty() ? 0 : begins_.back(); }
  /// Those of this rank are begin() … end()-1.
  [[nodiscard]] Index begin() const { return begins_.empty() ? 0 : begins_[rank_]; }
  [[nodiscard]] Index end() const { return begins_.empty() ? 0 : begins_[rank_ + 1]; }
  [[nodiscard]] Index own() const { return end() - begin(); }
  [[nodiscard]] Index rank() const { return static_cast<Index>(rank_); }
  /// Where the share of each rank begins, and then count(); empty if there is nothing.
  [[nodiscard]] std::span<const Index> begins() const { return begins_; }
  /// True if the team has several ranks.
  [[nodiscard]] bool divided() const { return begins_.size() > 2; }
  /// Null unless divided().
  [[nodiscard]] Team* team() const { return divided() ? team_ : nullptr; }

 private:
  Team* team_ = nullptr;
  std::size_t rank_ = 0;
  std::vector<Index> begins_;  // empty if moved from
};

/// The width of a unit of columns: weights are packed in panels of so many.
inline constexpr Index columns_of_share = 32;

}  // namespace headlane
