// The best continuations of beams over the vocabulary.
#pragma once

#include <headlane/index.hpp>

#include <span>
#include <vector>

namespace headlane::models::internal {

struct Candidate {
  float score = 0;
  Index beam = 0, token = 0;
};

/// The `count` highest scores that are offered, in descending order; of equal ones those that were offered first. NaN counts as -inf.
class Candidates {
 public:
  explicit Candidates(Index count);

  void clear() { best_.clear(); }
  /// score + logits[token] for every token.
  void offer(Index beam, float score, std::span<const float> logits);
  [[nodiscard]] std::span<const Candidate> best() const { return best_; }

 private:
  void insert(const Candidate& candidate);

  std::size_t count_;
  std::vector<Candidate> best_;
};

}  // namespace headlane::models::internal
