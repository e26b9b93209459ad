// Bert: encoders of the BERT family (BERT, MiniLM, BGE, …) and sentence embeddings.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/export.h>
#include <headlane/layers.hpp>
#include <headlane/models/checkpoint_error.hpp>
#include <headlane/models/model_options.hpp>
#include <headlane/view.hpp>

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headlane::models {

/// How the hidden states of a sentence become one embedding.
enum class Pooling {
  mean,                  ///< of all tokens
  cls,                   ///< the first token
  max,                   ///< the maximum in each dimension; NaN if any value is
  mean_sqrt_len_tokens,  ///< the sum over √(number of tokens)
  weightedmean,          ///< the mean with weights 1, 2, 3, … by position
  lasttoken,             ///< the last token
  none                   ///< no pooling: a row for each token
};

/// The names in sentence-transformers, and "none".
inline constexpr std::array<std::pair<std::string_view, Pooling>, 7> pooling_names{
    {{"mean", Pooling::mean},
     {"cls", Pooling::cls},
     {"max", Pooling::max},
     {"mean_sqrt_len_tokens", Pooling::mean_sqrt_len_tokens},
     {"weightedmean", Pooling::weightedmean},
     {"lasttoken", Pooling::lasttoken},
     {"none", Pooling::none}}};

/// Named as in config.json. The fields from `pooling` on are settings of sentence-transformers.
struct BertConfig {
  Index vocab_size = 0, hidden_size = 0, num_hidden_layers = 0, num_attention_heads = 0, intermediate_size = 0;
  Index max_position_embeddings = 0, type_vocab_size = 0;
  Activation hidden_act = Activation::gelu;
  float layer_norm_eps = 1e-12f;
  std::vector<Pooling> pooling = {Pooling::mean};  ///< if several: results are concatenated
  bool normalize = false;
  Index max_seq_length = 0;    ///< at most max_position_embeddings
  Index truncate_dim = 0;      ///< length of an embedding; 0: not truncated
  bool include_prompt = true;  ///< the tokens of a prompt are pooled, too
  /// For tokenization: prompts by name, each prepended to a text; the name of the default prompt,
  /// if not empty; whether text is lower-cased first.
  std::map<std::string, std::string, std::less<>> prompts;
  std::string default_prompt_name;
  bool do_lower_case = false;
};

struct EncodeProgress {
  Index finished_sentences = 0;  ///< whose rows are written
  Index sentences = 0;
};

struct EncodeOptions {
  /// If not empty: the type of each token of each sentence, 0 … type_vocab_size-1; otherwise all 0.
  std::span<const std::vector<Index>> token_type_ids = {};
  /// Drops the tokens of a sentence after the first max_seq_length. Otherwise a sentence of more
  /// than max_position_embeddings tokens is an error.
  bool truncate = false;
  /// If given: called by the calling thread after each layer of each round of some thousand
  /// tokens. An exception ends the call and propagates to the caller; only the rows of finished
  /// sentences are written.
  std::function<void(const EncodeProgress&)> progress = {};
  int num_threads = 0;  ///< maximum for this call; 0: num_threads() (runtime.hpp)
};

struct EmbedOptions {
  std::optional<Pooling> pooling = std::nullopt;  ///< default: that of the config
  /// Scales embeddings to L2 norm 1, after truncate_dim. Default: as the config says, and then
  /// before truncate_dim.
  std::optional<bool> normalize = std::nullopt;
  std::span<const std::vector<Index>> token_type_ids = {};  ///< as in EncodeOptions
  bool truncate = false;
  /// The number of tokens at the beginning of each sentence that are a prompt: not pooled unless
  /// BertConfig::include_prompt.
  Index prompt_tokens = 0;
  std::function<void(const EncodeProgress&)> progress = {};
  int num_threads = 0;  ///< maximum for this call; 0: num_threads() (runtime.hpp)
};

/// The encoder of BertModel in Hugging Face transformers, without its pooler.
///
/// Arithmetic: embeddings of word, token type and position are added in this order, then layer
///   norm, then the layers of headlane/layers.hpp. The same bits for every instruction set,
///   number of threads and batch. A mean, weighted or not, is summed in token order in binary64
///   and rounded once. A normalized row is x / max(‖x‖, 1e-12) in binary64, rounded once, with
///   the squares summed in order.
/// Memory: the weights are held once, packed; the files are not needed afterwards. A call
///   processes some thousand tokens at a time, without padding. Its buffers stay with the model,
///   one set per concurrent call; nothing is allocated once warm.
/// Threads: immutable; any number of threads may use it concurrently.
class HEADLANE_API Bert {
 public:
  /// Reads a Hugging Face folder with config.json (model_type bert, absolute positions) and
  /// weights in safetensors, with or without the prefix "bert."; or a folder of
  /// sentence-transformers (2 to 6) with modules.json: Transformer, Pooling, Normalize. Settings
  /// are applied as sentence-transformers applies them; an unknown setting is an error.
  /// Errors: CheckpointError, which names the file, the key or tensor and the reason;
  ///   std::bad_alloc.
  explicit Bert(const std::filesystem::path& folder, const ModelOptions& options = {});

  [[nodiscard]] const BertConfig& config() const { return config_; }
  /// That of the options.
  [[nodiscard]] Team* team() const { return team_; }
  /// The folder of config.json and the tokenizer: the one given, or one within it that modules.json
  /// names.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  /// The length of an embedding: hidden_size times the number of poolings, at most truncate_dim if
  /// that is set.
  [[nodiscard]] Index embedding_size(std::optional<Pooling> pooling = std::nullopt) const;

  /// Sentence embeddings.
  ///
  /// ids: the tokens of each sentence, including those that begin and end it ([CLS], [SEP]).
  /// Shapes: out [sentences, embedding_size(pooling)], any strides. With Pooling::none: [tokens
  ///   of all sentences after truncation, hidden_size].
  /// Errors: std::invalid_argument, before anything is written, if there is no sentence, a
  ///   sentence is empty or too long, an id is outside 0 … vocab_size-1, or a prompt leaves
  ///   nothing to pool; the message names the position. std::bad_alloc.
  void embed(std::span<const std::vector<Index>> ids, View<float, 2> out, const EmbedOptions& options = {}) const;

  /// The hidden states of the last layer, sentence after sentence.
  ///
  /// Shapes: out [tokens of all sentences after truncation, hidden_size], any strides.
  /// Errors: as embed().
  void encode(std::span<const std::vector<Index>> ids, View<float, 2> out, const EncodeOptions& options = {}) const;

 private:
  struct Workspace;
  class Workspaces;
  HEADLANE_HIDDEN static std::shared_ptr<Workspaces> make_workspaces();
  struct Call;
  HEADLANE_HIDDEN void run(Call call) const;
  /// Returns what all ranks of a team must have.
  HEADLANE_HIDDEN std::string load(const std::filesystem::path& folder, const ModelOptions& options);
  /// All ranks of a team make the same call, which each of them checks.
  HEADLANE_HIDDEN void check_together(const Call& call) const;
  HEADLANE_HIDDEN void check(const Call& call) const;
  /// The length of an embedding.
  [[nodiscard]] HEADLANE_HIDDEN Index size_of(std::span<const Pooling> pooling) const;
  /// The number of tokens at the beginning of a sentence that are not pooled.
  [[nodiscard]] HEADLANE_HIDDEN Index before_pooling(const Call& call) const;
  /// y = the embedding of the sentence with hidden states x.
  HEADLANE_HIDDEN void embed_sentence(const Call& call, const View<const float, 2>& x, const View<float, 1>& y) const;
  /// The number of tokens of sentence s, after truncation.
  [[nodiscard]] HEADLANE_HIDDEN std::size_t tokens_of(const Call& call, std::size_t s) const;
  /// The hidden states of the sentences first … end-1, in call.work.
  [[nodiscard]] HEADLANE_HIDDEN View<const float, 2> states(const Call& call, std::size_t first, std::size_t end) const;

  Team* team_ = nullptr;
  std::unique_ptr<Team> team_of_layers_;
  BertConfig config_;
  std::filesystem::path folder_;
  Embedding words_, types_, positions_;
  Normalization norm_;
  std::vector<EncoderLayer> layers_;
  std::shared_ptr<Workspaces> workspaces_;
};

}  // namespace headlane::models
