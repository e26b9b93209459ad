// The options of attention for some of the queries and some of the keys of a sequence.
#pragma once

#include <headlane/attention_options.hpp>
#include <headlane/index.hpp>

#include <vector>

namespace headlane::mpi::internal {

/// No position is that far from another.
inline constexpr Index beyond = Index{1} << 60;

/// Queries: their position in the sequence, and where a rank has them.
struct Rows {
  Index position = 0, local = 0, count = 0;
};

/// Keys first … end-1 of the sequence.
struct Keys {
  Index first = 0, end = 0;

  [[nodiscard]] Index count() const { return end - first; }
};

/// The options of the rows over these keys alone, without outputs and sinks: positions are shifted,
/// lengths cut, masks and biases sliced. Neither copied nor moved: views refer to the members.
class PartOptions {
 public:
  PartOptions(const AttentionOptions& whole, const Rows& rows, const Keys& keys);
  PartOptions(const PartOptions&) = delete;
  PartOptions& operator=(const PartOptions&) = delete;

  AttentionOptions options;

 private:
  std::vector<Index> offsets_, query_lengths_, key_lengths_;
};

/// The options of one batch element.
AttentionOptions of_element(AttentionOptions options, Index element);

}  // namespace headlane::mpi::internal
