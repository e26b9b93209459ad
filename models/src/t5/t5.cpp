#include "core/floating_point_scope.hpp"
#include "generation/generate.hpp"
#include "io/error.hpp"
#include "io/team.hpp"
#include "io/tensor_memory.hpp"
#include "t5/config.hpp"
#include "t5/decoder.hpp"
#include "t5/model.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <string>

namespace headlane::models {

using namespace internal;

namespace {

void check_ids(const char* function, const std::string& name, std::span<const Index> ids, const T5Config& config) {
  using headlane::internal::require;
  require(!ids.empty(), function, ": ", name, " has no tokens");
  for (std::size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < config.vocab_size, function, ": ", name, " has the token ", ids[i], " at ", i,
            ", not 0 to ", config.vocab_size - 1);
}

}  // namespace

struct T5::Implementation {
  T5Config config;
  Team* team;
  std::unique_ptr<Team> of_layers;
  T5Model model;

  Implementation(const Checkpoint& checkpoint, T5Config settings, const ModelOptions& options)
      : config(std::move(settings)),
        team(options.team),
        of_layers(compared(team)),
        model(checkpoint, config, options_of_layers(options, of_layers.get())) {}

  [[nodiscard]] std::vector<float> encode(std::span<const Index> input, int num_threads) const {
    const Index length = std::ssize(input), d = config.d_model;
    std::vector<float> states(static_cast<std::size_t>(length * d));
    const std::array<Index, 2> starts{0, length};
    model.encode(input, starts, {states.data(), {1, length, d}}, num_threads);
    return states;
  }
};

namespace {

/// What decides how a model computes, and in how many steps.
std::string text_of(const T5Config& c, const ModelOptions& options, const Checkpoint& checkpoint, const Digest& whole) {
  Digest tensors;
  tensors.add(checkpoint.fingerprint());
  Description text("T5");
  text.add("vocab_size", c.vocab_size).add("d_model", c.d_model).add("d_kv", c.d_kv).add("d_ff", c.d_ff);
  text.add("num_heads", c.num_heads).add("num_layers", c.num_layers).add("num_decoder_layers", c.num_decoder_layers);
  text.add("relative_attention_num_buckets", c.relative_attention_num_buckets);
  text.add("relative_attention_max_distance", c.relative_attention_max_distance);
  text.add("layer_norm_epsilon", c.layer_norm_epsilon).add("activation", static_cast<Index>(c.activation));
  text.add("gated", c.gated).add("scale_decoder_outputs", c.scale_decoder_outputs);
  text.add("pad_token_id", c.pad_token_id).add("decoder_start_token_id", c.decoder_start_token_id);
  text.add("eos_token_id", std::span<const Index>(c.eos_token_ids));
  text.add("weights", name_of(options.weights)).add("activations", name_of(options.activations));
  return text.add("tensors", tensors).add("norms and biases", whole).text();
}

std::string text_of(std::span<const std::vector<Index>> inputs, const GenerateOptions& o) {
  Digest tokens;
  for (const std::vector<Index>& input : inputs) tokens.add(input);
  Description text;
  text.add("inputs", std::ssize(inputs)).add("tokens", tokens).add("num_beams", o.num_beams);
  text.add("max_length", o.max_length).add("min_length", o.min_length).add("length_penalty", o.length_penalty);
  text.add("early_stopping", static_cast<Index>(o.early_stopping));
  return text.add("no_repeat_ngram_size", o.no_repeat_ngram_size).text();
}

}  // namespace

T5::T5(const std::filesystem::path& folder, const ModelOptions& options) {
  const headlane::internal::FloatingPointScope scope;
  const ReturnsFreedMemory at_the_end;
  load_together(options.team, "T5", [&] {
    T5Config config = read_t5_config(folder);
    const Checkpoint checkpoint(folder);
    implementation_ = std::make_unique<const Implementation>(checkpoint, std::move(config), options);
    return text_of(implementation_->config, options, checkpoint, implementation_->model.whole());
  });
}
T5::~T5() = default;
T5::T5(T5&&) noexcept = default;
T5& T5::operator=(T5&&) noexcept = default;

const T5::Implementation& T5::implementation(const char* function) const {
  return unmoved(implementation_, function, "model");
}

const T5Config& T5::config() const { return implementation("T5::config").config; }

Team* T5::team() const { return implementation("T5::team").team; }

GenerateOptions T5::defaults(std::string_view task) const {
  const T5Config& config = implementation("T5::defaults").config;
  if (task.empty()) return config.options;
  const auto found = config.tasks.find(task);
  if (found != config.tasks.end()) return found->second.options;
  std::string names;
  for (const auto& [name, settings] : config.tasks) names += (names.empty() ? "" : ", ") + name;
  headlane::internal::fail("T5::defaults: the model has no task '", task,
                           "'; it has: ", names.empty() ? "none" : names);
}

std::vector<std::vector<Index>> T5::generate(std::span<const std::vector<Index>> inputs,
                                             const GenerateOptions& options) const {
  const headlane::internal::FloatingPointScope scope;
  constexpr const char* function = "T5::generate";
  const auto& [config, team, of_layers, model] = implementation(function);
  const GenerationTokens tokens{config.vocab_size, config.decoder_start_token_id, config.eos_token_ids};
  std::vector<Index> ids, starts{0};
  const auto check = [&] {
    check_options(function, options, tokens);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_ids(function, "input " + std::to_string(i), inputs[i], config);
      ids.insert(ids.end(), inputs[i].begin(), inputs[i].end());
      starts.push_back(std::ssize(ids));
    }
  };
  check_together(team, function, check, [&] { return text_of(inputs, options); });
  auto guard = guard_of(team);
  if (inputs.empty()) return {};
  const Index length = std::ssize(ids);
  std::vector<float> memory(static_cast<std::size_t>(length * config.d_model));
  const View<float, 3> states(memory.data(), {1, length, config.d_model});
  GenerateProgress progress{.sentences = std::ssize(inputs)};
  const std::function<void()> poll = [&] {
    if (options.progress) guard.together([&] { options.progress(progress); });
  };
  model.encode(ids, starts, states, options.num_threads, poll);
  T5Decoder decoder(model, config, states, starts, options.num_threads, poll);
  return internal::generate(decoder, progress.sentences, tokens, options, progress, poll);
}

std::vector<float> T5::encode(std::span<const Index> input, int num_threads) const {
  const headlane::internal::FloatingPointScope scope;
  constexpr const char* function = "T5::encode";
  const Implementation& all = implementation(function);
  check_together(
      all.team, function, [&] { check_ids(function, "the input", input, all.config); },
      [&] { return Description().add("input", input).text(); });
  const auto guard = guard_of(all.team);
  return all.encode(input, num_threads);
}

std::vector<float> T5::logits(std::span<const Index> input, std::span<const Index> output, int num_threads) const {
  const headlane::internal::FloatingPointScope scope;
  constexpr const char* function = "T5::logits";
  const Implementation& all = implementation(function);
  const auto& [config, team, of_layers, model] = all;
  check_together(
      team, function,
      [&] {
        check_ids(function, "the output", output, config);
        check_ids(function, "the input", input, config);
      },
      [&] { return Description().add("input", input).add("output", output).text(); });
  const auto guard = guard_of(team);
  const std::vector<float> memory = all.encode(input, num_threads);
  const Index length = std::ssize(output), d = config.d_model;
  std::vector<float> hidden(static_cast<std::size_t>(length * d));
  std::vector<float> result(static_cast<std::size_t>(length * config.vocab_size));
  const View<float, 3> x(hidden.data(), {1, length, d});
  const View<const float, 3> states(memory.data(), {1, std::ssize(input), d});
  model.embed({output.data(), {1, length}}, x);
  const AttentionOptions self{.causal = true, .relative_bias = model.decoder_bias(), .num_threads = num_threads};
  for (const DecoderLayer& layer : model.decoder()) layer.forward(x, states, x, self, {.num_threads = num_threads});
  model.finish_decoder(x, num_threads);
  model.logits(x, {result.data(), {1, length, config.vocab_size}}, num_threads);
  return result;
}

}  // namespace headlane::models
