#include "generation/candidates.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace headlane::models::internal {
namespace {

constexpr std::size_t block = 128;

/// The maximum of 128 floats, NaN ignored, in a form that compilers vectorize.
float maximum(const float* x) {
  std::array<float, 16> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < block; i += lanes.size())
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  return *std::ranges::max_element(lanes);
}

}  // namespace

Candidates::Candidates(Index count) : count_(static_cast<std::size_t>(count)) { best_.reserve(count_ + 1); }

void Candidates::insert(const Candidate& candidate) {
  const auto lower = [](const Candidate& a, const Candidate& b) { return a.score > b.score; };
  best_.insert(std::upper_bound(best_.begin(), best_.end(), candidate, lower), candidate);
  if (best_.size() > count_) best_.pop_back();
}

void Candidates::offer(Index beam, float score, std::span<const float> logits) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  for (std::size_t begin = 0; begin < logits.size(); begin += block) {
    const std::size_t end = std::min(begin + block, logits.size());
    // Rounding is monotonic, so the maximum of the block decides for all of it.
    const bool full = best_.size() == count_;
    if (full && end - begin == block && !(maximum(logits.data() + begin) + score > best_.back().score)) continue;
    for (std::size_t token = begin; token < end; ++token) {
      float sum = logits[token] + score;
      if (sum != sum) sum = lowest;
      if (best_.size() < count_ || sum > best_.back().score) insert({sum, beam, static_cast<Index>(token)});
    }
  }
}

}  // namespace headlane::models::internal
