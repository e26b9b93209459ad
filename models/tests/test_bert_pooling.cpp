// Pooling: the hidden states of a sentence as one embedding, and the settings of
//   sentence-transformers.
#include "bert_calls.hpp"

namespace headlane::test {

TEST_CASE("the mean adds up tokens in their order, in double, and is rounded once") {
  BertCase given;
  given.make(1);
  const Loaded loaded(given);
  const Sentences ids = given.sentences({36}, 3);
  const std::vector<float> states = encoded(*loaded.bert, ids), mean = embedded(*loaded.bert, ids);
  for (std::size_t j = 0; j < 24; ++j) {
    double sum = 0;
    for (std::size_t i = 0; i < 36; ++i) sum += states[i * 24 + j];
    CHECK(mean[j] == static_cast<float>(sum / 36));
  }
}

TEST_CASE("a weighted mean likewise; a maximum is one of the states, or NaN where there is one") {
  BertCase given;
  given.make(1);
  const Loaded loaded(given);
  const Sentences ids = given.sentences({36}, 3);
  const std::vector<float> states = encoded(*loaded.bert, ids);
  const auto embedding = [&](Pooling pooling) { return embedded(*loaded.bert, ids, {.pooling = pooling}); };
  const auto weighted = embedding(Pooling::weightedmean), root = embedding(Pooling::mean_sqrt_len_tokens),
             max = embedding(Pooling::max);
  for (std::size_t j = 0; j < 24; ++j) {
    double sum = 0, plain = 0;
    float most = states[j];
    for (std::size_t i = 0; i < 36; ++i) {
      sum += static_cast<double>(i + 1) * static_cast<double>(states[i * 24 + j]);
      plain += static_cast<double>(states[i * 24 + j]);
      most = std::max(most, states[i * 24 + j]);
    }
    CHECK(weighted[j] == static_cast<float>(sum / 666));
    CHECK(root[j] == static_cast<float>(plain / 6));
    CHECK(max[j] == most);
  }
  given.weights.at("embeddings.word_embeddings.weight").values[24 * 7] = nan;  // token 7: all its states
  given.write(loaded.folder);
  const Bert broken(loaded.folder.path());
  for (const Index place : {0, 1, 2}) {
    std::vector<Index> sentence{1, 2, 3};
    sentence[static_cast<std::size_t>(place)] = 7;
    for (const Pooling pooling : {Pooling::max, Pooling::mean})
      for (const float x : embedded(broken, Sentences{sentence}, {.pooling = pooling})) CHECK(std::isnan(x));
  }
}

// Hidden units of the last feed-forward that overflow for some tokens: the states of these tokens,
// and no others, are NaN.
TEST_CASE("max pooling: a column with a NaN in any row is NaN") {
  Index last_only = 0, first_only = 0, neither = 0;
  for (std::size_t unit = 0; unit < 40; ++unit) {
    BertCase given;
    given.activation = "relu";
    given.make(1);
    std::vector<float>& hidden = given.weights.at("encoder.layer.1.intermediate.dense.weight").values;
    for (std::size_t j = 0; j < 24; ++j) hidden[unit * 24 + j] *= 1e38f;
    std::vector<float>& output = given.weights.at("encoder.layer.1.output.dense.weight").values;
    for (std::size_t j = 0; j < 24; ++j) output[j * 40 + unit] *= 1e38f;
    const Loaded loaded(given);
    for (Index first = 0; first < given.vocab; first += 5) {
      const Sentences ids{{first, 3}};
      const std::vector<float> states = encoded(*loaded.bert, ids);
      const bool first_nan = std::isnan(states[0]), last_nan = std::isnan(states[24]);
      last_only += !first_nan && last_nan ? 1 : 0;
      first_only += first_nan && !last_nan ? 1 : 0;
      neither += !first_nan && !last_nan ? 1 : 0;
      for (const float x : embedded(*loaded.bert, ids, {.pooling = Pooling::max}))
        CHECK(std::isnan(x) == (first_nan || last_nan));
    }
  }
  CHECK(last_only > 0);
  CHECK(first_only > 0);
  CHECK(neither > 0);
}

TEST_CASE("a row for each token, normalized") {
  BertCase given;
  given.make(1);
  const Loaded loaded(given);
  const Sentences ids = given.sentences({3, 5}, 1);
  std::vector<float> out(8 * 24);
  loaded.bert->embed(ids, {out.data(), {8, 24}}, {.pooling = Pooling::none, .normalize = true});
  const std::vector<float> states = encoded(*loaded.bert, ids);
  for (std::size_t i = 0; i < 8; ++i) {
    double squares = 0;
    for (std::size_t j = 0; j < 24; ++j) squares += static_cast<double>(states[i * 24 + j]) * states[i * 24 + j];
    for (std::size_t j = 0; j < 24; ++j)
      CHECK(out[i * 24 + j] == static_cast<float>(states[i * 24 + j] / std::sqrt(squares)));
  }
}

TEST_CASE("an embedding of zeros stays one when it is normalized") {
  BertCase given;
  given.make(5);
  for (const char* name : {"encoder.layer.1.output.LayerNorm.weight", "encoder.layer.1.output.LayerNorm.bias"})
    for (float& x : given.weights.at(name).values) x = 0;
  const Loaded loaded(given);
  const Sentences ids = given.sentences({4, 1}, 6);
  for (const Pooling pooling : all_poolings)
    for (const float x : embedded(*loaded.bert, ids, {.pooling = pooling, .normalize = true})) CHECK(x == 0.0f);
}

TEST_CASE("how poolings are said: a name, a list, the flags of older versions, or nothing") {
  BertCase given;
  given.make(5);
  const Loaded loaded(given);
  std::filesystem::create_directory(loaded.folder.path() / "1_Pooling");
  loaded.folder.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
  const auto read = [&](const std::string& text) {
    loaded.folder.write("1_Pooling/config.json", text);
    const Bert bert(loaded.folder.path());
    CHECK(bert.config().include_prompt);
    CHECK(bert.embedding_size() == 24 * std::ssize(bert.config().pooling));
    return bert.config().pooling;
  };
  for (const auto& [name, pooling] : models::pooling_names) {
    if (pooling == Pooling::none) continue;
    CHECK(read(std::string(R"({"pooling_mode": ")").append(name).append(R"("})")) == Poolings{pooling});
    CHECK(read(std::string(R"({"pooling_mode": ["max", ")").append(name).append(R"("]})")) ==
          Poolings{Pooling::max, pooling});
  }
  CHECK(read("{}") == Poolings{Pooling::mean});
  CHECK(read(R"({"pooling_mode": null})") == Poolings{Pooling::mean});
  CHECK(read(R"({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": false})") == Poolings{Pooling::mean});
  CHECK(read(R"({"pooling_mode": "cls", "pooling_mode_max_tokens": true})") == Poolings{Pooling::cls});
  CHECK(read(R"({"pooling_mode_lasttoken": true, "pooling_mode_weightedmean_tokens": true,
    "pooling_mode_mean_sqrt_len_tokens": true, "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true,
    "pooling_mode_cls_token": true})") == Poolings{Pooling::cls, Pooling::max, Pooling::mean,
                                                   Pooling::mean_sqrt_len_tokens, Pooling::weightedmean,
                                                   Pooling::lasttoken});
  std::string many = R"("cls")";
  for (int i = 1; i < 64; ++i) many += R"(,"cls")";
  CHECK(read(std::string(R"({"pooling_mode": [)").append(many).append("]}")).size() == 64);
  check_says(message_of([&] { read(std::string(R"({"pooling_mode": ["max",)").append(many).append("]}")); }),
             {"'pooling_mode' has 65 kinds"});
}

TEST_CASE("rows that are cut to any length") {
  BertCase given;
  given.make(5);
  const Loaded loaded(given);
  loaded.folder.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
  std::filesystem::create_directory(loaded.folder.path() / "1_Pooling");
  loaded.folder.write("1_Pooling/config.json", "{}");
  const Sentences ids = given.sentences({4}, 6);
  const std::vector<float> whole = embedded(*loaded.bert, ids);
  for (const Index size : {1, 23, 24, 25}) {
    loaded.folder.write("config_sentence_transformers.json",
                        std::string(R"({"truncate_dim": )").append(std::to_string(size)).append("}"));
    const Bert bert(loaded.folder.path());
    CHECK(bert.config().truncate_dim == size);
    CHECK(same_bits(embedded(bert, ids), {whole.begin(), whole.begin() + std::min<Index>(size, 24)}));
  }
}

TEST_CASE("several poolings side by side, a prompt that is not pooled, rows that are cut") {
  BertCase given;
  given.make(5);
  const Loaded loaded(given);
  const Folder& folder = loaded.folder;
  std::filesystem::create_directory(folder.path() / "1_Pooling");
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}])");
  folder.write("1_Pooling/config.json",
               R"({"pooling_mode": ["lasttoken", "cls", "weightedmean"], "include_prompt": false})");
  folder.write("config_sentence_transformers.json", R"({"truncate_dim": 60, "prompts": {"q": "Q: ", "none": null},
    "default_prompt_name": "q"})");
  const Bert bert(folder.path());
  CHECK(bert.config().pooling == Poolings{Pooling::lasttoken, Pooling::cls, Pooling::weightedmean});
  CHECK(!bert.config().include_prompt);
  CHECK(bert.config().prompts.size() == 4);
  CHECK(bert.config().prompts.at("q") == "Q: ");
  CHECK(bert.config().default_prompt_name == "q");
  CHECK(bert.embedding_size() == 60);
  CHECK(bert.embedding_size(Pooling::max) == 24);
  CHECK(bert.embedding_size(Pooling::none) == 24);
  const Sentences ids = given.sentences({4, 9, 36}, 6);
  for (const Index prompt : {0, 1, 3}) {
    const auto as_folder = embedded(bert, ids, {.prompt_tokens = prompt});
    const auto plain = embedded(bert, ids, {.normalize = false, .prompt_tokens = prompt});
    const auto normal = embedded(bert, ids, {.normalize = true, .prompt_tokens = prompt});
    for (std::size_t s = 0; s < ids.size(); ++s) {
      const Rows states = given.states(ids[s]);
      std::vector<double> row;
      double all = 0, kept = 0;
      for (const Pooling pooling : bert.config().pooling)
        for (const double x : BertCase::pooled(states, pooling, false, static_cast<std::size_t>(prompt)))
          row.push_back(x);
      for (std::size_t j = 0; j < row.size(); ++j) (j < 60 ? kept : all) += row[j] * row[j];
      all += kept;
      row.resize(60);
      check_close(std::span(plain).subspan(60 * s, 60), row, s);
      std::vector<double> cut = row;
      for (double& x : cut) x /= std::sqrt(kept);
      for (double& x : row) x /= std::sqrt(all);
      check_close(std::span(as_folder).subspan(60 * s, 60), row, s);
      check_close(std::span(normal).subspan(60 * s, 60), cut, s);
    }
  }
  // Pooled all the same unless the folder says otherwise; states of tokens are neither cut nor
  // left out.
  CHECK(same_bits(embedded(*loaded.bert, ids, {.prompt_tokens = 3}), embedded(*loaded.bert, ids)));
  std::vector<float> states(std::size_t{49} * 24);
  bert.embed(ids, {states.data(), {49, 24}}, {.pooling = Pooling::none, .normalize = false, .prompt_tokens = 3});
  CHECK(same_bits(states, encoded(*loaded.bert, ids)));
}

TEST_CASE("the defaults that a folder of sentence-transformers has") {
  BertCase given;
  given.make(4);
  const Loaded loaded(given);
  const Folder& folder = loaded.folder;
  CHECK(loaded.bert->config().pooling == Poolings{Pooling::mean});
  CHECK(!loaded.bert->config().normalize);
  const Sentences ids = given.sentences({4, 9}, 6);
  const auto module = [](const char* type, const char* path) {
    return std::string(R"({"type": "sentence_transformers.models.)") + type + R"(", "path": ")" + path + R"("})";
  };
  std::filesystem::create_directory(folder.path() / "1_Pooling");
  folder.write("modules.json", std::string("[") + module("Transformer", "") + "," + module("Pooling", "1_Pooling") +
                                   "," + module("Normalize", "2_Normalize") + "]");
  for (const char* pooling : {R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})",
                              R"({"pooling_mode": "cls", "word_embedding_dimension": 24})"}) {
    folder.write("1_Pooling/config.json", pooling);
    const Bert bert(folder.path());
    CHECK(bert.config().pooling == Poolings{Pooling::cls});
    CHECK(bert.config().normalize);
    CHECK(same_bits(embedded(bert, ids), embedded(*loaded.bert, ids, {.pooling = Pooling::cls, .normalize = true})));
    CHECK(same_bits(embedded(bert, ids, {.pooling = Pooling::mean, .normalize = false}), embedded(*loaded.bert, ids)));
  }
  folder.write("1_Pooling/config.json", R"({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true})");
  folder.write("modules.json",
               std::string("[") + module("Transformer", "") + "," + module("Pooling", "1_Pooling") + "]");
  const Bert mean(folder.path());
  CHECK(mean.config().pooling == Poolings{Pooling::mean});
  CHECK(!mean.config().normalize);
  // The model in a folder of its own, as older ones have it.
  std::filesystem::create_directory(folder.path() / "0_Transformer");
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::rename(folder.path() / file, folder.path() / "0_Transformer" / file);
  folder.write("0_Transformer/sentence_bert_config.json", R"({"max_seq_length": 12, "do_lower_case": false})");
  folder.write("modules.json",
               std::string("[") + module("Transformer", "0_Transformer") + "," + module("Pooling", "1_Pooling") + "]");
  const Bert apart(folder.path());
  CHECK(apart.folder() == folder.path() / "0_Transformer");
  CHECK(apart.config().max_seq_length == 12);
  CHECK(same_bits(embedded(apart, ids), embedded(*loaded.bert, ids)));
}

}  // namespace headlane::test
