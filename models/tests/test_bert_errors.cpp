// What Bert refuses, and in which words.
#include "bert_case.hpp"
#include "support/illegal.hpp"

namespace headlane::test {
namespace {

using models::Bert;
using models::Pooling;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("settings that make no BERT") {
  BertCase given;
  given.make(1);
  const Folder folder;
  given.write(folder);
  const std::string good = given.config();
  struct Wrong {
    std::string from, to;
    std::vector<std::string> words;
  };
  const std::vector<Wrong> wrong{
      {R"("bert")", R"("roberta")", {"'model_type'", "'roberta'", "'bert'"}},
      {R"("bert")", R"("distilbert")", {"'model_type'", "'distilbert'"}},
      {R"("model_type": "bert", )", "", {"'model_type'", "missing"}},
      {R"("model_type")", R"("is_decoder": true, "model_type")", {"'is_decoder'", "true"}},
      {R"("model_type")",
       R"("position_embedding_type": "relative_key", "model_type")",
       {"'position_embedding_type'", "'relative_key'", "'absolute'"}},
      {R"("bert")", R"("albert")", {"'model_type'", "'albert'", "'bert'"}},
      {R"("bert")", R"("roberta")", {"'model_type'", "'roberta'", "'bert'"}},
      {R"("gelu")", R"("mish")", {"'hidden_act'", "'mish'", "gelu_new"}},
      {R"("vocab_size": 50)", R"("vocab_size": 0)", {"'vocab_size'", "0"}},
      {R"("vocab_size": 50)", R"("vocab_size": 51)", {"word_embeddings", "51", "50"}},
      {R"("vocab_size": 50)", R"("vocab_size": "50")", {"'vocab_size'", "integer"}},
      {R"("hidden_size": 24, )", "", {"'hidden_size'", "missing"}},
      {R"("hidden_size": 24)", R"("hidden_size": -24)", {"'hidden_size'", "-24"}},
      {R"("num_attention_heads": 3)", R"("num_attention_heads": 5)", {"'num_attention_heads'", "5", "24"}},
      {R"("num_attention_heads": 3)", R"("num_attention_heads": 0)", {"'num_attention_heads'", "0"}},
      {R"("num_hidden_layers": 2)", R"("num_hidden_layers": 3)", {"encoder.layer.2."}},
      {R"("intermediate_size": 40)", R"("intermediate_size": 41)", {"intermediate.dense", "41", "40"}},
      {R"("max_position_embeddings": 36)", R"("max_position_embeddings": 37)", {"position_embeddings", "37"}},
      {R"("type_vocab_size": 2)", R"("type_vocab_size": 1)", {"token_type_embeddings", "2", "1"}},
      {R"(1e-12)", R"(-1)", {"'layer_norm_eps'", "-1"}},
  };
  for (const Wrong& one : wrong) {
    folder.write("config.json", replaced(good, one.from, one.to));
    check_says(message_of([&] { const Bert bert(folder.path()); }), one.words);
  }
  // Heads of more than 512.
  BertCase wide;
  wide.d = 520;
  wide.heads = 1;
  folder.write("config.json", wide.config());
  check_says(message_of([&] { const Bert bert(folder.path()); }),
             {"config.json", "'num_attention_heads'", "520", "512"});
  folder.remove("config.json");
  check_says(message_of([&] { const Bert bert(folder.path()); }), {"config.json"});
}

TEST_CASE("every tensor is needed") {
  BertCase given;
  given.layers = 1;
  given.make(1);
  const Folder folder;
  for (const auto& [name, weight] : given.weights) {
    given.write(folder, "", name);
    check_says(message_of([&] { const Bert bert(folder.path()); }), {name});
  }
}

TEST_CASE("folders of sentence-transformers with what is not there") {
  BertCase given;
  given.make(1);
  const Folder folder;
  given.write(folder);
  std::filesystem::create_directory(folder.path() / "1_Pooling");
  const std::string transformer = R"({"type": "sentence_transformers.models.Transformer", "path": ""})",
                    pooling = R"({"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"})",
                    normalize = R"({"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"})",
                    dense = R"({"type": "sentence_transformers.models.Dense", "path": "2_Dense"})";
  const auto says = [&](const std::string& modules, const std::vector<std::string>& words) {
    folder.write("modules.json", modules);
    check_says(message_of([&] { const Bert bert(folder.path()); }), words);
  };
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  says("[" + transformer + "," + pooling + "," + dense + "]", {"modules.json", "module 2", "Dense"});
  says("[" + pooling + "," + transformer + "]", {"modules.json", "module 0", "Pooling"});
  says("[" + transformer + "," + pooling + "," + normalize + "," + normalize + "]", {"modules.json", "module 3"});
  says("[]", {"modules.json", "no modules"});
  says("{}", {"modules.json", "list"});
  says("[", {"modules.json"});
  says("[1]", {"modules.json", "module 0", "object"});
  says(R"([{"type": 1}])", {"modules.json", "module 0", "'type'"});
  says("[" + replaced(transformer, R"("path": "")", R"("path": "../x")") + "]", {"modules.json", "'../x'"});
  says("[" + replaced(transformer, R"("path": "")", R"("path": "/etc")") + "]", {"modules.json", "'/etc'"});
  struct Wrong {
    std::string text;
    std::vector<std::string> words;
  };
  const std::vector<Wrong> wrong{
      {R"({"pooling_mode": "median"})", {"1_Pooling", "config.json", "'pooling_mode'", "'median'", "lasttoken"}},
      {R"({"pooling_mode": "none"})", {"1_Pooling", "'none'"}},
      {R"({"pooling_mode": []})", {"1_Pooling", "0 kinds"}},
      {R"({"pooling_mode": ["mean", "x"]})", {"1_Pooling", "'x'"}},
      {R"({"temperature": 2})", {"1_Pooling", "'temperature'"}},
      {R"({"pooling_mode_mean_tokens": 1})", {"1_Pooling", "'pooling_mode_mean_tokens'"}}};
  const std::string modules = std::string("[").append(transformer).append(",").append(pooling).append("]");
  for (const Wrong& one : wrong) {
    folder.write("1_Pooling/config.json", one.text);
    says(modules, one.words);
  }
  says("[" + replaced(transformer, "sentence_transformers.models", "mine") + "]", {"modules.json", "module 0", "mine"});
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  // Limits below 1; none; one beyond the model's; of sentences before that of the tokenizer.
  const struct {
    const char *sentences, *tokenizer;
    Index wanted;
  } limits[]{{R"({"max_seq_length": 0})", "{}", 0},
             {"{}", R"({"model_max_length": 0.5})", 0},
             {"{}", "{}", 36},
             {R"({"max_seq_length": null})", R"({"model_max_length": null})", 36},
             {R"({"max_seq_length": 1000})", R"({"model_max_length": 5})", 36},
             {R"({"max_seq_length": null})", R"({"model_max_length": 1e30})", 36},
             {R"({"max_seq_length": null})", R"({"model_max_length": 37})", 36},
             {R"({"max_seq_length": null})", R"({"model_max_length": 35})", 35},
             {R"({"max_seq_length": 1})", R"({"model_max_length": 35})", 1},
             {R"({"do_lower_case": false})", R"({"max_len": 7})", 7},
             {"{}", R"({"model_max_length": 1, "max_len": 7})", 1}};
  folder.write("modules.json", modules);
  for (const auto& limit : limits) {
    INFO(limit.sentences, " ", limit.tokenizer);
    folder.write("sentence_bert_config.json", limit.sentences);
    folder.write("tokenizer_config.json", limit.tokenizer);
    if (limit.wanted > 0) CHECK(Bert(folder.path()).config().max_seq_length == limit.wanted);
    else check_says(message_of([&] { const Bert bert(folder.path()); }), {"_config.json", "_length' is 0"});
  }
  // The states of tokens alone.
  folder.write("modules.json", "[" + transformer + "]");
  CHECK(Bert(folder.path()).config().pooling == std::vector{Pooling::none});
}

TEST_CASE("calls that are refused leave the result alone") {
  BertCase given;
  given.make(1);
  const Folder folder;
  given.write(folder);
  const Bert bert(folder.path());
  const Sentences good = given.sentences({4, 9, 2}, 6);
  const Tensor<2> out({3, 24}), states({15, 24});
  std::vector<Illegal> calls;
  const auto add_ids = [&](const std::string& what, const Sentences& ids, std::vector<std::string> words) {
    words.emplace_back("embed");
    calls.push_back({what, [&bert, &out, ids] { bert.embed(ids, out.view); }, words});
    words.back() = "encode";
    calls.push_back({what, [&bert, &states, ids] { bert.encode(ids, states.view); }, words});
  };
  const auto with = [&](std::size_t s, std::size_t i, Index id) {
    Sentences ids = good;
    ids[s][i] = id;
    return ids;
  };
  add_ids("no sentences", {}, {"no sentences"});
  Sentences empty = good;
  empty[1].clear();
  add_ids("a sentence without tokens", empty, {"ids[1]", "empty"});
  add_ids("an id too large", with(1, 8, 50), {"ids[1][8]", "50", "49"});
  add_ids("an id below 0", with(2, 1, -1), {"ids[2][1]", "-1", "49"});
  add_ids("a huge id", with(0, 0, huge), {"ids[0][0]", std::to_string(huge)});
  Sentences longer = good;
  longer[0].assign(37, 1);
  add_ids("too many tokens", longer, {"ids[0]", "37", "36", "truncate"});
  const auto add_types = [&](const std::string& what, const Sentences& types, std::vector<std::string> words) {
    words.emplace_back("token_type_ids");
    calls.push_back(
        {what, [&bert, &good, &out, types] { bert.embed(good, out.view, {.token_type_ids = types}); }, words});
    calls.push_back(
        {what, [&bert, &good, &states, types] { bert.encode(good, states.view, {.token_type_ids = types}); }, words});
  };
  add_types("types for fewer sentences", {{0, 0, 0, 0}}, {"1", "3"});
  add_types("types for fewer tokens", {{0, 0, 0, 0}, {1, 1}, {0, 0}}, {"[1]", "2", "9"});
  Sentences types{{0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0, 2}, {0, 0}};
  add_types("a type too large", types, {"[1][8]", "2", "1"});
  const auto add_out = [&](const std::string& what, const View<float, 2>& view, std::vector<std::string> words) {
    words.emplace_back("out");
    calls.push_back({what, [&bert, &good, view] { bert.embed(good, view); }, words});
  };
  add_out("fewer rows", with_size(out.view, 0, 2), {"[2, 24]", "[3, 24]"});
  add_out("more columns", with_size(out.view, 1, 25), {"[3, 25]", "[3, 24]"});
  add_out("null", {nullptr, {3, 24}}, {"null"});
  add_out("rows that are one", with_stride(out.view, 0, 0), {"overlap"});
  add_out("columns that are one", with_stride(out.view, 1, 0), {"overlap"});
  add_out("rows that overlap", with_stride(out.view, 0, 23), {"overlap"});
  calls.push_back(
      {"tokens where sentences are wanted", [&] { bert.embed(good, states.view); }, {"[15, 24]", "[3, 24]"}});
  calls.push_back({"sentences where tokens are wanted",
                   [&] { bert.embed(good, out.view, {.pooling = Pooling::none}); },
                   {"[3, 24]", "[15, 24]"}});
  std::filesystem::create_directory(folder.path() / "1_Pooling");
  folder.write("1_Pooling/config.json", R"({"include_prompt": false})");
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
  const Bert instructed(folder.path());
  calls.push_back({"a prompt that is all",
                   [&] { instructed.embed(good, out.view, {.prompt_tokens = 2}); },
                   {"ids[2]", "2 tokens", "prompt_tokens is 2"}});
  calls.push_back({"a prompt that is all of what is left",
                   [&] { instructed.embed(longer, out.view, {.truncate = true, .prompt_tokens = 36}); },
                   {"ids[0]", "36 tokens", "prompt_tokens is 36"}});
  calls.push_back(
      {"a prompt below 0", [&] { bert.embed(good, out.view, {.prompt_tokens = -1}); }, {"prompt_tokens", "-1"}});
  calls.push_back({"threads below 0", [&] { bert.embed(good, out.view, {.num_threads = -1}); }, {"num_threads", "-1"}});
  check_illegal(calls, [&] { return all_sentinels(out.view) && all_sentinels(states.view); });
}

}  // namespace headlane::test
