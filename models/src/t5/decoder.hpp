// The decoder's state while outputs grow: a row for each of them.
#pragma once

#include "t5/model.hpp"

#include <headlane/kv_cache.hpp>

#include <functional>
#include <span>
#include <vector>

namespace headlane::models::internal {

/// Rows continue sequences whose keys and values are kept. What it holds goes with it, so nothing is left behind by an exception.
class T5Decoder {
 public:
  /// A row for each sequence of memory [1, tokens, d_model], which is starts[s] … starts[s+1]-1. Refers to the model and to
  /// poll, which is called after each layer, here and in step().
  T5Decoder(const T5Model& model, const T5Config& config, View<const float, 3> memory, std::span<const Index> starts,
            int num_threads, const std::function<void()>& poll);

  [[nodiscard]] Index rows() const { return rows_; }
  /// Appends a token to every row. Gives what logits() takes, [rows, 1, d_model], valid until the next call.
  View<const float, 3> step(std::span<const Index> ids);
  /// Row r is from now on what row parents[r] was; rows that are not named are gone.
  void reorder(std::span<const Index> parents);

 private:
  struct Layer {
    KvCache self, memory;
    std::vector<Index> sequences, memory_sequences;  // of the rows
  };

  const T5Model& model_;
  Index rows_, d_model_;
  int num_threads_;
  const std::function<void()>& poll_;
  std::vector<Layer> layers_;
  std::vector<float> x_;
  std::vector<Index> renamed_, memory_renamed_;  // of reorder()
  std::vector<bool> kept_;
};

}  // namespace headlane::models::internal
