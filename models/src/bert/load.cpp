// Loads Bert from a folder: the config, and the weights under the tensor names of the layers.
#include "bert/sentence_folder.hpp"
#include "core/floating_point_scope.hpp"
#include "io/activations.hpp"
#include "io/config.hpp"
#include "io/error.hpp"
#include "io/quantized_weight.hpp"
#include "io/team.hpp"
#include "io/tensor_memory.hpp"

#include <headlane/limits.hpp>
#include <headlane/models/bert.hpp>
#include <headlane/models/checkpoint.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace headlane::models {

using namespace internal;

namespace {

using std::filesystem::path;

Activation activation_of(const path& file, const std::string& name) {
  const std::optional<Activation> found = activation_named(name);
  if (!found) fail(file, "'hidden_act' is ", in_quotes(name), "; supported: ", activation_names());
  return *found;
}

/// Refuses settings that would change the computation.
void require_plain_bert(const path& file, const Config& config) {
  const std::string type = config.text("model_type");
  if (type != "bert") fail(file, "'model_type' is ", in_quotes(type), "; supported: 'bert'");
  const std::string positions = config.text("position_embedding_type", "absolute");
  if (positions != "absolute")
    fail(file, "'position_embedding_type' is ", in_quotes(positions), "; supported: 'absolute'");
  for (const char* key : {"is_decoder", "is_causal", "add_cross_attention", "is_encoder_decoder"})
    if (config.flag(key, false)) fail(file, in_quotes(key), " is true; supported: false");
}

BertConfig config_of(const path& file, SentenceFolder sentences) {
  const Config config(file);
  require_plain_bert(file, config);
  constexpr Index max_size = Index{1} << 31;  // for each size; products are checked against the tensors
  BertConfig result = std::move(sentences.config);
  result.vocab_size = config.integer("vocab_size", 1, max_size);
  result.hidden_size = config.integer("hidden_size", 1, max_size);
  result.num_hidden_layers = config.integer("num_hidden_layers", 1, 10'000);
  result.num_attention_heads = config.integer("num_attention_heads", 1, max_size);
  result.intermediate_size = config.integer("intermediate_size", 1, max_size);
  result.max_position_embeddings = config.integer("max_position_embeddings", 1, max_size);
  result.type_vocab_size = config.integer("type_vocab_size", 1, max_size, 2);
  result.hidden_act = activation_of(file, config.text("hidden_act", "gelu"));
  result.layer_norm_eps = static_cast<float>(config.number("layer_norm_eps", 0, 1, 1e-12));
  if (result.hidden_size % result.num_attention_heads != 0)
    fail(file, "'num_attention_heads' is ", result.num_attention_heads, ", which does not divide 'hidden_size', ",
         result.hidden_size);
  if (result.hidden_size / result.num_attention_heads > max_head_dim)
    fail(file, "'num_attention_heads' is ", result.num_attention_heads, ": heads of ",
         result.hidden_size / result.num_attention_heads, ", the maximum is ", max_head_dim);
  const Index limit = result.max_seq_length > 0 ? result.max_seq_length : result.max_position_embeddings;
  result.max_seq_length = std::min(limit, result.max_position_embeddings);
  return result;
}

/// Tensors of the checkpoint under other names, kept while layers are constructed: of weights, the
/// share that a rank of a team has. The digest gets what all ranks read.
class Renamed {
 public:
  Renamed(const Checkpoint& checkpoint, Team* team, Digest& whole)
      : checkpoint_(checkpoint),
        team_(team),
        whole_(whole),
        prefix_(checkpoint.contains("bert.embeddings.word_embeddings.weight") ? "bert." : "") {}

  void add(const std::string& name, const std::string& from, std::initializer_list<Index> shape) {
    state_.insert_or_assign(name, load(from, shape).view());
  }

  /// The rows of this rank of a matrix [out, in].
  void add_share(const std::string& name, const std::string& from, Index out, Index in) {
    const Shares shares(team_, out, columns_of_share);
    tensors_.push_back(checkpoint_.load_rows(prefix_ + from, {out, in}, shares.begin(), shares.end()));
    state_.insert_or_assign(name, tensors_.back().view());
    state_.shares.insert_or_assign(name, out);
  }

  /// The weight [out, in] of a linear layer, as the file stores it if it is quantised.
  void add_weight(const std::string& name, const std::string& from, Index out, Index in) {
    if (!is_quantized(from)) return add_share(name, from + ".weight", out, in);
    packed_.push_back(quantized_weight(checkpoint_, prefix_ + from + ".", out, in));
    state_.packed.insert_or_assign(name, &packed_.back());
  }

  void add_linear(const std::string& name, const std::string& from, Index out, Index in) {
    add_weight(name + ".weight", from, out, in);
    add(name + ".bias", from + ".bias", {out});
  }

  void add_norm(const std::string& name, const std::string& from, Index size) {
    const bool old = checkpoint_.contains(prefix_ + from + ".gamma");  // names of the first BERT
    add(name + ".weight", from + (old ? ".gamma" : ".weight"), {size});
    add(name + ".bias", from + (old ? ".beta" : ".bias"), {size});
  }

  /// The projections of query, key and value [d, d]: stacked, or each as the file stores it.
  void add_projections(const std::string& to, const std::string& from, Index d, Index heads) {
    const Shares shares(team_, heads, 1);
    const Index first = shares.begin() * (d / heads), end = shares.end() * (d / heads);
    std::vector<float>& weights = stacked_[0];
    std::vector<float>& biases = stacked_[1];
    for (std::vector<float>& memory : stacked_) memory.clear();
    weights.reserve(1);  // so that it has memory
    const bool quantized = is_quantized(from + "query");
    for (const char* name : {"query", "key", "value"}) {
      const std::string layer = from + name, stored = prefix_ + layer;
      if (quantized) add_weight((to + *name).append("_proj_weight"), layer, d, d);
      else append_to(weights, checkpoint_.load_rows(stored + ".weight", {d, d}, first, end), (end - first) * d);
      append_to(biases, load(layer + ".bias", {d}), d);
    }
    if (!quantized) {
      const View<const float, 2> rows(weights.data(), {3 * (end - first), d});
      state_.insert_or_assign(to + "in_proj_weight", rows);
      state_.shares.insert_or_assign(to + "in_proj_weight", 3 * d);
    }
    state_.insert_or_assign(to + "in_proj_bias", View<const float, 1>(biases.data(), {3 * d}));
  }

  [[nodiscard]] bool is_quantized(const std::string& from) const {
    return checkpoint_.is_quantized(prefix_ + from + ".");
  }
  [[nodiscard]] const StateDict& state() const { return state_; }

 private:
  /// A tensor that all ranks have.
  const Tensor& load(const std::string& from, std::initializer_list<Index> shape) {
    const Tensor& tensor = tensors_.emplace_back(checkpoint_.load(prefix_ + from, shape));
    Index size = 1;
    for (const Index n : shape) size *= n;
    whole_.add_all(std::span(tensor.view().data, static_cast<std::size_t>(size)));
    return tensor;
  }

  static void append_to(std::vector<float>& to, const Tensor& tensor, Index size) {
    to.insert(to.end(), tensor.view().data, tensor.view().data + size);
  }

  const Checkpoint& checkpoint_;
  Team* team_;
  Digest& whole_;
  std::string prefix_;
  std::vector<Tensor> tensors_;
  std::array<std::vector<float>, 2> stacked_;
  std::deque<PackedMatrix> packed_;
  StateDict state_;
};

EncoderLayer layer_of(const Checkpoint& checkpoint, const BertConfig& config, const ModelOptions& options,
                      Digest& whole, Index number) {
  const std::string from = std::string("encoder.layer.").append(std::to_string(number)).append(".");
  const Index d = config.hidden_size, inner = config.intermediate_size;
  Renamed tensors(checkpoint, options.team, whole);
  tensors.add_projections("self_attn.", from + "attention.self.", d, config.num_attention_heads);
  tensors.add_linear("self_attn.out_proj", from + "attention.output.dense", d, d);
  tensors.add_norm("norm1", from + "attention.output.LayerNorm", d);
  tensors.add_linear("linear1", from + "intermediate.dense", inner, d);
  tensors.add_linear("linear2", from + "output.dense", d, inner);
  tensors.add_norm("norm2", from + "output.LayerNorm", d);
  return {tensors.state(),
          "",
          {.attention = {.heads = config.num_attention_heads},
           .activation = config.hidden_act,
           .norm_first = false,
           .eps = config.layer_norm_eps,
           .weights = options.weights,
           .activations = options.activations,
           .team = options.team}};
}

/// What decides how a model computes, and in how many steps.
std::string text_of(const BertConfig& c, const ModelOptions& options, const Checkpoint& checkpoint,
                    const Digest& whole) {
  Digest tensors, poolings;
  tensors.add(checkpoint.fingerprint());
  poolings.add_all(std::span<const Pooling>(c.pooling));
  Description text("BERT");
  text.add("vocab_size", c.vocab_size).add("hidden_size", c.hidden_size).add("layers", c.num_hidden_layers);
  text.add("heads", c.num_attention_heads).add("intermediate_size", c.intermediate_size);
  text.add("max_position_embeddings", c.max_position_embeddings).add("type_vocab_size", c.type_vocab_size);
  text.add("hidden_act", static_cast<Index>(c.hidden_act)).add("layer_norm_eps", c.layer_norm_eps);
  text.add("pooling", poolings).add("normalize", c.normalize).add("max_seq_length", c.max_seq_length);
  text.add("truncate_dim", c.truncate_dim).add("include_prompt", c.include_prompt);
  text.add("weights", name_of(options.weights)).add("activations", name_of(options.activations));
  return text.add("tensors", tensors).add("norms and biases", whole).text();
}

}  // namespace

Bert::Bert(const path& folder, const ModelOptions& options) {
  const headlane::internal::FloatingPointScope scope;
  const ReturnsFreedMemory at_the_end;
  team_of_layers_ = compared(options.team);
  load_together(options.team, "Bert", [&] { return load(folder, options_of_layers(options, team_of_layers_.get())); });
  team_ = options.team;
  workspaces_ = make_workspaces();
}

std::string Bert::load(const path& folder, const ModelOptions& options) {
  SentenceFolder sentences = sentence_folder(folder);
  folder_ = sentences.transformer;
  config_ = config_of(folder_ / "config.json", std::move(sentences));
  const Checkpoint checkpoint(folder_);
  const Index d = config_.hidden_size;
  Digest whole;
  Renamed tensors(checkpoint, options.team, whole);
  tensors.add_share("words.weight", "embeddings.word_embeddings.weight", config_.vocab_size, d);
  tensors.add("types.weight", "embeddings.token_type_embeddings.weight", {config_.type_vocab_size, d});
  tensors.add("positions.weight", "embeddings.position_embeddings.weight", {config_.max_position_embeddings, d});
  tensors.add_norm("norm", "embeddings.LayerNorm", d);
  const EmbeddingOptions stored{.weights = options.weights};
  words_ = Embedding(tensors.state(), "words.", {.weights = options.weights, .team = options.team});
  types_ = Embedding(tensors.state(), "types.", stored);
  positions_ = Embedding(tensors.state(), "positions.", stored);
  norm_ = Normalization(tensors.state(), "norm.", NormKind::layer, config_.layer_norm_eps);
  for (Index i = 0; i < config_.num_hidden_layers; ++i)
    layers_.push_back(layer_of(checkpoint, config_, options, whole, i));
  return text_of(config_, options, checkpoint, whole);
}

}  // namespace headlane::models
