// Text in, text out: the small model that comes along, its task, prefixes, and texts that say nothing.
#include <doctest/doctest.h>
#include <headlane/models/text.hpp>

#include <filesystem>

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
