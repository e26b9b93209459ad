// The decoder of T5 during generation.
#pragma once

#include "generation/decoder.hpp"
#include "t5/model.hpp"

#include <headlane/kv_cache.hpp>

#include <functional>
#include <span>
#include <vector>

namespace headlane::models::internal {

/// T5's decoder layers over caches. Owns the caches, so an exception leaves nothing behind.
class T5Decoder final : public Decoder {
 public:
  /// One row for each sequence of memory [1, tokens, d_model]: its rows starts[s] … starts[s+1]-1.
  /// Refers to the model and to poll, which is called after each layer, here and in step().
  T5Decoder(const T5Model& model, const T5Config& config, View<const float, 3> memory, std::span<const Index> starts,
            int num_threads, const std::function<void()>& poll);

  View<const float, 3> step(std::span<const Index> ids) override;
  void logits(View<const float, 3> hidden, View<float, 3> logits) const override;
  void reorder(std::span<const Index> parents) override;

 private:
  struct Layer {
    KvCache self, memory;
    std::vector<Index> sequences, memory_sequences;  // by row
  };

  const T5Model& model_;
  Index rows_, d_model_;
  int num_threads_;
  const std::function<void()>& poll_;
  std::vector<Layer> layers_;
  std::vector<float> x_;
  std::vector<Index> reordered_, memory_reordered_;  // of reorder()
  std::vector<bool> kept_;
};

}  // namespace headlane::models::internal
