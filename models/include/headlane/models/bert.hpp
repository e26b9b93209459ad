// Bert: encoders of the BERT family (BERT, MiniLM, BGE and their like), and the embeddings of sentences that they give.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/export.h>
#include <headlane/layers.hpp>
#include <headlane/models/checkpoint_error.hpp>
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

/// How the states of a sentence's tokens become one embedding.
enum class Pooling {
  mean,                  ///< of all its tokens
  cls,                   ///< that of the first one
  max,                   ///< the largest value in each dimension
  mean_sqrt_len_tokens,  ///< their sum divided by the square root of their number
  weightedmean,          ///< the mean with weights 1, 2, 3 … in the order of the sentence
  lasttoken,             ///< that of the last one
  none                   ///< not at all: each token gives a row
};

/// sentence-transformers' names, and "none".
inline constexpr std::array<std::pair<std::string_view, Pooling>, 7> pooling_names{
    {{"mean", Pooling::mean},
     {"cls", Pooling::cls},
     {"max", Pooling::max},
     {"mean_sqrt_len_tokens", Pooling::mean_sqrt_len_tokens},
     {"weightedmean", Pooling::weightedmean},
     {"lasttoken", Pooling::lasttoken},
     {"none", Pooling::none}}};

/// Named as in config.json; from `pooling` on, what a folder of sentence-transformers says elsewhere.
struct BertConfig {
  Index vocab_size = 0, hidden_size = 0, num_hidden_layers = 0, num_attention_heads = 0, intermediate_size = 0;
  Index max_position_embeddings = 0, type_vocab_size = 0;
  Activation hidden_act = Activation::gelu;
  float layer_norm_eps = 1e-12f;
  std::vector<Pooling> pooling = {Pooling::mean};  ///< one, or several whose results stand side by side
  bool normalize = false;
  Index max_seq_length = 0;    ///< tokens; at most max_position_embeddings
  Index truncate_dim = 0;      ///< the first so many floats of an embedding are given; 0: all
  bool include_prompt = true;  ///< tokens of a prompt are pooled
  /// For whoever makes tokens of text: prompts by their names, which stand before a text; the name
  /// of the one that stands there by default, if not empty; whether text is lower-cased first.
  std::map<std::string, std::string, std::less<>> prompts;
  std::string default_prompt_name;
  bool do_lower_case = false;
};

struct EncodeProgress {
  Index finished_sentences = 0;  ///< of `sentences`, whose rows are written
  Index sentences = 0;
};

struct EncodeOptions {
  /// If not empty: for each sentence, for each of its tokens, 0 … type_vocab_size-1; otherwise all are 0.
  std::span<const std::vector<Index>> token_type_ids = {};
  /// Of sentences of more than max_seq_length tokens the first so many count. Otherwise more than max_position_embeddings are an error.
  bool truncate = false;
  /// If set: called by the calling thread after each layer of each round of some thousand tokens. What it throws ends the call and
  /// reaches the caller; the rows of finished sentences are written, those of others are not.
  std::function<void(const EncodeProgress&)> progress = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

struct EmbedOptions {
  std::optional<Pooling> pooling = std::nullopt;  ///< that of the config if absent
  /// To length 1 (L2). If absent as the config says, and then before truncate_dim cuts the rows.
  std::optional<bool> normalize = std::nullopt;
  std::span<const std::vector<Index>> token_type_ids = {};  ///< these as in EncodeOptions
  bool truncate = false;
  /// The first so many tokens of each sentence are a prompt: not pooled unless include_prompt.
  Index prompt_tokens = 0;
  std::function<void(const EncodeProgress&)> progress = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// The encoder of transformers' BertModel, without its pooler. It does not change once it is made: any number of threads
/// may use it at the same time.
///
/// Arithmetic: the embeddings of word, token type and position are added in this order, then layer norm, then the
///   layers of headlane/layers.hpp, sentences as a ragged batch: the same bits for every instruction set and number of
///   threads, alone and among others. A mean, weighted or not, adds up tokens in their order, in binary64, and is
///   rounded once. A normalised row is x / max(length, 1e-12), in binary64 and rounded once, the length the root of the
///   sum of squares in the order of elements.
/// Memory: the weights once, packed; the checkpoint's files are not needed afterwards. A call works through some
///   thousand tokens at a time; their states stay with the model, once for each call at the same time: nothing is
///   allocated once warm.
class HEADLANE_API Bert {
 public:
  /// A folder of Hugging Face with config.json (model_type bert, absolute positions) and weights in safetensors,
  /// their names with or without the prefix "bert."; or one of sentence-transformers (2 to 6) with modules.json:
  /// Transformer, Pooling, Normalize. What its files say is applied as sentence-transformers applies it; a setting that
  /// is not known is an error.
  /// Throws CheckpointError, which names the file, the key or tensor and the reason; std::bad_alloc.
  explicit Bert(const std::filesystem::path& folder);

  [[nodiscard]] const BertConfig& config() const { return config_; }
  /// Where config.json and the tokenizer's files are: the folder given, or one in it that modules.json names.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  /// The length of an embedding: hidden_size for each pooling, at most truncate_dim if there is one.
  [[nodiscard]] Index embedding_size(std::optional<Pooling> pooling = std::nullopt) const;

  /// out [sentences, embedding_size(pooling)], with Pooling::none [tokens that count of all sentences, hidden_size];
  /// any strides.
  ///
  /// ids: the tokens of each sentence, with those that begin and end one ([CLS], [SEP]).
  /// Errors: std::invalid_argument before anything is written, if there is no sentence, or one without tokens or with
  ///   too many, or an id that is not 0 … vocab_size-1, or if a prompt leaves nothing to pool: the message names its
  ///   place; std::bad_alloc.
  void embed(std::span<const std::vector<Index>> ids, View<float, 2> out, const EmbedOptions& options = {}) const;

  /// The states of the last layer, sentence behind sentence: out [tokens that count of all sentences, hidden_size]. Errors as embed.
  void encode(std::span<const std::vector<Index>> ids, View<float, 2> out, const EncodeOptions& options = {}) const;

 private:
  struct Workspace;
  class Workspaces;
  HEADLANE_HIDDEN static std::shared_ptr<Workspaces> make_workspaces();
  struct Call;
  HEADLANE_HIDDEN void run(Call call) const;
  HEADLANE_HIDDEN void check(const Call& call) const;
  /// The length of a row that these give.
  [[nodiscard]] HEADLANE_HIDDEN Index size_of(std::span<const Pooling> pooling) const;
  /// Tokens at the beginning of sentences that are not pooled.
  [[nodiscard]] HEADLANE_HIDDEN Index before_pooling(const Call& call) const;
  /// y = the embedding of the sentence whose states are x.
  HEADLANE_HIDDEN void embed_sentence(const Call& call, const View<const float, 2>& x, const View<float, 1>& y) const;
  /// Of sentence s those that count.
  [[nodiscard]] HEADLANE_HIDDEN std::size_t tokens_of(const Call& call, std::size_t s) const;
  /// The states of the sentences first … end-1, in call.work.
  [[nodiscard]] HEADLANE_HIDDEN View<const float, 2> states(const Call& call, std::size_t first, std::size_t end) const;

  BertConfig config_;
  std::filesystem::path folder_;
  Embedding words_, types_, positions_;
  Normalization norm_;
  std::vector<EncoderLayer> layers_;
  std::shared_ptr<Workspaces> workspaces_;
};

}  // namespace headlane::models
