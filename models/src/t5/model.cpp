#include "t5/model.hpp"

#include "t5/layers.hpp"

#include <cmath>
#include <cstring>
#include <span>
#include <string>

namespace headlane::models::internal {
namespace {

bool same_bits(const Tensor& a, const Tensor& b, const T5Config& config) {
  const auto bytes = static_cast<std::size_t>(a.view().shape[0] * config.d_model) * sizeof(float);
  return std::memcmp(a.view().data, b.view().data, bytes) == 0;
}

/// The names under which the embedding may be stored; any of them suffices.
constexpr const char* embedding_names[] = {"shared.weight", "encoder.embed_tokens.weight",
                                           "decoder.embed_tokens.weight", "lm_head.weight"};

}  // namespace

T5Bias::T5Bias(const Checkpoint& checkpoint, const std::string& name, const T5Config& config, bool bidirectional,
               Digest& whole)
    : buckets_(config.relative_attention_num_buckets),
      heads_(config.num_heads),
      max_distance_(config.relative_attention_max_distance),
      bidirectional_(bidirectional) {
  const Tensor tensor = checkpoint.load(name, {buckets_, heads_});
  table_.assign(tensor.view().data, tensor.view().data + buckets_ * heads_);
  whole.add_all(std::span<const float>(table_));
}

RelativeBias T5Bias::relative_bias() const {
  return {View<const float, 2>(table_.data(), {buckets_, heads_}).transposed(), max_distance_, bidirectional_};
}

void T5Model::load_embedding(const Checkpoint& checkpoint, const T5Config& config, const ModelOptions& options) {
  // A rank of a team that finds its rows of the output layer equal to those of the embedding uses
  // the latter, whatever others find.
  const Shares share(options.team, config.vocab_size, columns_of_share);
  const auto own_rows = [&](const char* name) {
    return checkpoint.load_rows(name, {config.vocab_size, config.d_model}, share.begin(), share.end());
  };
  const auto weight_of = [&](const Tensor& own) {
    StateDict state{{"weight", own.view()}};
    state.shares.emplace("weight", config.vocab_size);
    return state;
  };
  Tensor shared;
  const char* source = nullptr;
  for (const char* name : embedding_names) {
    if (!checkpoint.contains(name)) continue;
    const Tensor tensor = own_rows(name);
    if (source == nullptr) {
      shared = tensor;
      source = name;
    } else if (!same_bits(shared, tensor, config)) {
      // As in transformers, an output layer that differs is separate, whatever
      // tie_word_embeddings says.
      if (std::string_view(name) != "lm_head.weight")
        throw CheckpointError(std::string(name) + " differs from " + source + ": one embedding is supported");
      head_ = Linear(weight_of(tensor), {}, options.weights, options.activations, options.team);
    }
  }
  if (source == nullptr) shared = own_rows(embedding_names[0]);  // throws
  const bool tied = !head_.has_value();
  embedding_ = Embedding(weight_of(shared), {},
                         {.tied = tied,
                          .weights = options.weights,
                          .activations = tied ? options.activations : DType::float32,
                          .team = options.team});
}

T5Model::T5Model(const Checkpoint& checkpoint, const T5Config& config, const ModelOptions& options) {
  load_embedding(checkpoint, config, options);
  const T5Layers layers(checkpoint, config, options, whole_);
  for (Index i = 0; i < config.num_layers; ++i) encoder_.push_back(layers.encoder(i));
  for (Index i = 0; i < config.num_decoder_layers; ++i) decoder_.push_back(layers.decoder(i));
  encoder_norm_ = layers.norm("encoder.final_layer_norm.weight");
  decoder_norm_ = layers.norm("decoder.final_layer_norm.weight");
  constexpr const char* bias = ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  encoder_bias_ = T5Bias(checkpoint, std::string("encoder") + bias, config, true, whole_);
  decoder_bias_ = T5Bias(checkpoint, std::string("decoder") + bias, config, false, whole_);
  if (config.scale_decoder_outputs)
    output_scale_ = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.d_model)));
}

void T5Model::encode(std::span<const Index> ids, std::span<const Index> starts, View<float, 3> y, int num_threads,
                     const std::function<void()>& poll) const {
  const View<const Index, 1> bounds(starts.data(), {std::ssize(starts)});
  AttentionOptions options{.relative_bias = encoder_bias_.relative_bias(), .num_threads = num_threads};
  options.query_starts = options.key_starts = bounds;
  embedding_.forward({ids.data(), {1, std::ssize(ids)}}, y);
  for (const EncoderLayer& layer : encoder_) {
    layer.forward(y, y, options);
    if (poll) poll();
  }
  encoder_norm_.forward(y, y, num_threads);
}

void T5Model::finish_decoder(View<float, 3> x, int num_threads) const {
  decoder_norm_.forward(x, x, num_threads);
  if (output_scale_ == 1.0f) return;
  const Index n = x.shape[0] * x.shape[1] * x.shape[2];
  for (Index i = 0; i < n; ++i) x.data[i] *= output_scale_;
}

void T5Model::logits(View<const float, 3> x, View<float, 3> y, int num_threads) const {
  if (head_) head_->forward(x, y, {.num_threads = num_threads});
  else embedding_.logits(x, y, num_threads);
}

}  // namespace headlane::models::internal
