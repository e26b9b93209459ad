// Fault injection: each allocation of the models' functions fails in turn. std::bad_alloc is
// thrown, nothing leaks, and the next call returns the right bits.
#include "bert_case.hpp"
#include "gguf_files.hpp"
#include "support/failing_allocation.hpp"
#include "support/scope.hpp"
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/bert.hpp>
#include <headlane/models/checkpoint.hpp>
#include <headlane/models/gguf.hpp>
#include <headlane/models/t5.hpp>

#include <optional>
#include <utility>

namespace headlane::test {
namespace {

std::uint64_t bits_of_all(const std::vector<float>& values) {
  Hash hash;
  for (const float value : values) hash.add(value);
  return hash.value();
}

std::uint64_t bits_of_all(const std::vector<std::vector<Index>>& outputs) {
  Hash hash;
  for (const std::vector<Index>& output : outputs) {
    hash.add(static_cast<std::uint64_t>(output.size()));
    for (const Index token : output) hash.add(static_cast<std::uint64_t>(token));
  }
  return hash.value();
}

TEST_CASE("Checkpoint::load: each allocation fails") {
  const Folder folder;
  write_t5(folder, {.dtype = "BF16", .shards = 2});
  const models::Checkpoint checkpoint(folder.path());
  std::optional<models::Tensor> tensor;
  const auto bits = [&] {
    Hash hash;
    for (Index i = 0; tensor && i < 61 * 24; ++i) hash.add(tensor->view().data[i]);
    return hash.value();
  };
  check_failing({"Checkpoint::load", [&] { tensor.reset(); },
                 [&] { tensor = checkpoint.load("shared.weight", {61, 24}); }, bits, true},
                1);
  check_failing({"Checkpoint::load_rows", [&] { tensor.reset(); },
                 [&] { tensor = checkpoint.load_rows("shared.weight", {61, 24}, 0, 61); }, bits, true},
                1);
}

TEST_CASE("Checkpoint: each allocation fails while it is opened, in one file or two") {
  for (const int shards : {1, 2}) {
    const Folder folder;
    write_t5(folder, {.shards = shards});
    std::optional<models::Checkpoint> checkpoint;
    const auto bits = [&] { return checkpoint ? checkpoint->names().size() : 0; };
    check_failing({"Checkpoint", [&] { checkpoint.reset(); }, [&] { checkpoint.emplace(folder.path()); }, bits, true},
                  shards == 1 ? 50 : 100);
  }
}

TEST_CASE("GgufFile: each allocation fails while it is opened, loads and packs") {
  const Folder folder;
  folder.write("x.gguf", GgufBuilder()
                             .array("tokens", 8, 2, gguf_text(std::string(40, 'a')) + gguf_text("b"))
                             .tensor("x", {64, 3}, gguf_q8_0, std::string(3 * 68, 1))
                             .tensor("y", {64, 3}, gguf_f32, std::string(3 * 256, 1))
                             .file());
  std::optional<models::GgufFile> file;
  std::optional<models::Tensor> tensor;
  PackedMatrix packed;
  const auto clear = [&] { file.reset(), tensor.reset(), packed = {}; };
  const auto use = [&] {
    models::GgufFile opened(folder.path() / "x.gguf");
    models::Tensor loaded = opened.load("x");
    PackedMatrix made = opened.pack("x");
    (void)opened.pack("y", {.type = DType::int8});
    (void)opened.metadata("tokens");
    file.emplace(std::move(opened)), tensor.emplace(std::move(loaded)), packed = std::move(made);
  };
  const auto bits = [&] { return tensor ? packed.bytes() + file->names().size() : 0; };
  check_failing({"GgufFile", clear, use, bits, true}, 20);
}

TEST_CASE("Checkpoint::pack: each allocation fails") {
  const Folder folder;
  folder.write("model.safetensors", FileBuilder()
                                        .add("x.weight_packed", "I32", "[3,8]", std::string(96, '\x77'))
                                        .add("x.weight_shape", "I64", "[2]", bytes_of<Index>({3, 64}))
                                        .add("x.weight_scale", "F32", "[3,2]", bytes_of(std::vector<float>(6, 0.5f)))
                                        .file());
  const models::Checkpoint checkpoint(folder.path());
  PackedMatrix packed;
  check_failing({"Checkpoint::pack", [&] { packed = {}; }, [&] { packed = checkpoint.pack("x."); },
                 [&] { return packed.bytes(); }, true},
                5);
}

TEST_CASE("T5: each allocation fails while it is read") {
  const Folder folder;
  write_t5(folder, {.shards = 2});
  std::optional<models::T5> model;
  const std::vector<std::vector<Index>> inputs = t5_inputs();
  const auto bits = [&] { return model ? bits_of_all(model->encode(inputs[3])) : 0; };
  check_failing({"T5", [&] { model.reset(); }, [&] { model.emplace(folder.path()); }, bits, true}, 100, 5);
}

TEST_CASE("Bert: each allocation fails while it is read, with sentence-transformers' files") {
  const Folder folder;
  BertCase bert;
  bert.make(3);
  bert.write(folder);
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
                                   {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
  std::filesystem::create_directory(folder.path() / "1_Pooling");
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})");
  folder.write("config_sentence_transformers.json", R"({"prompts": {"query": "Q: "}, "truncate_dim": 8})");
  std::optional<models::Bert> model;
  const auto bits = [&]() -> std::uint64_t { return model ? model->config().prompts.size() + 1 : 0; };
  check_failing({"Bert", [&] { model.reset(); }, [&] { model.emplace(folder.path()); }, bits, true}, 100, 5);
}

TEST_CASE("A refused file: each allocation of its message fails") {
  const Folder folder;
  for (const char* text : {R"({"vocab_size": [[1, "two"], {"three": [3.5, null, true]}]})", R"([{"a": [1, 2, {}]}, 3])",
                           R"({"a": {"b": [1, 2, {"c": [}]}})", R"({"a": [1], "a": [2]})"}) {
    folder.write("config.json", text);
    bool refused = false;
    const auto read = [&] {
      try {
        const models::T5 model(folder.path());
      } catch (const models::CheckpointError&) {
        refused = true;
      }
    };
    check_failing({text, [&] { refused = false; }, read, [&]() -> std::uint64_t { return refused ? 1 : 0; }, true}, 10);
  }
}

TEST_CASE("T5: each allocation fails") {
  const Folder folder;
  write_t5(folder, {});
  const models::T5 model(folder.path());
  const std::vector<std::vector<Index>> inputs = t5_inputs();
  std::vector<std::vector<Index>> outputs;
  std::vector<float> numbers;
  const auto clear = [&] { outputs.clear(), outputs.shrink_to_fit(), numbers = {}; };
  const auto bits = [&] { return bits_of_all(outputs) ^ bits_of_all(numbers); };
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing({"T5::encode", clear, [&] { numbers = model.encode(inputs[3]); }, bits, true}, 3);
    check_failing({"T5::logits", clear, [&] { numbers = model.logits(inputs[3], inputs[1]); }, bits, true}, 3);
    for (const Index beams : {1, 3}) {
      const models::GenerateOptions options{.num_beams = beams, .max_length = 7, .no_repeat_ngram_size = 2};
      check_failing({"T5::generate", clear, [&] { outputs = model.generate(inputs, options); }, bits, true}, 20, 5);
    }
  }
}

TEST_CASE("Bert: each allocation fails") {
  const Folder folder;
  BertCase bert;
  bert.make(3);
  bert.write(folder);
  const models::Bert model(folder.path());
  const Sentences sentences = bert.sentences({3, 9, 1, 20}, 4);
  const Tensor<2> out({4, bert.d}), states({33, bert.d});
  const auto clear = [&] {
    for_each(out.view, [](float& x) { x = 0; });
    for_each(states.view, [](float& x) { x = 0; });
  };
  const auto bits = [&] {
    Hash hash;
    hash.add(out.view), hash.add(states.view);
    return hash.value();
  };
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing({"Bert::embed", clear, [&] { model.embed(sentences, out.view); }, bits}, 3);
    check_failing({"Bert::encode", clear, [&] { model.encode(sentences, states.view); }, bits}, 3);
  }
}

}  // namespace
}  // namespace headlane::test
