#include "bert/sentence_folder.hpp"

#include "io/config.hpp"
#include "io/error.hpp"
#include "io/json.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headlane::models::internal {
namespace {

using std::filesystem::path;

constexpr std::size_t max_bytes = std::size_t{1} << 20;

/// A member that is a string; empty if missing.
std::string text_of(const path& file, const Json& module, std::size_t number, const char* key) {
  if (module.as<Json::Object>() == nullptr) fail(file, "module ", number, " is not an object");
  const Json* found = module.find(key);
  if (found == nullptr) return {};
  const auto* text = found->as<std::string>();
  if (text == nullptr) fail(file, "module ", number, ": ", in_quotes(key), " is not a string");
  return *text;
}

/// A folder within that of `file`.
path inside(const path& file, const std::string& name) {
  const path part(name);
  if (part.is_absolute() || std::find(part.begin(), part.end(), "..") != part.end())
    fail(file, "the path ", in_quotes(name), " is not within the folder");
  return name.empty() ? file.parent_path() : file.parent_path() / part;
}

/// An unknown setting may change results.
void require_known(const path& file, const Config& config, std::initializer_list<std::string_view> known) {
  for (const std::string& key : config.keys())
    if (config.contains(key) && std::ranges::find(known, key) == known.end())
      fail(file, in_quotes(key), " is not supported");
}

void require_text(const path& file, const Config& config, const char* key, const std::string& wanted) {
  const std::string value = config.text(key, wanted);
  if (value != wanted) fail(file, in_quotes(key), " is ", in_quotes(value), "; supported: ", in_quotes(wanted));
}

void read_pooling(const path& folder, BertConfig& result) {
  const path file = folder / "config.json";
  const Config config(file);
  // In the order in which older versions concatenate them.
  constexpr std::array<std::pair<const char*, Pooling>, 6> flags{
      {{"pooling_mode_cls_token", Pooling::cls},
       {"pooling_mode_max_tokens", Pooling::max},
       {"pooling_mode_mean_tokens", Pooling::mean},
       {"pooling_mode_mean_sqrt_len_tokens", Pooling::mean_sqrt_len_tokens},
       {"pooling_mode_weightedmean_tokens", Pooling::weightedmean},
       {"pooling_mode_lasttoken", Pooling::lasttoken}}};
  require_known(file, config,
                {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt", flags[0].first,
                 flags[1].first, flags[2].first, flags[3].first, flags[4].first, flags[5].first});
  result.include_prompt = config.flag("include_prompt", true);
  std::vector<Pooling> modes;
  for (const std::string& name : config.texts("pooling_mode")) {  // newer versions
    const auto* found = std::ranges::find(pooling_names, name, [](const auto& known) { return known.first; });
    if (found == pooling_names.end() || found->second == Pooling::none)
      fail(file, "'pooling_mode' is ", in_quotes(name),
           "; supported: cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken");
    modes.push_back(found->second);
  }
  constexpr std::size_t max_modes = 64;
  if (config.contains("pooling_mode") && (modes.empty() || modes.size() > max_modes))
    fail(file, "'pooling_mode' has ", modes.size(), " kinds of pooling, not 1 to ", max_modes);
  for (const auto& [key, mode] : flags)
    if (config.flag(key, false) && !config.contains("pooling_mode")) modes.push_back(mode);
  if (!modes.empty()) result.pooling = std::move(modes);
}

void check_normalize(const path& folder) {
  const path file = folder / "config.json";
  if (!exists(file)) return;
  const Config config(file);
  require_known(file, config, {"module_input_name", "module_output_name"});
  require_text(file, config, "module_input_name", "sentence_embedding");
  require_text(file, config, "module_output_name", "sentence_embedding");
}

/// Requires the hidden states of the last layer, for text.
void require_last_states(const path& file, const Config& config) {
  require_text(file, config, "transformer_task", "feature-extraction");
  require_text(file, config, "module_output_name", "token_embeddings");
  const auto modalities = config.object("modality_config");
  if (!modalities) return;
  require_known(file, *modalities, {"text"});
  const auto text = modalities->object("text");
  if (!text) fail(file, "'modality_config' has no 'text'");
  require_known(file, *text, {"method", "method_output_name"});
  require_text(file, *text, "method", "forward");
  if (text->texts("method_output_name") != std::vector<std::string>{"last_hidden_state"})
    fail(file, "'method_output_name' is not 'last_hidden_state', the only one supported");
}

void read_transformer(const path& folder, BertConfig& result) {
  for (const char* name : {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    const path file = folder / (std::string("sentence_") + name + "_config.json");
    if (!exists(file)) continue;
    const Config config(file);
    if (config.keys().empty()) continue;
    constexpr std::array<const char*, 7> must_be_empty{"processing_kwargs", "model_args",       "model_kwargs",
                                                       "tokenizer_args",    "processor_kwargs", "config_args",
                                                       "config_kwargs"};
    for (const char* key : must_be_empty)
      if (const auto settings = config.object(key); settings && !settings->keys().empty())
        fail(file, in_quotes(key), " has ", in_quotes(settings->keys().front()), ", which is not supported");
    require_known(file, config,
                  {"max_seq_length", "do_lower_case", "unpad_inputs", "transformer_task", "modality_config",
                   "module_output_name", must_be_empty[0], must_be_empty[1], must_be_empty[2], must_be_empty[3],
                   must_be_empty[4], must_be_empty[5], must_be_empty[6]});
    require_last_states(file, config);
    result.max_seq_length = config.integer("max_seq_length", 1, Index{1} << 40, 0);
    result.do_lower_case = config.flag("do_lower_case", false);
    return;
  }
}

void read_settings(const path& folder, BertConfig& result) {
  const path file = folder / "config_sentence_transformers.json";
  if (!exists(file)) return;
  const Config config(file);
  require_known(file, config,
                {"__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim",
                 "requirements"});
  require_text(file, config, "model_type", "SentenceTransformer");
  result.truncate_dim = config.integer("truncate_dim", 1, Index{1} << 40, 0);
  if (const auto prompts = config.object("prompts"))
    for (const std::string& name : prompts->keys()) result.prompts[name] = prompts->text(name, "");
  result.default_prompt_name = config.text("default_prompt_name", "");
  if (config.contains("default_prompt_name") && !result.prompts.contains(result.default_prompt_name))
    fail(file, "'default_prompt_name' is ", in_quotes(result.default_prompt_name), ", which is not among 'prompts'");
}

/// Reads the limit of the tokenizer, if there is no other.
void read_limit(const path& folder, BertConfig& result) {
  const path file = folder / "tokenizer_config.json";
  if (result.max_seq_length > 0 || !exists(file)) return;
  constexpr double none = 1e15;  // transformers writes 1e30
  const Config config(file);
  const double limit = config.number("model_max_length", 1, 1e300, config.number("max_len", 1, 1e300, none));
  result.max_seq_length = static_cast<Index>(std::min(limit, none));
}

void read_modules(const path& file, SentenceFolder& result) {
  const Json content = read_json(file, max_bytes);
  const auto* list = content.as<Json::List>();  // unlike other files, which hold an object
  if (list == nullptr) fail(file, "is not a list of modules but ", content.type());
  const Json::List& modules = *list;
  constexpr std::array<std::string_view, 3> kinds{"Transformer", "Pooling", "Normalize"};
  if (modules.empty()) fail(file, "holds no modules");
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const std::string type = text_of(file, modules[i], i, "type");
    const std::string kind = type.substr(type.rfind('.') + 1);  // npos + 1 is 0
    if (i >= kinds.size() || kind != kinds[i] || !type.starts_with("sentence_transformers."))
      fail(file, "module ", i, " has type ", in_quotes(type),
           "; supported: sentence_transformers' Transformer, Pooling, Normalize, in this order");
    const path where = inside(file, text_of(file, modules[i], i, "path"));
    if (i == 0) read_transformer(result.transformer = where, result.config);
    if (i == 1) read_pooling(where, result.config);
    if (i == 2) check_normalize(where);
  }
  result.config.normalize = modules.size() == 3;
  // Without a pooling module, the result is a row per token.
  if (modules.size() == 1) result.config.pooling = {Pooling::none};
}

}  // namespace

SentenceFolder sentence_folder(const path& folder) {
  SentenceFolder result{.transformer = folder, .config = {}};
  result.config.prompts = {{"query", ""}, {"document", ""}};  // every model has these
  const path modules = folder / "modules.json";
  if (exists(modules)) {
    read_modules(modules, result);
    read_settings(folder, result.config);
  }
  read_limit(result.transformer, result.config);
  const path adapter = result.transformer / "adapter_config.json";
  if (exists(adapter)) fail(adapter, "adapters (PEFT) are not supported: merge them into the model");
  return result;
}

}  // namespace headlane::models::internal
