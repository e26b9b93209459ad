// Selection of the best continuations of beams over the vocabulary.
#pragma once

#include <headlane/index.hpp>

#include <span>
#include <vector>

namespace headlane::models::internal {

struct Candidate {
  float score = 0;
  Index beam = 0, token = 0;
};

/// The `count` highest of the scores that are offered, in descending order. Of equal scores, the
/// one offered first comes first. NaN counts as -inf.
class Candidates {
 public:
  explicit Candidates(Index count);

  void clear() { best_.clear(); }
  /// Offers score + logits[token] for every token.
  void offer(Index beam, float score, std::span<const float> logits);
  [[nodiscard]] std::span<const Candidate> best() const { return best_; }

 private:
  void insert(const Candidate& candidate);

  std::size_t count_;
  std::vector<Candidate> best_;
};

}  // namespace headlane::models::internal
