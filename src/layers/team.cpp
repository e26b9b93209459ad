#include <headlane/team.hpp>

#include "core/check.hpp"
#include "core/round.hpp"

#include <algorithm>

namespace headlane {

Team::~Team() = default;

Shares::Shares(Team* team, Index count, Index unit) : team_(team) {
  using namespace internal;
  const Index size = team == nullptr ? 1 : team->size(), rank = team == nullptr ? 0 : team->rank();
  require(size >= 1 && rank >= 0 && rank < size, "Shares: rank ", rank, " of a team of ", size);
  require(count >= 0 && unit >= 1, "Shares: count is ", count, " and unit is ", unit,
          ", they must be at least 0 and 1");
  rank_ = static_cast<std::size_t>(rank);
  const Index units = ceil_div(count, unit);
  begins_.reserve(static_cast<std::size_t>(size) + 1);
  // The first units % size ranks have one unit more than the others.
  for (Index r = 0; r <= size; ++r) {
    const Index first = units / size * r + std::min(r, units % size);
    begins_.push_back(first == units ? count : first * unit);
  }
}

}  // namespace headlane
