// T5: encoder-decoder models (Raffel et al. 2020), loaded from Hugging Face folders.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/export.h>
#include <headlane/index.hpp>
#include <headlane/models/checkpoint_error.hpp>
#include <headlane/models/generate.hpp>
#include <headlane/models/model_options.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::models {

/// The settings of config.json and generation_config.json.
struct T5Config {
  Index vocab_size = 0, d_model = 0, d_kv = 0, d_ff = 0, num_heads = 0;
  Index num_layers = 0, num_decoder_layers = 0;
  Index relative_attention_num_buckets = 32, relative_attention_max_distance = 128;
  float layer_norm_epsilon = 1e-6f;
  Activation activation = Activation::relu;  ///< of the feed-forward layers
  bool gated = false;                        ///< T5 1.1, Flan-T5
  bool scale_decoder_outputs = true;         ///< by d_model^-0.5, before the output layer: T5 1.0, not 1.1
  Index pad_token_id = 0, decoder_start_token_id = 0;
  std::vector<Index> eos_token_ids;  ///< any of them ends an output; if none, only max_length does

  /// task_specific_params: the prefix of inputs, and the generation options of the task.
  struct Task {
    std::string prefix;
    GenerateOptions options;
  };
  std::map<std::string, Task, std::less<>> tasks;
  GenerateOptions options;  ///< if no task is chosen
  /// Generation settings in these files that are not supported: do_sample, …
  std::vector<std::string> unsupported;
};

/// T5 1.0 and 1.1 and models of the same architecture (Flan-T5, mT5): any numbers of layers,
/// heads and head dimensions; weights in float32, float16 or bfloat16, computed in float32; one
/// file or several.
///
/// Memory: the weights are held once, packed; embedding and output layer share theirs if they are
///   equal.
/// Threads: immutable; any number of threads may use it concurrently.
/// Arithmetic: the same bits for every instruction set, number of threads and batch; a sentence
///   has the output it has alone. Tokens equal those of generate() in transformers in float32,
///   except where rounding or an exact tie decides. Of equal scores, the lower beam and token
///   comes first.
/// Errors: CheckpointError for the files; std::invalid_argument for arguments, and if the model
///   was moved from (it may still be destroyed and assigned to); std::bad_alloc.
class HEADLANE_API T5 {
 public:
  /// Reads config.json, generation_config.json if it exists, and the weights. The files are not
  /// needed afterwards.
  explicit T5(const std::filesystem::path& folder, const ModelOptions& options = {});
  ~T5();
  T5(T5&&) noexcept;
  T5& operator=(T5&&) noexcept;

  [[nodiscard]] const T5Config& config() const;
  /// That of the options.
  [[nodiscard]] Team* team() const;
  /// The options in generation_config.json, as transformers uses them; for a task of
  /// config().tasks, overridden by its own.
  [[nodiscard]] GenerateOptions defaults(std::string_view task = {}) const;

  /// The output tokens for each input.
  ///
  /// inputs: tokens as the tokenizer returns them, ending with </s>.
  /// Result: as in transformers, without padding: the start token first, </s> last unless
  ///   max_length ended the output.
  /// Errors: an input that is empty or has a token outside 0 … vocab_size-1.
  [[nodiscard]] std::vector<std::vector<Index>> generate(std::span<const std::vector<Index>> inputs,
                                                         const GenerateOptions& options) const;

  /// The output of the encoder, [tokens, d_model].
  [[nodiscard]] std::vector<float> encode(std::span<const Index> input, int num_threads = 0) const;
  /// The logits at all positions of an output, [output tokens, vocab_size]. Row i predicts the
  /// token after tokens 0 … i.
  [[nodiscard]] std::vector<float> logits(std::span<const Index> input, std::span<const Index> output,
                                          int num_threads = 0) const;

 private:
  struct Implementation;
  [[nodiscard]] HEADLANE_HIDDEN const Implementation& implementation(const char* function) const;
  std::unique_ptr<const Implementation> implementation_;
};

}  // namespace headlane::models
