#include "t5/config.hpp"

#include "io/activations.hpp"
#include "io/config.hpp"
#include "io/error.hpp"

#include <headlane/limits.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace headlane::models::internal {
namespace {

constexpr Index max_tokens = Index{1} << 24, max_width = Index{1} << 20, max_layers = 1024, max_heads = 1024;
constexpr Index max_length = Index{1} << 40;

void read_feed_forward(const Config& file, const std::filesystem::path& path, std::string_view type, T5Config& config) {
  const std::string whole = file.text("feed_forward_proj", type == "mt5" ? "gated-gelu" : "relu");
  std::string_view name = whole;
  config.gated = name.starts_with("gated-");
  if (config.gated) name.remove_prefix(6);
  if (config.gated && name == "gelu") name = "gelu_new";  // the one exception to the names
  // transformers writes what it makes of feed_forward_proj, and prefers it.
  config.gated = file.flag("is_gated_act", config.gated);
  const std::string own = file.text("dense_act_fn", std::string(name));
  const std::optional<Activation> found = activation_named(own);
  if (!found) {
    if (own != name) fail(path, "'dense_act_fn' is ", in_quotes(own), ", which is not supported");
    fail(path, "'feed_forward_proj' is ", in_quotes(whole), ", which is not supported");
  }
  config.activation = *found;
}

void read_sizes(const Config& file, const std::filesystem::path& path, T5Config& config) {
  config.vocab_size = file.integer("vocab_size", 2, max_tokens);
  config.d_model = file.integer("d_model", 1, max_width);
  config.d_kv = file.integer("d_kv", 1, max_head_dim);
  config.d_ff = file.integer("d_ff", 1, max_width);
  config.num_heads = file.integer("num_heads", 1, max_heads);
  config.num_layers = file.integer("num_layers", 1, max_layers);
  config.num_decoder_layers = file.integer("num_decoder_layers", 1, max_layers, config.num_layers);
  const Index buckets = file.integer("relative_attention_num_buckets", 4, 1024, 32);
  const Index max_distance = file.integer("relative_attention_max_distance", 2, max_length, 128);
  if (buckets % 2 != 0) fail(path, "'relative_attention_num_buckets' is ", buckets, ", not an even number");
  if (max_distance <= buckets / 2)
    fail(path, "'relative_attention_max_distance' is ", max_distance, ", but ", buckets / 2,
         " distances have buckets of their own");
  config.relative_attention_num_buckets = buckets;
  config.relative_attention_max_distance = max_distance;
  config.layer_norm_epsilon = static_cast<float>(file.number("layer_norm_epsilon", 0, 1, 1e-6));
}

/// `options`, overridden by the generation settings of a file.
GenerateOptions read_options(const Config& file, GenerateOptions options) {
  options.num_beams = file.integer("num_beams", 1, 1024, options.num_beams);
  options.max_length = file.integer("max_length", 2, max_length, options.max_length);
  if (file.contains("max_new_tokens")) options.max_length = 1 + file.integer("max_new_tokens", 1, max_length);
  options.min_length = file.integer("min_length", 0, max_length, options.min_length);
  if (file.contains("min_new_tokens")) options.min_length = 1 + file.integer("min_new_tokens", 0, max_length);
  options.length_penalty = file.number("length_penalty", -100, 100, options.length_penalty);
  options.no_repeat_ngram_size = file.integer("no_repeat_ngram_size", 0, max_length, options.no_repeat_ngram_size);
  if (file.is_text("early_stopping") && file.text("early_stopping") == "never")
    options.early_stopping = EarlyStopping::never;
  else if (file.contains("early_stopping"))
    options.early_stopping = file.flag("early_stopping") ? EarlyStopping::yes : EarlyStopping::no;
  return options;
}

/// Appends the settings that change outputs and are not in GenerateOptions.
void note_unsupported(const Config& file, std::vector<std::string>& names) {
  const auto note = [&](const char* key, bool used) {
    if (used && std::ranges::find(names, key) == names.end()) names.emplace_back(key);
  };
  for (const char* key : {"do_sample", "remove_invalid_values", "renormalize_logits"})
    note(key, file.contains(key) && file.flag(key));
  for (const char* key : {"repetition_penalty", "encoder_repetition_penalty", "guidance_scale"})
    note(key, file.number(key, -1e30, 1e30, 1.0) != 1.0);
  for (const char* key : {"num_beam_groups", "num_return_sequences"})
    note(key, file.integer(key, 0, max_length, 1) > 1);
  note("encoder_no_repeat_ngram_size", file.integer("encoder_no_repeat_ngram_size", 0, max_length, 0) != 0);
  for (const char* key :
       {"bad_words_ids", "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
        "sequence_bias", "exponential_decay_length_penalty", "penalty_alpha", "constraints", "stop_strings"})
    note(key, file.contains(key));
}

void read_ids(const Config& file, T5Config& config) {
  const Index last = config.vocab_size - 1;
  config.pad_token_id = file.integer("pad_token_id", 0, last, config.pad_token_id);
  const char* start = file.contains("decoder_start_token_id") ? "decoder_start_token_id" : "bos_token_id";
  config.decoder_start_token_id = file.integer(start, 0, last, config.decoder_start_token_id);
  if (file.contains("eos_token_id")) config.eos_token_ids = file.integers("eos_token_id", 0, last);
  std::ranges::sort(config.eos_token_ids);
  const auto repeated = std::ranges::unique(config.eos_token_ids);
  config.eos_token_ids.erase(repeated.begin(), repeated.end());
}

}  // namespace

T5Config read_t5_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json", generation_path = folder / "generation_config.json";
  const Config file(path);
  const std::string type = file.text("model_type", "t5");
  if (type != "t5" && type != "mt5") fail(path, "'model_type' is ", in_quotes(type), ", not 't5' or 'mt5'");
  T5Config config;
  read_sizes(file, path, config);
  read_feed_forward(file, path, type, config);
  // As in transformers: mT5 never scales. For T5, version 5 of transformers writes
  // scale_decoder_outputs, and tie_word_embeddings always as true.
  const bool scales = file.flag("scale_decoder_outputs", file.flag("tie_word_embeddings", true));
  config.scale_decoder_outputs = type == "t5" && scales;
  config.eos_token_ids = {1};
  config.decoder_start_token_id = file.integer("pad_token_id", 0, config.vocab_size - 1, 0);
  read_ids(file, config);
  if (std::filesystem::exists(generation_path)) {
    const Config generation(generation_path);
    read_ids(generation, config);
    config.options = read_options(generation, config.options);
    note_unsupported(generation, config.unsupported);
  } else {
    config.options = read_options(file, config.options);
    note_unsupported(file, config.unsupported);
  }
  if (const auto tasks = file.object("task_specific_params"))
    for (const std::string& name : tasks->keys())
      if (const auto task = tasks->object(name))
        config.tasks[name] = {.prefix = task->text("prefix", ""), .options = read_options(*task, config.options)};
  return config;
}

}  // namespace headlane::models::internal
