// Models that were moved from: every call is an error, and they may be assigned to.
#include "bert_case.hpp"
#include "gguf_files.hpp"
#include "support/illegal.hpp"
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/bert.hpp>
#include <headlane/models/checkpoint.hpp>
#include <headlane/models/gguf.hpp>
#include <headlane/models/t5.hpp>

#include <utility>

namespace headlane::test {
namespace {

using models::Checkpoint, models::GgufFile, models::T5;

/// Each call of what was moved from, in both ways, is an error; work(), of what it was moved to
/// and is given back, is none.
template <class T, class Calls, class Work>
void check_moved(const std::filesystem::path& folder, const Calls& calls_of, const Work& work) {
  T one(folder), other(folder);
  T constructed = std::move(one);
  other = std::move(constructed);
  // NOLINTNEXTLINE(bugprone-use-after-move): what is tested
  for (T* moved : {&one, &constructed}) check_illegal(calls_of(*moved), [] { return true; });
  work(other);
  one = std::move(other);
  work(one);
}

TEST_CASE("Checkpoint") {
  const Folder folder;
  write_t5(folder, {});
  const std::string name = "shared.weight";
  check_moved<Checkpoint>(
      folder.path(),
      [&](const Checkpoint& from) -> std::vector<Illegal> {
        return {{"contains", [&] { (void)from.contains(name); }, {"Checkpoint::contains", "moved from"}},
                {"shape", [&] { (void)from.shape(name); }, {"Checkpoint::shape", "moved from"}},
                {"names", [&] { (void)from.names(); }, {"Checkpoint::names", "moved from"}},
                {"load", [&] { (void)from.load(name); }, {"Checkpoint::load", "moved from"}},
                {"load with a shape", [&] { (void)from.load(name, {61, 24}); }, {"Checkpoint::load", "moved from"}},
                {"load_rows", [&] { (void)from.load_rows(name, {61, 24}, 0, 1); }, {"load_rows", "moved from"}},
                {"fingerprint", [&] { (void)from.fingerprint(); }, {"Checkpoint::fingerprint", "moved from"}},
                {"pack", [&] { (void)from.pack("shared."); }, {"Checkpoint::pack", "moved from"}}};
      },
      [&](const Checkpoint& checkpoint) { CHECK(checkpoint.load(name, {61, 24}).view().shape[0] == 61); });
}

TEST_CASE("GgufFile") {
  const Folder folder;
  folder.write("x.gguf", GgufBuilder().tensor("x", {1, 3}, gguf_f32, bytes_of<float>({1, 2, 3})).file());
  check_moved<GgufFile>(
      folder.path() / "x.gguf",
      [&](const GgufFile& from) -> std::vector<Illegal> {
        return {{"contains", [&] { (void)from.contains("x"); }, {"GgufFile::contains", "moved from"}},
                {"shape", [&] { (void)from.shape("x"); }, {"GgufFile::shape", "moved from"}},
                {"type", [&] { (void)from.type("x"); }, {"GgufFile::type", "moved from"}},
                {"names", [&] { (void)from.names(); }, {"GgufFile::names", "moved from"}},
                {"keys", [&] { (void)from.keys(); }, {"GgufFile::keys", "moved from"}},
                {"metadata", [&] { (void)from.metadata("x"); }, {"GgufFile::metadata", "moved from"}},
                {"load", [&] { (void)from.load("x"); }, {"GgufFile::load", "moved from"}},
                {"load with a shape", [&] { (void)from.load("x", {3, 1}); }, {"GgufFile::load", "moved from"}},
                {"pack", [&] { (void)from.pack("x"); }, {"GgufFile::pack", "moved from"}}};
      },
      [&](const GgufFile& file) { CHECK(file.load("x", {3, 1}).view().data[2] == 3); });
}

TEST_CASE("T5") {
  const Folder folder;
  write_t5(folder, {});
  const std::vector<std::vector<Index>> inputs = t5_inputs();
  check_moved<T5>(
      folder.path(),
      [&](const T5& from) -> std::vector<Illegal> {
        return {{"config", [&] { (void)from.config(); }, {"T5::config", "moved from"}},
                {"defaults", [&] { (void)from.defaults(); }, {"T5::defaults", "moved from"}},
                {"generate", [&] { (void)from.generate(inputs, {}); }, {"T5::generate", "moved from"}},
                {"encode", [&] { (void)from.encode(inputs[0]); }, {"T5::encode", "moved from"}},
                {"logits", [&] { (void)from.logits(inputs[0], inputs[0]); }, {"T5::logits", "moved from"}}};
      },
      [&](const T5& model) { CHECK(model.encode(inputs[3]).size() == inputs[3].size() * 24); });
}

TEST_CASE("Bert") {
  const Folder folder;
  BertCase bert;
  bert.make(3);
  bert.write(folder);
  const Sentences sentences = bert.sentences({3, 9}, 4);
  const Tensor<2> out({2, bert.d}), states({12, bert.d});
  check_moved<models::Bert>(
      folder.path(),
      [&](const models::Bert& from) -> std::vector<Illegal> {
        return {{"embed", [&] { from.embed(sentences, out.view); }, {"embed: ", "moved from"}},
                {"encode", [&] { from.encode(sentences, states.view); }, {"encode: ", "moved from"}}};
      },
      [&](const models::Bert& model) { model.embed(sentences, out.view); });
}

}  // namespace
}  // namespace headlane::test
