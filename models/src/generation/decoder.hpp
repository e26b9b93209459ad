// The decoder that generate() runs.
#pragma once

#include <headlane/view.hpp>

#include <span>

namespace headlane::models::internal {

/// A decoder with the state of its rows: each row is a sequence that grows by a token per step.
/// Starts with one row per sentence.
class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  /// Appends a token to every row. Returns the hidden states [rows, 1, d_model], valid until the
  /// next call.
  virtual View<const float, 3> step(std::span<const Index> ids) = 0;
  /// The logits [rows, 1, vocabulary] of hidden states of some of the rows.
  virtual void logits(View<const float, 3> hidden, View<float, 3> logits) const = 0;
  /// Row r continues what was row parents[r]. Rows that do not occur are removed.
  virtual void reorder(std::span<const Index> parents) = 0;
};

/// The tokens of a model that generation needs to know.
struct GenerationTokens {
  Index vocabulary;            // number of tokens
  Index start;                 // the first token of an output
  std::span<const Index> eos;  // any of them ends an output; may be empty
};

}  // namespace headlane::models::internal
