// Errors of T5: folders and calls that it refuses, with their messages.
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/t5.hpp>

#include <limits>

using namespace headlane;
using namespace headlane::models;
using namespace headlane::test;

namespace {

/// The small model with one member of its config replaced or added.
std::string config_with(const std::string& key, const std::string& value) {
  std::string config = T5Case{}.config();
  const std::size_t begin = config.find("\"" + key + "\":");
  if (begin == std::string::npos) return config.substr(0, config.size() - 1) + ",\"" + key + "\":" + value + "}";
  std::size_t end = config.find_first_of(config[begin + key.size() + 3] == '[' ? "]" : ",}", begin);
  if (config[end] == ']') ++end;
  return config.replace(begin, end - begin, "\"" + key + "\":" + value);
}

template <class Call>
void check_refused(const char* word, const Call& call) {
  try {
    call();
    FAIL_CHECK("no error; wanted: " << word);
  } catch (const std::invalid_argument& error) {
    CHECK_MESSAGE(std::string(error.what()).find(word) != std::string::npos, error.what());
  }
}

}  // namespace

TEST_CASE("settings that make no model") {
  const Folder folder;
  write_t5(folder, {});
  const struct {
    const char *key, *value;
  } cases[]{{"vocab_size", "0"},
            {"vocab_size", "1"},
            {"vocab_size", "-5"},
            {"vocab_size", "99999999999999"},
            {"vocab_size", "\"many\""},
            {"d_model", "0"},
            {"d_model", "-24"},
            {"d_model", "4611686018427387904"},
            {"d_kv", "0"},
            {"d_kv", "513"},
            {"d_ff", "0"},
            {"num_heads", "0"},
            {"num_heads", "1e3"},
            {"num_heads", "100000"},
            {"num_layers", "0"},
            {"num_layers", "1000000"},
            {"num_decoder_layers", "0"},
            {"relative_attention_num_buckets", "7"},
            {"relative_attention_num_buckets", "2"},
            {"relative_attention_num_buckets", "2000000"},
            {"relative_attention_max_distance", "4"},
            {"relative_attention_max_distance", "-1"},
            {"layer_norm_epsilon", "-1"},
            {"layer_norm_epsilon", "\"small\""},
            {"feed_forward_proj", "\"gated-magic\""},
            {"feed_forward_proj", "\"\""},
            {"feed_forward_proj", "3"},
            {"tie_word_embeddings", "1"},
            {"model_type", "\"bert\""},
            {"pad_token_id", "61"},
            {"decoder_start_token_id", "-1"},
            {"decoder_start_token_id", "61"},
            {"eos_token_id", "61"},
            {"eos_token_id", "[1,-1]"},
            {"max_length", "1"},
            {"num_beams", "0"},
            {"num_beams", "1.5"},
            {"min_length", "-1"},
            {"no_repeat_ngram_size", "-1"},
            {"length_penalty", "1e9"},
            {"early_stopping", "\"sometimes\""},
            {"task_specific_params", "[]"},
            {"task_specific_params", R"({"translation":{"num_beams":0}})"},
            {"task_specific_params", R"({"translation":{"prefix":7}})"}};
  for (const auto& [key, value] : cases) {
    INFO(key, " ", value);
    folder.write("config.json", config_with(key, value));
    const std::string message = message_of([&] { const T5 t5(folder.path()); });
    const std::string named(key);
    check_says(message, {"config.json", named == "task_specific_params" && value[0] == '{' ? "'" : "'" + named + "'"});
  }
  folder.write("config.json", T5Case{}.config());
  folder.write("generation_config.json", R"({"eos_token_id":61})");
  check_says(message_of([&] { const T5 t5(folder.path()); }), {"generation_config.json", "'eos_token_id'"});
}

TEST_CASE("sizes that the weights do not have, and weights that are not there") {
  const Folder folder;
  write_t5(folder, {});
  const struct {
    const char *key, *value, *tensor;
  } cases[]{{"vocab_size", "62", "shared.weight"},
            {"d_model", "25", "shared.weight"},
            {"d_kv", "6", "SelfAttention.q.weight"},
            {"num_heads", "5", "SelfAttention.q.weight"},
            {"d_ff", "41", "DenseReluDense.wi.weight"},
            {"num_layers", "3", "encoder.block.2.layer.0"},
            {"num_decoder_layers", "2", "decoder.block.1.layer.0"},
            {"feed_forward_proj", "\"gated-gelu\"", "DenseReluDense.wi_0.weight"},
            {"relative_attention_num_buckets", "16", "relative_attention_bias.weight"}};
  for (const auto& [key, value, tensor] : cases) {
    INFO(key, " ", value);
    folder.write("config.json", config_with(key, value));
    check_says(message_of([&] { const T5 t5(folder.path()); }), {folder.path().string(), tensor});
  }
  folder.remove("config.json");
  check_says(message_of([&] { const T5 t5(folder.path()); }), {"config.json"});
}

TEST_CASE("settings of generation: files, tasks, what is not supported") {
  const Folder folder;
  write_t5(folder, {.more = R"(,"num_beams":3,"task_specific_params":{"translation_en_to_fr":{"prefix":"to French: ",
    "num_beams":4,"early_stopping":true,"max_length":300,"length_penalty":0.5},"other":{}})"});
  const T5 alone(folder.path());
  CHECK(alone.defaults().num_beams == 3);
  CHECK(alone.defaults().max_length == 21);
  const GenerateOptions task = alone.defaults("translation_en_to_fr");
  CHECK(task.num_beams == 4);
  CHECK(task.max_length == 300);
  CHECK(task.length_penalty == 0.5);
  CHECK(task.early_stopping == EarlyStopping::yes);
  CHECK(alone.config().tasks.at("translation_en_to_fr").prefix == "to French: ");
  CHECK(alone.defaults("other").num_beams == 3);
  check_refused("translation_en_to_fr", [&] { static_cast<void>(alone.defaults("translation")); });
  folder.write("generation_config.json",
               R"({"max_new_tokens":7,"min_new_tokens":2,"early_stopping":"never","do_sample":true,
    "repetition_penalty":1.2,"no_repeat_ngram_size":3,"eos_token_id":[5,5,2]})");
  const T5 both(folder.path());
  CHECK(both.defaults().num_beams == 1);
  CHECK(both.defaults().max_length == 8);
  CHECK(both.defaults().min_length == 3);
  CHECK(both.defaults().no_repeat_ngram_size == 3);
  CHECK(both.defaults().early_stopping == EarlyStopping::never);
  CHECK(both.config().eos_token_ids == std::vector<Index>{2, 5});
  CHECK(both.config().unsupported == std::vector<std::string>{"do_sample", "repetition_penalty"});
}

TEST_CASE("calls that make no sense") {
  const Folder folder;
  write_t5(folder, {});
  const T5 t5(folder.path());
  const std::vector<std::vector<Index>> good{{4, 1}};
  const auto generate = [&](const std::vector<std::vector<Index>>& inputs, const GenerateOptions& options) {
    return [&t5, inputs, options] { static_cast<void>(t5.generate(inputs, options)); };
  };
  check_refused("input 1 has no tokens", generate({{4, 1}, {}}, {}));
  check_refused("input 0 has the token 61 at 1", generate({{4, 61}}, {}));
  check_refused("token -1", generate({{-1}}, {}));
  check_refused("num_beams is 0", generate(good, {.num_beams = 0}));
  check_refused("num_beams is 30", generate(good, {.num_beams = 30}));
  check_refused("max_length is 1", generate(good, {.max_length = 1}));
  check_refused("min_length is -1", generate(good, {.min_length = -1}));
  check_refused("no_repeat_ngram_size", generate(good, {.no_repeat_ngram_size = -2}));
  check_refused("num_threads", generate(good, {.num_threads = -1}));
  check_refused("length_penalty", generate(good, {.length_penalty = std::numeric_limits<double>::quiet_NaN()}));
  check_refused("length_penalty", generate(good, {.length_penalty = 1e9}));
  check_refused("the input has no tokens", [&] { static_cast<void>(t5.encode({})); });
  check_refused("the output has the token 99",
                [&] { static_cast<void>(t5.logits(good[0], std::vector<Index>{0, 99})); });
  CHECK(t5.generate({}, {}).empty());
  CHECK(t5.generate(good, {.max_length = 2}).front().size() == 2);
}

TEST_CASE("options of a call at both ends of what they may be") {
  // 61 tokens, of which 5 end: 61 / 6 beams. Without tokens that end, 61 / 2.
  for (const auto& [ends, most] : {std::pair("[1,7,11,20,33]", Index{10}), {"[1,7]", 20}, {"1", 30}, {"[]", 30}}) {
    const Folder folder;
    write_t5(folder, {});
    folder.write("config.json", config_with("eos_token_id", ends));
    const T5 t5(folder.path());
    const std::vector<std::vector<Index>> good{{60, 0}};
    const auto generate = [&](const GenerateOptions& options) { return t5.generate(good, options).front(); };
    CHECK(generate({.num_beams = most, .max_length = 4}).size() <= 4);
    check_refused("num_beams", [&] { generate({.num_beams = most + 1, .max_length = 4}); });
    for (const double penalty : {-100.0, 100.0})
      CHECK(generate({.num_beams = 2, .max_length = 4, .length_penalty = penalty}).size() <= 4);
    for (const double penalty : {-100.1, 100.1})
      check_refused("length_penalty", [&] { generate({.length_penalty = penalty}); });
    CHECK(generate({.max_length = 2}).size() == 2);
    CHECK(generate({.max_length = 5, .min_length = 5}).size() == 5);
    CHECK(generate({.max_length = 5, .min_length = 1000}).size() == 5);
    CHECK(generate({.max_length = 5, .no_repeat_ngram_size = 1000}).size() <= 5);
    if (std::string_view(ends) == "[]") CHECK(generate({.max_length = 9}).size() == 9);
  }
}
