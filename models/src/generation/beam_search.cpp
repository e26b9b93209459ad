#include "generation/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headlane::models::internal {
namespace {

// Transformers adds this to a score that must not win; adding, unlike replacing, keeps the order of
// such scores.
constexpr float no_chance = -1e9f;

float penalty(Index length, const GenerateOptions& options) {
  return static_cast<float>(std::pow(static_cast<double>(length), options.length_penalty));
}

}  // namespace

BeamSearch::BeamSearch(const GenerateOptions& options, std::span<const Index> eos, Index start)
    : options_(&options), eos_(eos), running_(at(options.num_beams)), next_(running_.size()) {
  for (Beam& beam : running_) beam = {.tokens = {start}, .score = &beam == running_.data() ? 0.0f : no_chance};
  if (beams() > 1) finished_.assign(running_.size(), {.tokens = {start}, .score = no_chance});
}

Index BeamSearch::candidates(const GenerateOptions& options, std::span<const Index> eos) {
  return options.num_beams == 1 ? 1 : options.num_beams * std::max<Index>(2, 1 + std::ssize(eos));
}

// At max_length every token ends the output.
bool BeamSearch::ends(Index token) const {
  return length() + 1 >= options_->max_length || std::ranges::find(eos_, token) != eos_.end();
}

bool BeamSearch::complete() const { return std::ranges::all_of(finished_, &Finished::real); }

bool BeamSearch::advance_greedily(const Candidate& best) {
  const bool over = ends(best.token);
  running_.front().tokens.push_back(best.token);
  return !over;
}

bool BeamSearch::advance(std::span<const Candidate> best) {
  if (beams() == 1) return advance_greedily(best.front());
  const bool all_end = std::ranges::all_of(best, [&](const Candidate& c) { return ends(c.token); });
  finish(best);
  if (all_end || (complete() && options_->early_stopping == EarlyStopping::yes)) return false;
  continue_running(best);
  return may_improve();
}

// Only the first num_beams may finish; the others are there so that num_beams can continue.
void BeamSearch::finish(std::span<const Candidate> best) {
  const float divisor = penalty(length(), *options_);  // without the start token
  for (const Candidate& candidate : best.first(running_.size())) {
    if (!ends(candidate.token)) continue;
    const float score = candidate.score / divisor;
    const auto lower = [](float a, const Finished& b) { return a > b.score; };
    const auto place = std::upper_bound(finished_.begin(), finished_.end(), score, lower);
    if (place == finished_.end()) continue;
    std::rotate(place, finished_.end() - 1, finished_.end());
    const std::vector<Index>& before = running_[at(candidate.beam)].tokens;
    place->tokens.assign(before.begin(), before.end());
    place->tokens.push_back(candidate.token);
    place->score = score;
    place->real = true;
  }
}

// Keeps the best continuations that do not end. If there are too few, ending ones fill the
// places, with a score that cannot win.
void BeamSearch::continue_running(std::span<const Candidate> best) {
  order_.clear();
  for (const Candidate& candidate : best)
    order_.push_back({ends(candidate.token) ? candidate.score + no_chance : candidate.score, &candidate});
  std::ranges::sort(order_, [](const Ordered& a, const Ordered& b) {
    return a.score != b.score ? a.score > b.score : a.candidate < b.candidate;
  });
  for (std::size_t i = 0; i < next_.size(); ++i) {
    Beam& beam = next_[i];
    const std::vector<Index>& before = running_[at(order_[i].candidate->beam)].tokens;
    beam.tokens.assign(before.begin(), before.end());
    beam.tokens.push_back(order_[i].candidate->token);
    beam.score = order_[i].score;
    beam.parent = order_[i].candidate->beam;
  }
  running_.swap(next_);
}

bool BeamSearch::may_improve() const {
  const bool at_best = options_->early_stopping == EarlyStopping::never && options_->length_penalty > 0;
  const float best = running_.front().score / penalty(at_best ? options_->max_length - 1 : length() - 1, *options_);
  return best > (complete() ? finished_.back().score : no_chance);
}

std::vector<Index> BeamSearch::result() {
  return std::move(beams() == 1 ? running_.front().tokens : finished_.front().tokens);
}

}  // namespace headlane::models::internal
