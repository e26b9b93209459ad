// T5 settings: every default, every limit at both ends, and which file overrides which.
#include "files.hpp"
#include "t5/config.hpp"

#include <doctest/doctest.h>

#include <map>

using namespace headlane;
using namespace headlane::models;
using namespace headlane::models::internal;
using namespace headlane::test;

namespace {

using Members = std::map<std::string, std::string>;
const Members needed{{"vocab_size", "100"}, {"d_model", "24"},  {"d_kv", "5"},
                     {"d_ff", "40"},        {"num_heads", "3"}, {"num_layers", "7"}};

std::string text_of(const Members& members) {
  std::string text;
  for (const auto& [key, value] : members)
    text.append(text.empty() ? "{\"" : ",\"").append(key).append("\":").append(value);
  return text.empty() ? "{}" : text + "}";
}

/// config.json has what is needed, and these.
T5Config read(const Members& members, const Members* generation = nullptr) {
  const Folder folder;
  Members all = members;
  all.insert(needed.begin(), needed.end());
  folder.write("config.json", text_of(all));
  if (generation != nullptr) folder.write("generation_config.json", text_of(*generation));
  return read_t5_config(folder.path());
}

void check_defaults(const GenerateOptions& options) {
  CHECK(options.num_beams == 1);
  CHECK(options.max_length == 21);
  CHECK(options.min_length == 0);
  CHECK(options.length_penalty == 1.0);
  CHECK(options.early_stopping == EarlyStopping::no);
  CHECK(options.no_repeat_ngram_size == 0);
  CHECK(options.num_threads == 0);
}

}  // namespace

TEST_CASE("the defaults of T5's config") {
  for (const Members& members : {Members{}, Members{{"model_type", "\"t5\""}}}) {
    const T5Config config = read(members);
    CHECK(config.vocab_size == 100);
    CHECK(config.d_model == 24);
    CHECK(config.d_kv == 5);
    CHECK(config.d_ff == 40);
    CHECK(config.num_heads == 3);
    CHECK(config.num_layers == 7);
    CHECK(config.num_decoder_layers == 7);
    CHECK(config.relative_attention_num_buckets == 32);
    CHECK(config.relative_attention_max_distance == 128);
    CHECK(config.layer_norm_epsilon == 1e-6f);
    CHECK(config.activation == Activation::relu);
    CHECK_FALSE(config.gated);
    CHECK(config.scale_decoder_outputs);
    CHECK(config.pad_token_id == 0);
    CHECK(config.decoder_start_token_id == 0);
    CHECK(config.eos_token_ids == std::vector<Index>{1});
    CHECK(config.tasks.empty());
    CHECK(config.unsupported.empty());
    check_defaults(config.options);
  }
  const T5Config mt5 = read({{"model_type", "\"mt5\""}});
  CHECK(mt5.gated);
  CHECK(mt5.activation == Activation::gelu_tanh);
  CHECK_FALSE(mt5.scale_decoder_outputs);
  for (const auto& [key, value] : needed) {
    const Folder folder;
    Members others = needed;
    others.erase(key);
    folder.write("config.json", text_of(others));
    check_says(message_of([&] { read_t5_config(folder.path()); }), {"config.json", "'" + key + "' is missing"});
  }
}

TEST_CASE("the start token: said, or the padding's, or 0") {
  CHECK(read({{"pad_token_id", "5"}}).decoder_start_token_id == 5);
  CHECK(read({{"pad_token_id", "5"}}).pad_token_id == 5);
  CHECK(read({{"pad_token_id", "null"}}).decoder_start_token_id == 0);
  CHECK(read({{"pad_token_id", "5"}, {"decoder_start_token_id", "9"}}).decoder_start_token_id == 9);
  CHECK(read({{"pad_token_id", "5"}, {"bos_token_id", "7"}}).decoder_start_token_id == 7);  // as in transformers
  CHECK(read({{"bos_token_id", "-7"}, {"decoder_start_token_id", "9"}}).decoder_start_token_id == 9);
  const Members empty, said{{"decoder_start_token_id", "8"}, {"pad_token_id", "6"}, {"eos_token_id", "[4,3,4]"}};
  const Members members{{"pad_token_id", "5"}, {"decoder_start_token_id", "9"}, {"eos_token_id", "2"}};
  const T5Config one = read(members, &empty), other = read(members, &said);
  CHECK(one.decoder_start_token_id == 9);
  CHECK(one.pad_token_id == 5);
  CHECK(one.eos_token_ids == std::vector<Index>{2});
  CHECK(other.decoder_start_token_id == 8);
  CHECK(other.pad_token_id == 6);
  CHECK(other.eos_token_ids == std::vector<Index>{3, 4});
  CHECK(read({{"eos_token_id", "[]"}}).eos_token_ids.empty());
  CHECK(read({{"eos_token_id", "null"}}).eos_token_ids == std::vector<Index>{1});
}

TEST_CASE("whether the decoder's output is scaled") {
  const auto scaled = [](const Members& members) { return read(members).scale_decoder_outputs; };
  const Members tied{{"tie_word_embeddings", "true"}}, untied{{"tie_word_embeddings", "false"}};
  CHECK(scaled(tied));
  CHECK_FALSE(scaled(untied));
  for (const bool said : {false, true})
    for (Members members : {Members{}, tied, untied}) {
      members["scale_decoder_outputs"] = said ? "true" : "false";
      CHECK(scaled(members) == said);
      members["model_type"] = "\"mt5\"";
      CHECK_FALSE(scaled(members));
    }
}

TEST_CASE("activations by their names") {
  const struct {
    const char* name;
    Activation activation;
    bool gated;
  } cases[]{{"relu", Activation::relu, false},
            {"gelu", Activation::gelu, false},
            {"gelu_new", Activation::gelu_tanh, false},
            {"gelu_pytorch_tanh", Activation::gelu_tanh, false},
            {"gelu_fast", Activation::gelu_tanh, false},
            {"silu", Activation::silu, false},
            {"swish", Activation::silu, false},
            {"gated-gelu", Activation::gelu_tanh, true},
            {"gated-gelu_new", Activation::gelu_tanh, true},
            {"gated-silu", Activation::silu, true},
            {"gated-relu", Activation::relu, true}};
  for (const auto& [name, activation, gated] : cases) {
    INFO(name);
    const T5Config config = read({{"feed_forward_proj", std::string("\"") + name + "\""}});
    CHECK(config.activation == activation);
    CHECK(config.gated == gated);
  }
}

TEST_CASE("dense_act_fn and is_gated_act are preferred to feed_forward_proj, as in transformers") {
  const auto read_with = [](const std::string& name, const std::string& own, const std::string& gated) {
    return read({{"feed_forward_proj", '"' + name + '"'}, {"dense_act_fn", '"' + own + '"'}, {"is_gated_act", gated}});
  };
  CHECK(read_with("gated-gelu", "relu", "true").activation == Activation::relu);
  CHECK(read_with("gated-gelu", "gelu", "true").activation == Activation::gelu);
  CHECK(read_with("relu", "gelu_new", "true").activation == Activation::gelu_tanh);
  CHECK(read_with("relu", "relu", "true").gated);
  CHECK(!read_with("gated-silu", "silu", "false").gated);
  CHECK(read({{"feed_forward_proj", "\"gated-gelu\""}, {"is_gated_act", "null"}}).gated);
  CHECK_THROWS_WITH_AS(read_with("relu", "tanh", "false"), doctest::Contains("'dense_act_fn' is 'tanh'"),
                       CheckpointError);
}

TEST_CASE("numbers at both ends of what they may be") {
  const struct {
    const char *key, *below, *low, *high, *above;
  } cases[]{{"vocab_size", "1", "2", "16777216", "16777217"},
            {"d_model", "0", "1", "1048576", "1048577"},
            {"d_kv", "0", "1", "512", "513"},
            {"d_ff", "0", "1", "1048576", "1048577"},
            {"num_heads", "0", "1", "1024", "1025"},
            {"num_layers", "0", "1", "1024", "1025"},
            {"num_decoder_layers", "0", "1", "1024", "1025"},
            {"relative_attention_num_buckets", "3", "4", "254", "256"},  // 128 apart have buckets of their own
            {"relative_attention_max_distance", "16", "17", "1099511627776", "1099511627777"},
            {"layer_norm_epsilon", "-1e-9", "0", "1", "1.01"},
            {"pad_token_id", "-1", "0", "1", "100"},
            {"decoder_start_token_id", "-1", "0", "1", "100"},
            {"bos_token_id", "-1", "0", "1", "100"},
            {"eos_token_id", "-1", "0", "1", "100"},
            {"num_beams", "0", "1", "1024", "1025"},
            {"max_length", "1", "2", "1099511627776", "1099511627777"},
            {"max_new_tokens", "0", "1", "1099511627776", "1099511627777"},
            {"min_length", "-1", "0", "1099511627776", "1099511627777"},
            {"min_new_tokens", "-1", "0", "1099511627776", "1099511627777"},
            {"length_penalty", "-100.1", "-100", "100", "100.1"},
            {"no_repeat_ngram_size", "-1", "0", "1099511627776", "1099511627777"}};
  for (const auto& [key, below, low, high, above] : cases) {
    INFO(key);
    Members at{{"eos_token_id", "1"}};
    for (const char* good : {low, high}) {
      at[key] = good;
      CHECK_NOTHROW(read(at));
    }
    for (const char* wrong : {below, above}) {
      at[key] = wrong;
      CHECK_MESSAGE(message_of([&] { read(at); }) != "no error", wrong);
    }
  }
  CHECK(read({{"eos_token_id", "99"}, {"pad_token_id", "99"}}).pad_token_id == 99);
  CHECK(message_of([] { read({{"relative_attention_num_buckets", "5"}}); }) != "no error");
  CHECK(message_of([] { read({{"relative_attention_num_buckets", "1026"}}); }) != "no error");
  const Members wide{{"relative_attention_num_buckets", "1024"}, {"relative_attention_max_distance", "513"}};
  CHECK(read(wide).relative_attention_num_buckets == 1024);
}

TEST_CASE("settings of generation, of which file they are, and of a task") {
  const Members said{{"num_beams", "3"},        {"max_length", "40"},          {"min_length", "4"},
                     {"length_penalty", "0.5"}, {"no_repeat_ngram_size", "2"}, {"early_stopping", "true"}};
  const auto check_said = [](const GenerateOptions& options) {
    CHECK(options.num_beams == 3);
    CHECK(options.max_length == 40);
    CHECK(options.min_length == 4);
    CHECK(options.length_penalty == 0.5);
    CHECK(options.no_repeat_ngram_size == 2);
    CHECK(options.early_stopping == EarlyStopping::yes);
  };
  check_said(read(said).options);
  const Members empty;
  check_defaults(read(said, &empty).options);  // as transformers: generation_config.json alone counts
  check_said(read({}, &said).options);
  Members with_tasks = said;
  with_tasks["task_specific_params"] =
      R"({"a":{},"b":{"prefix":"p","early_stopping":false,"max_new_tokens":6,"min_new_tokens":0},)"
      R"("c":{"num_beams":1},"d":null})";
  const T5Config config = read(with_tasks);
  CHECK(config.tasks.size() == 3);
  check_said(config.tasks.at("a").options);
  CHECK(config.tasks.at("a").prefix.empty());
  CHECK(config.tasks.at("b").prefix == "p");
  CHECK(config.tasks.at("b").options.early_stopping == EarlyStopping::no);
  CHECK(config.tasks.at("b").options.max_length == 7);
  CHECK(config.tasks.at("b").options.min_length == 1);
  CHECK(config.tasks.at("c").options.num_beams == 1);
  CHECK(config.tasks.at("c").options.max_length == 40);
  CHECK(read({{"max_length", "50"}, {"max_new_tokens", "5"}}).options.max_length == 6);
  CHECK(read({{"early_stopping", "\"never\""}}).options.early_stopping == EarlyStopping::never);
  CHECK(read({{"early_stopping", "false"}}).options.early_stopping == EarlyStopping::no);
}

TEST_CASE("settings of generation that are not supported are named, if they change anything") {
  const struct {
    const char *key, *without, *with;
  } cases[]{{"do_sample", "false", "true"},
            {"remove_invalid_values", "false", "true"},
            {"renormalize_logits", "false", "true"},
            {"repetition_penalty", "1.0", "1.1"},
            {"encoder_repetition_penalty", "1", "0.9"},
            {"guidance_scale", "1.0", "3"},
            {"num_beam_groups", "1", "2"},
            {"num_return_sequences", "1", "2"},
            {"encoder_no_repeat_ngram_size", "0", "1"},
            {"bad_words_ids", "null", "[[3]]"},
            {"forced_bos_token_id", "null", "3"},
            {"forced_eos_token_id", "null", "3"},
            {"suppress_tokens", "null", "[3]"},
            {"begin_suppress_tokens", "null", "[3]"},
            {"sequence_bias", "null", "{}"},
            {"exponential_decay_length_penalty", "null", "[1, 2]"},
            {"penalty_alpha", "null", "0.5"},
            {"constraints", "null", "[]"},
            {"stop_strings", "null", "[\"x\"]"}};
  Members all;
  for (const auto& [key, without, with] : cases) {
    INFO(key);
    CHECK(read({{key, without}}).unsupported.empty());
    CHECK(read({{key, with}}).unsupported == std::vector<std::string>{key});
    all[key] = with;
  }
  CHECK(read(all).unsupported.size() == std::size(cases));
  CHECK(read({}, &all).unsupported.size() == std::size(cases));
  const Members empty;
  CHECK(read(all, &empty).unsupported.empty());
}
