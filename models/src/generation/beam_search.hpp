// Beam search for the output of one sentence; greedy search is beam search with one beam.
#pragma once

#include "generation/candidates.hpp"

#include <headlane/models/generate.hpp>

#include <span>
#include <vector>

namespace headlane::models::internal {

/// The beam search of Hugging Face transformers. Each step considers twice as many continuations as
/// beams: those that end the sentence compete for num_beams finished outputs, the others continue.
/// Scores are float32, computed by the same operations in the same order.
class BeamSearch {
 public:
  /// Refers to options and eos, which may be empty.
  BeamSearch(const GenerateOptions& options, std::span<const Index> eos, Index start);

  [[nodiscard]] Index beams() const { return options_->num_beams; }
  /// Number of continuations that advance() takes.
  [[nodiscard]] static Index candidates(const GenerateOptions& options, std::span<const Index> eos);
  [[nodiscard]] std::span<const Index> tokens(Index beam) const { return running_[at(beam)].tokens; }
  [[nodiscard]] float score(Index beam) const { return running_[at(beam)].score; }
  /// Number of tokens of each running beam.
  [[nodiscard]] Index length() const { return std::ssize(running_.front().tokens); }

  /// Appends a token to every beam, from the best continuations in descending order. Returns
  /// false if the search is over.
  bool advance(std::span<const Candidate> best);
  /// After advance(): the beam of the previous step that this one continues.
  [[nodiscard]] Index parent(Index beam) const { return running_[at(beam)].parent; }

  /// The best output, once the search is over.
  [[nodiscard]] std::vector<Index> result();

 private:
  struct Beam {
    std::vector<Index> tokens;
    float score = 0;
    Index parent = 0;
  };
  struct Finished {
    std::vector<Index> tokens;
    float score = 0;
    bool real = false;
  };

  struct Ordered {
    float score = 0;
    const Candidate* candidate = nullptr;
  };

  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] bool ends(Index token) const;
  [[nodiscard]] bool complete() const;
  bool advance_greedily(const Candidate& best);
  void finish(std::span<const Candidate> best);
  void continue_running(std::span<const Candidate> best);
  [[nodiscard]] bool may_improve() const;

  const GenerateOptions* options_;
  std::span<const Index> eos_;
  std::vector<Beam> running_, next_;
  std::vector<Finished> finished_;  // in descending order
  std::vector<Ordered> order_;      // of continue_running()
};

}  // namespace headlane::models::internal
