// Text in, text out: the small model that comes along, its task, prefixes, and texts that say
// nothing.
#include "files.hpp"

#include <doctest/doctest.h>
#include <headlane/models/text.hpp>

#include <filesystem>
#include <functional>
#include <utility>

using headlane::models::Translator;
using Texts = std::vector<std::string>;

namespace {

const std::filesystem::path folder = HEADLANE_LITTLE_MODEL;

}  // namespace

TEST_CASE("a translation, and the task that it is of") {
  const Translator translator(folder);
  CHECK(translator.task() == "translation_en_to_fr");
  CHECK(translator.prefix() == "translate English to French: ");
  CHECK(translator.defaults().num_beams == 4);
  CHECK(translator.defaults().max_length == 64);
  CHECK(translator.translate(Texts{"The cat is small."}, translator.defaults()) == Texts{"Le chat est petit."});
  CHECK_THROWS_AS(Translator(folder, {.task = "translation_en_to_de"}), std::invalid_argument);
}

TEST_CASE("moved from: every call is an error, until it is assigned to") {
  Translator from(folder);
  Translator translator = std::move(from);
  // NOLINTBEGIN(bugprone-use-after-move): what is tested
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"Translator::model", [&] { (void)from.model(); }},
      {"Translator::task", [&] { (void)from.task(); }},
      {"Translator::prefix", [&] { (void)from.prefix(); }},
      {"Translator::defaults", [&] { (void)from.defaults(); }},
      {"Translator::translate", [&] { (void)from.translate(Texts{"The cat is small."}, {}); }},
      {"Translator::tokenize", [&] { (void)from.tokenize("The cat"); }},
      {"Translator::detokenize", [&] { (void)from.detokenize({}); }},
      {"Translator::unknown", [&] { (void)from.unknown("The cat"); }}};
  // NOLINTEND(bugprone-use-after-move)
  for (const auto& [name, call] : calls)
    CHECK_THROWS_WITH_AS(call(), (name + std::string(": the translator was moved from")).c_str(),
                         std::invalid_argument);
  from = std::move(translator);
  CHECK(from.translate(Texts{"The cat is small."}, from.defaults()) == Texts{"Le chat est petit."});
}

TEST_CASE("a prefix stands in place of the task's, whose options stay") {
  const Translator translator(folder, {.prefix = "translate English to French: "});
  CHECK(translator.task() == "translation_en_to_fr");
  CHECK(translator.defaults().num_beams == 4);
  CHECK(translator.translate(Texts{"The cat is small."}, translator.defaults()) == Texts{"Le chat est petit."});
  const Translator other(folder, {.prefix = ""});
  CHECK(other.prefix().empty());
  CHECK(other.tokenize("The cat") != translator.tokenize("The cat"));
}

TEST_CASE("texts of which nothing is left have an empty translation, among others and alone") {
  const Translator translator(folder);
  const Texts blanks{"",
                     " ",
                     "\t\r\n",
                     "\xc2\xa0",
                     "\xe2\x80\x83\xe2\x80\xa8",
                     "\xe2\x80\x8b",
                     "\xe3\x80\x80",
                     " \xe3\x80\x80\xef\xbb\xbf\xe2\x80\x8b"};
  CHECK(translator.translate(blanks, translator.defaults()) == Texts(blanks.size()));
  for (const std::string& blank : blanks) {
    CHECK(translator.translate(Texts{blank}, translator.defaults()) == Texts{""});
    CHECK(translator.translate(Texts{blank, "The cat is small.", blank}, translator.defaults()) ==
          Texts{"", "Le chat est petit.", ""});
  }
  CHECK(translator.translate(Texts{}, translator.defaults()).empty());
}

namespace {

/// The model with these tasks.
void write_with_tasks(const headlane::test::Folder& to, const std::string& tasks) {
  std::ifstream in(folder / "config.json");
  std::string config(std::istreambuf_iterator<char>(in), {});
  const std::size_t begin = config.find("\"task_specific_params\""), end = config.find("\"tie_word_embeddings\"");
  to.write("config.json",
           config.replace(begin, end - begin, std::string("\"task_specific_params\": ").append(tasks).append(", ")));
  for (const char* name : {"generation_config.json", "model.safetensors", "spiece.model", "words.txt"})
    std::filesystem::copy_file(folder / name, to.path() / name);
}

std::string refusal(const std::filesystem::path& from, const headlane::models::TranslatorOptions& options = {}) {
  try {
    const Translator translator(from, options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("which task is meant, if none is named") {
  const struct {
    const char *tasks, *task;
  } cases[]{{"{}", ""},
            {R"({"summarization": {"prefix": "s"}})", "summarization"},
            {R"({"summarization": {}, "other": {}})", ""},
            {R"({"summarization": {}, "translation_en_to_fr": {"prefix": "f"}})", "translation_en_to_fr"}};
  for (const auto& [tasks, task] : cases) {
    const headlane::test::Folder to;
    write_with_tasks(to, tasks);
    CHECK(Translator(to.path()).task() == task);
    CHECK(Translator(to.path(), {.prefix = "x"}).task() == task);
    CHECK(Translator(to.path(), {.prefix = "x"}).prefix() == "x");
  }
  const headlane::test::Folder several;
  write_with_tasks(several, R"({"translation_a": {"prefix": "a", "num_beams": 2}, "translation_b": {}, "c": {}})");
  headlane::test::check_says(refusal(several.path()), {"several tasks", "translation_a", "translation_b"});
  headlane::test::check_says(refusal(several.path(), {.task = "d"}), {"no task 'd'", "translation_a"});
  CHECK(Translator(several.path(), {.prefix = "x"}).task().empty());
  CHECK(Translator(several.path(), {.prefix = "x"}).defaults().num_beams == 1);
  const Translator named(several.path(), {.task = "translation_a"});
  CHECK(named.prefix() == "a");
  CHECK(named.defaults().num_beams == 2);
}

TEST_CASE("tokens that mean no text are left out") {
  const Translator translator(folder);
  const auto tokens = translator.tokenize("The cat");
  CHECK(tokens.back() == 1);
  CHECK(translator.detokenize(tokens) == "translate English to French: The cat");
  std::vector<headlane::Index> more{0, -1, 1 << 30, 1600, 2};
  more.insert(more.end(), tokens.begin(), tokens.end());
  more.insert(more.end(), {0, 2, 1});
  CHECK(translator.detokenize(more) == "translate English to French: The cat");
  CHECK(translator.detokenize({}).empty());
}

TEST_CASE("a token that ends sentences means no text, also where it is an ordinary piece") {
  const headlane::test::Folder to;
  const headlane::Index piece = Translator(folder).tokenize("The cat")[0];
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::string content(std::istreambuf_iterator<char>(in), {});
    const std::string one = "\"eos_token_id\": 1";
    if (const std::size_t at = content.find(one); entry.path().extension() == ".json" && at != std::string::npos)
      content.replace(at, one.size(), "\"eos_token_id\": [1, " + std::to_string(piece) + "]");
    to.write(entry.path().filename().string(), content);
  }
  const Translator translator(to.path());
  CHECK(translator.model().config().eos_token_ids == std::vector<headlane::Index>{1, piece});
  CHECK(translator.detokenize(std::vector{piece, piece}).empty());
}

TEST_CASE("words that the model does not know, each once") {
  const Translator translator(folder);
  CHECK(translator.unknown("The cat isn't small.").empty());
  CHECK(translator.unknown("The cat's").empty());  // its part before the apostrophe is enough
  CHECK(translator.unknown("The quetzal, the Quetzal and the cat") == Texts{"quetzal"});
  CHECK(translator.unknown("The quetzal's zyx") == Texts{"quetzal's", "zyx"});
  CHECK(translator.unknown("A cat \xe2\x98\x83") == Texts{"\xe2\x98\x83"});
  CHECK(translator.unknown("").empty());
}

TEST_CASE("a vocabulary that is just as large as SentencePiece's, and one that is too small") {
  const headlane::test::Folder to;
  write_with_tasks(to, "{}");
  std::filesystem::remove(to.path() / "spiece.model");
  CHECK(headlane::test::message_of([&] { const Translator t(to.path()); }).find("spiece.model: is missing") !=
        std::string::npos);
  to.write("spiece.model", "nothing");
  headlane::test::check_says(headlane::test::message_of([&] { const Translator t(to.path()); }), {"spiece.model"});
  std::filesystem::remove(to.path() / "spiece.model");
  std::filesystem::create_directory(to.path() / "spiece.model");
  headlane::test::check_says(headlane::test::message_of([&] { const Translator t(to.path()); }),
                             {"spiece.model: is a folder"});
}
