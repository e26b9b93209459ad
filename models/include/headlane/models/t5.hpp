// T5: encoder-decoder models that turn text into text (Raffel et al. 2020), from folders in Hugging Face's format.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/export.h>
#include <headlane/index.hpp>
#include <headlane/models/checkpoint_error.hpp>
#include <headlane/models/generate.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::models {

/// What config.json and generation_config.json say.
struct T5Config {
  Index vocab_size = 0, d_model = 0, d_kv = 0, d_ff = 0, num_heads = 0;
  Index num_layers = 0, num_decoder_layers = 0;
  Index relative_attention_num_buckets = 32, relative_attention_max_distance = 128;
  float layer_norm_epsilon = 1e-6f;
  Activation activation = Activation::relu;  ///< of the feed-forward layers
  bool gated = false;                        ///< T5 1.1, Flan-T5
  bool scale_decoder_outputs = true;         ///< the logits are of hidden states · d_model^-0.5: T5 1.0, not 1.1
  Index pad_token_id = 0, decoder_start_token_id = 0;
  std::vector<Index> eos_token_ids;  ///< any of them ends a sentence; none: max_length does

  /// task_specific_params: what stands before an input, and how outputs of the task are generated.
  struct Task {
    std::string prefix;
    GenerateOptions options;
  };
  std::map<std::string, Task, std::less<>> tasks;
  GenerateOptions options;  ///< without a task
  std::vector<std::string>
      unsupported;  ///< settings of generation in these files that GenerateOptions lacks: do_sample, …
};

/// T5 1.0 and 1.1 and their like (Flan-T5): any numbers of layers, heads and head dimensions; weights in float32, float16 or bfloat16,
/// computed in float32; a model.safetensors or several files with an index. Weights are held once, those of the embedding and the output
/// layer together if they are the same.
///
/// Does not change once it is made: any number of threads may use it at the same time.
/// Tokens are those of transformers' generate() on the same numbers in float32, but where rounding or an exact tie decides: of equal scores the
///   lower beam and token comes first. They and all floats have the same bits for every instruction set, number of threads and batch: a
///   sentence gives what it gives alone.
/// Errors: CheckpointError for what is wrong with the files; std::invalid_argument for arguments, and for a model that was moved
///   from, which may be destroyed and assigned to; std::bad_alloc.
class HEADLANE_API T5 {
 public:
  /// config.json, generation_config.json if it is there, and the weights. The files are not needed afterwards.
  explicit T5(const std::filesystem::path& folder);
  ~T5();
  T5(T5&&) noexcept;
  T5& operator=(T5&&) noexcept;

  [[nodiscard]] const T5Config& config() const;
  /// What generate() of transformers takes from generation_config.json; of a task (of config().tasks), what that says, over it.
  [[nodiscard]] GenerateOptions defaults(std::string_view task = {}) const;

  /// For each input, the tokens that follow it. Inputs are as the tokenizer gives them, with </s> at the end. Outputs are as those of
  /// transformers without the padding: the start token first, and </s> last unless max_length ends them.
  /// An input without tokens or with one that is not 0 … vocab_size-1 is an error.
  [[nodiscard]] std::vector<std::vector<Index>> generate(std::span<const std::vector<Index>> inputs,
                                                         const GenerateOptions& options) const;

  /// The encoder's output, [tokens, d_model].
  [[nodiscard]] std::vector<float> encode(std::span<const Index> input, int num_threads = 0) const;
  /// The logits at all positions of the output, [output tokens, vocab_size]: position i is what follows tokens 0 … i.
  [[nodiscard]] std::vector<float> logits(std::span<const Index> input, std::span<const Index> output,
                                          int num_threads = 0) const;

 private:
  struct Implementation;
  [[nodiscard]] HEADLANE_HIDDEN const Implementation& implementation(const char* function) const;
  std::unique_ptr<const Implementation> implementation_;
};

}  // namespace headlane::models
