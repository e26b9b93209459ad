// What the ranks of a team read, and what they agree on.
#include "bert_calls.hpp"
#include "io/input_file.hpp"
#include "support/sanitized.hpp"
#include "support/thread_team.hpp"
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>
#include <headlane/models/t5.hpp>
#include <headlane/runtime.hpp>

#include <sys/syscall.h>
#include <unistd.h>

// Sanitizers have a pread of their own.
#if !defined(HEADLANE_TEST_SANITIZED) && defined(SYS_pread64)
#define HEADLANE_TEST_COUNTS_READS

namespace {
thread_local std::size_t bytes_read = 0;
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" ssize_t pread(int descriptor, void* to, std::size_t size, off_t from) {
  bytes_read += size;
  return syscall(SYS_pread64, descriptor, to, size, from);
}
#endif

namespace headlane::test {
namespace {

using models::Checkpoint, models::T5;

TEST_CASE("Checkpoint::load_rows: the rows of the whole tensor") {
  for (const char* dtype : {"F32", "F16", "BF16"}) {
    const Folder folder;
    write_t5(folder, {.vocabulary = 5000, .d = 72, .dtype = dtype});  // more than a block of conversion
    const Checkpoint checkpoint(folder.path());
    const models::Tensor whole = checkpoint.load("shared.weight");
    for (const auto& [first, end] : {std::pair<Index, Index>{0, 5000}, {0, 1}, {4999, 5000}, {17, 4500}, {9, 9}}) {
      const models::Tensor rows = checkpoint.load_rows("shared.weight", {5000, 72}, first, end);
      REQUIRE(rows.view().rank == 2);
      CHECK(rows.view().shape[0] == end - first);
      CHECK(rows.view().shape[1] == 72);
      CHECK(std::memcmp(rows.view().data, whole.view().data + 72 * first,
                        static_cast<std::size_t>(72 * (end - first)) * sizeof(float)) == 0);
    }
    check_says(message_of([&] { (void)checkpoint.load_rows("shared.weight", {5000, 71}, 0, 1); }),
               {"tensor 'shared.weight': has the shape [5000, 72], [5000, 71] is expected"});
    check_says(message_of([&] { (void)checkpoint.load_rows("nothing", {1}, 0, 1); }), {"there is no tensor 'nothing'"});
    for (const auto& [first, end] : {std::pair<Index, Index>{-1, 5}, {5, 4}, {0, 5001}, {5001, 5001}})
      CHECK_THROWS_WITH_AS((void)checkpoint.load_rows("shared.weight", {5000, 72}, first, end),
                           ("Checkpoint::load_rows: rows " + std::to_string(first) + " … " + std::to_string(end) +
                            " of shared.weight, which has 5000")
                               .c_str(),
                           std::invalid_argument);
  }
}

TEST_CASE("Checkpoint::load_rows: types that cannot be loaded, and files that change") {
  const Folder folder;
  const auto write = [&](const char* dtype) {
    folder.write("model.safetensors", FileBuilder().add("x", dtype, "[2,4]", std::string(32, 'x')).file());
  };
  write("I32");
  check_says(message_of([&] { (void)Checkpoint(folder.path()).load_rows("x", {2, 4}, 0, 1); }),
             {"model.safetensors", "tensor 'x': is of I32, only F32, F16 and BF16 can be loaded"});
  write("F32");
  const Checkpoint opened(folder.path());
  const std::filesystem::path file = folder.path() / "model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  for (const Index row : {0, 1})
    check_says(message_of([&] { (void)opened.load_rows("x", {2, 4}, row, row + 1); }), {"tensor 'x': the file was"});
}

TEST_CASE("Checkpoint::fingerprint: names, types and shapes") {
  std::vector<std::uint64_t> all;
  for (const T5Case& c : {T5Case{}, {.dtype = "F16"}, {.dtype = "BF16"}, {.vocabulary = 62}, {.own_head = true}}) {
    const Folder folder, again;
    write_t5(folder, c);
    T5Case sharded = c;
    sharded.shards = 2;
    write_t5(again, sharded);
    all.push_back(Checkpoint(folder.path()).fingerprint());
    CHECK(Checkpoint(again.path()).fingerprint() == all.back());
  }
  std::sort(all.begin(), all.end());
  CHECK(std::unique(all.begin(), all.end()) == all.end());
}

#if defined(HEADLANE_TEST_COUNTS_READS)
TEST_CASE("a rank reads its share") {
  const Folder t5_folder, bert_folder;
  write_t5(t5_folder, {.vocabulary = 1024, .d = 128, .kv = 16, .heads = 8, .ff = 256, .dtype = "BF16"});
  BertCase bert;
  bert.vocab = 1024, bert.d = 128, bert.heads = 8, bert.inner = 256;
  bert.make(1);
  bert.write(bert_folder);
  const auto bytes_of_rank = [](int size, const auto& load) {
    std::vector<std::size_t> bytes(static_cast<std::size_t>(size));
    const std::vector<std::string> errors = run_ranks(size, [&](ThreadTeam& team) {
      bytes_read = 0;
      load(&team);
      bytes[static_cast<std::size_t>(team.rank())] = bytes_read;
    });
    CHECK(std::all_of(errors.begin(), errors.end(), [](const std::string& error) { return error.empty(); }));
    return *std::max_element(bytes.begin(), bytes.end());
  };
  const auto check = [&](const std::filesystem::path& folder, const auto& load) {
    const std::size_t file = std::filesystem::file_size(folder / "model.safetensors");
    CHECK(bytes_of_rank(1, load) > file);
    const std::size_t of_four = bytes_of_rank(4, load);
    CHECK_MESSAGE(of_four < file / 4 + file / 10, of_four, " of ", file);  // norms and headers are for all
    CHECK(of_four > file / 4);
  };
  check(t5_folder.path(), [&](Team* team) { const T5 model(t5_folder.path(), {.team = team}); });
  check(bert_folder.path(), [&](Team* team) { const Bert model(bert_folder.path(), {.team = team}); });
}
#endif

/// What all ranks of two throw: the same, and it has these words.
void check_all_throw(const std::vector<std::string>& words, const std::function<void(ThreadTeam&)>& f) {
  std::array<bool, 2> is_argument{};
  const std::vector<std::string> errors = run_ranks(2, [&](ThreadTeam& team) {
    try {
      f(team);
    } catch (const std::invalid_argument&) {
      is_argument[static_cast<std::size_t>(team.rank())] = true;
      throw;
    }
  });
  CHECK(is_argument == std::array<bool, 2>{true, true});
  CHECK(errors[0] == errors[1]);
  check_says(errors[0], words);
}

/// A copy of a model, with another first element of a tensor.
void write_changed(const Folder& to, const Folder& from, std::string_view changed) {
  const Checkpoint checkpoint(from.path());
  FileBuilder file;
  for (const std::string& name : checkpoint.names()) {
    const models::Tensor tensor = checkpoint.load(name);
    const std::vector<Index> shape = checkpoint.shape(name);
    Index count = 1;
    for (const Index n : shape) count *= n;
    std::vector<float> values(tensor.view().data, tensor.view().data + count);
    values[0] += name == changed ? 1.0f : 0.0f;
    file.add(name, "F32", shape, bytes_of(values));
  }
  to.write("model.safetensors", file.file());
  to.write("config.json", models::internal::read_text(from.path() / "config.json", 1 << 20));
}

TEST_CASE("ranks with other models or options all stop") {
  const Folder one, other, gated, none;
  write_t5(one, {});
  write_t5(other, {.vocabulary = 62});
  write_t5(gated, {.gated = true});
  const auto folders = [&](const Folder& a, const Folder& b) {
    return [&](ThreadTeam& team) {
      const T5 model((team.rank() == 0 ? a : b).path(), {.team = &team});
      (void)model.encode(t5_inputs()[0]);
    };
  };
  const std::string begin = "T5: rank 0 has headlane " + std::string(version()) + ", T5 of vocab_size ";
  check_all_throw({begin + "61, d_model 24", "; rank 1 has headlane", "vocab_size 62"}, folders(one, other));
  check_all_throw({begin, "gated 0", "gated 1"}, folders(one, gated));
  for (const char* name : {"encoder.block.1.layer.0.layer_norm.weight", "decoder.final_layer_norm.weight",
                           "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}) {
    const Folder changed;
    write_changed(changed, one, name);
    check_all_throw({begin, "norms and biases ", "; rank 1"}, folders(one, changed));
  }
  check_all_throw({begin, "; rank 1 has an error, ", none.path().string()}, folders(one, none));
  check_all_throw({"weights float32, activations float32", "weights bfloat16, activations bfloat16"},
                  [&](ThreadTeam& team) {
                    const DType type = team.rank() == 0 ? DType::float32 : DType::bfloat16;
                    const T5 model(one.path(), {.weights = type, .activations = type, .team = &team});
                  });
  // The same failure everywhere is the one of a single process.
  const std::string alone = message_of([&] { const T5 model(none.path()); });
  for (const std::string& error : run_ranks(3, folders(none, none))) CHECK(error == alone);
}

TEST_CASE("ranks with other weights of norms, or another Bert, all stop") {
  BertCase given;
  given.make(1);
  const Folder one, other, changed;
  given.write(one);
  given.weights["encoder.layer.1.output.LayerNorm.bias"].values[3] += 1;
  given.write(changed);
  given.activation = "relu";
  given.write(other);
  const auto folders = [&](const Folder& a, const Folder& b) {
    return [&](ThreadTeam& team) { const Bert model((team.rank() == 0 ? a : b).path(), {.team = &team}); };
  };
  check_all_throw({"Bert: rank 0 has headlane", "norms and biases "}, folders(one, changed));
  check_all_throw({"hidden_act ", "; rank 1 has headlane"}, folders(one, other));
}

TEST_CASE("ranks with other inputs or options of a call all stop, and go on") {
  const Folder t5_folder;
  write_t5(t5_folder, {});
  const auto inputs = t5_inputs();
  const auto with_t5 = [&](const auto& call) {
    return [&](ThreadTeam& team) {
      const T5 model(t5_folder.path(), {.team = &team});
      const auto rank = static_cast<std::size_t>(team.rank());
      try {
        call(model, rank);
      } catch (const std::invalid_argument&) {
        (void)model.encode(inputs[3]);
        throw;
      }
    };
  };
  check_all_throw({"T5::encode: rank 0 has input ["},
                  with_t5([&](const T5& model, std::size_t rank) { (void)model.encode(inputs[rank]); }));
  check_all_throw({"T5::encode: rank 0 has an error, T5::encode: the input has no tokens; rank 1"},
                  with_t5([&](const T5& model, std::size_t rank) {
                    (void)model.encode(rank == 0 ? std::vector<Index>{} : inputs[0]);  // one is an error
                  }));
  check_all_throw({"T5::logits: ", "output ["},
                  with_t5([&](const T5& model, std::size_t rank) { (void)model.logits(inputs[0], inputs[rank]); }));
  const auto generate = [&](const std::vector<std::string>& words, const models::GenerateOptions& options) {
    check_all_throw(words, with_t5([&](const T5& model, std::size_t rank) {
                      (void)model.generate(inputs, rank == 0 ? models::GenerateOptions() : options);
                    }));
  };
  generate({"T5::generate: ", "num_beams 1", "num_beams 2"}, {.num_beams = 2});
  generate({"max_length 33"}, {.max_length = 33});
  generate({"min_length 3"}, {.min_length = 3});
  generate({"length_penalty 0.5"}, {.length_penalty = 0.5});
  generate({"early_stopping "}, {.early_stopping = models::EarlyStopping::never});
  generate({"no_repeat_ngram_size 2"}, {.no_repeat_ngram_size = 2});
  generate({"rank 1 has an error, T5::generate: num_beams is 0"}, {.num_beams = 0});
  check_all_throw({"T5::logits: ", "rank 1 has an error, T5::logits: the output has the token -1 at 0"},
                  with_t5([&](const T5& model, std::size_t rank) {
                    (void)model.logits(inputs[0], std::vector<Index>{rank == 0 ? 0 : -1});
                  }));
  check_all_throw({"T5::generate: ", "inputs 0"},
                  with_t5([&](const T5& model, std::size_t rank) { (void)model.generate({inputs.data(), rank}, {}); }));
  check_all_throw({"T5::generate: ", "tokens "}, with_t5([&](const T5& model, std::size_t rank) {
                    (void)model.generate({inputs.data() + rank, 2}, {});
                  }));
  // What all ranks do wrong is the error of a single process.
  for (const std::string& error : run_ranks(
           3, [&](ThreadTeam& team) { (void)T5(t5_folder.path(), {.team = &team}).encode(std::vector<Index>{}); }))
    CHECK(error == "T5::encode: the input has no tokens");
}

TEST_CASE("ranks with other sentences or options of Bert all stop, and go on") {
  const Folder bert_folder;
  BertCase given;
  given.make(1);
  given.write(bert_folder);
  const Sentences ids = given.sentences({3, 9, 1}, 4);
  check_all_throw({"embed: ", "sentences 3", "sentences 2"}, [&](ThreadTeam& team) {
    const Bert model(bert_folder.path(), {.team = &team});
    (void)embedded(model, team.rank() == 0 ? ids : Sentences{ids[0], ids[1]});
  });
  const Sentences types(ids.size(), std::vector<Index>(9, 1));
  const auto embed = [&](const std::vector<std::string>& words, const models::EmbedOptions& options) {
    check_all_throw(words, [&](ThreadTeam& team) {
      const Bert model(bert_folder.path(), {.team = &team});
      try {
        (void)embedded(model, ids, team.rank() == 0 ? models::EmbedOptions{.pooling = Pooling::cls} : options);
      } catch (const std::invalid_argument&) {
        (void)embedded(model, ids, {});
        throw;
      }
    });
  };
  embed({"embed: ", "pooling "}, {.pooling = Pooling::max});
  embed({"normalize 1"}, {.pooling = Pooling::cls, .normalize = true});
  embed({"truncate 1"}, {.pooling = Pooling::cls, .truncate = true});
  embed({"rank 1 has an error, embed: token_type_ids[0] has 9 tokens"},
        {.pooling = Pooling::cls, .token_type_ids = types});
  embed({"prompt_tokens 2"}, {.pooling = Pooling::cls, .prompt_tokens = 2});
  embed({"rank 1 has an error, embed: num_threads is -1"}, {.pooling = Pooling::cls, .num_threads = -1});
}

}  // namespace
}  // namespace headlane::test
