#include "t5/decoder.hpp"

#include <cstddef>

namespace headlane::models::internal {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// Short pages: a beam that forks copies its last page.
constexpr KvCacheOptions pages{.page_size = 32};

}  // namespace

T5Decoder::T5Decoder(const T5Model& model, const T5Config& config, View<const float, 3> memory,
                     std::span<const Index> starts, int num_threads, const std::function<void()>& poll)
    : model_(model), rows_(std::ssize(starts) - 1), d_model_(config.d_model), num_threads_(num_threads), poll_(poll) {
  layers_.reserve(model.decoder().size());
  for (const DecoderLayer& layer : model.decoder()) {
    const Index heads = layer.self_attn().kv_heads();  // of this rank
    Layer& state = layers_.emplace_back(Layer{.self = KvCache(heads, config.d_kv, config.d_kv, pages),
                                              .memory = KvCache(heads, config.d_kv, config.d_kv, pages),
                                              .sequences = {},
                                              .memory_sequences = {}});
    for (Index row = 0; row < rows_; ++row) {
      state.sequences.push_back(state.self.add());
      state.memory_sequences.push_back(state.memory.add());
    }
    ProjectMemoryOptions options{.num_threads = num_threads};
    options.key_starts = {starts.data(), {std::ssize(starts)}};
    layer.multihead_attn().project_memory(memory, state.memory, state.memory_sequences, options);
    poll_();
  }
}

View<const float, 3> T5Decoder::step(std::span<const Index> ids) {
  x_.resize(at(rows_ * d_model_));
  const View<float, 3> x(x_.data(), {rows_, 1, d_model_});
  model_.embed({ids.data(), {rows_, 1}}, x);
  const AttentionOptions self{.relative_bias = model_.decoder_bias(), .num_threads = num_threads_};
  const AttentionOptions cross{.num_threads = num_threads_};
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    model_.decoder()[i].forward(x, layer.self, layer.sequences, layer.memory, layer.memory_sequences, x, self, cross);
    poll_();
  }
  model_.finish_decoder(x, num_threads_);
  return x;
}

void T5Decoder::logits(View<const float, 3> hidden, View<float, 3> logits) const {
  model_.logits(hidden, logits, num_threads_);
}

void T5Decoder::reorder(std::span<const Index> parents) {
  for (Layer& layer : layers_) {
    reordered_.clear();
    memory_reordered_.clear();
    kept_.assign(at(rows_), false);
    for (const Index parent : parents) {
      const Index sequence = layer.sequences[at(parent)];
      reordered_.push_back(kept_[at(parent)] ? layer.self.fork(sequence) : sequence);
      memory_reordered_.push_back(layer.memory_sequences[at(parent)]);
      kept_[at(parent)] = true;
    }
    for (Index row = 0; row < rows_; ++row)
      if (!kept_[at(row)]) layer.self.remove(layer.sequences[at(row)]);
    layer.sequences.swap(reordered_);
    layer.memory_sequences.swap(memory_reordered_);
  }
  rows_ = std::ssize(parents);
}

}  // namespace headlane::models::internal
