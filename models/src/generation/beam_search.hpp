// The search for one sentence's output: beam search, of which greedy search is the case of one beam.
#pragma once

#include "generation/candidates.hpp"

#include <headlane/models/generate.hpp>

#include <span>
#include <vector>

namespace headlane::models::internal {

/// The beam search of transformers: twice as many continuations as beams are looked at, those that end a sentence compete for num_beams
/// finished ones, the others run on. All scores are float32, with its operations in its order.
class BeamSearch {
 public:
  /// Refers to both. eos may be empty.
  BeamSearch(const GenerateOptions& options, std::span<const Index> eos, Index start);

  [[nodiscard]] Index beams() const { return options_->num_beams; }
  /// Continuations that advance() takes.
  [[nodiscard]] static Index candidates(const GenerateOptions& options, std::span<const Index> eos);
  [[nodiscard]] std::span<const Index> tokens(Index beam) const { return running_[at(beam)].tokens; }
  [[nodiscard]] float score(Index beam) const { return running_[at(beam)].score; }
  /// Tokens of each running beam.
  [[nodiscard]] Index length() const { return std::ssize(running_.front().tokens); }

  /// The next token of every beam, from the best continuations in descending order. False if the search is over.
  bool advance(std::span<const Candidate> best);
  /// After advance(): the beam that a beam continues.
  [[nodiscard]] Index parent(Index beam) const { return running_[at(beam)].parent; }

  /// The best output. After the end.
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
  void run_on(std::span<const Candidate> best);
  [[nodiscard]] bool may_improve() const;

  const GenerateOptions* options_;
  std::span<const Index> eos_;
  std::vector<Beam> running_, next_;
  std::vector<Finished> finished_;  // in descending order
  std::vector<Ordered> order_;      // of run_on()
};

}  // namespace headlane::models::internal
