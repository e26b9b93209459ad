// GGUF files that are damaged in many ways either load or are an error, and nothing outside of the
// file is ever read.
#include "files.hpp"
#include "gguf_files.hpp"
#include "io/gguf_header.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/models/gguf.hpp>

#include <algorithm>

namespace headlane::test {
namespace {

constexpr std::size_t data_bytes = 64 + 3 * 32 + 96 + 64 + 160 + 224;

/// Each way in which a tensor is loaded, and values of many types.
std::string valid_file() {
  std::vector<float16> halves(8, float16(0.5f));
  return GgufBuilder()
      .text("general.architecture", "t5")
      .number<std::uint32_t>("general.alignment", 4, 32)
      .number<std::uint64_t>("t5.block_count", 10, 6)
      .array("tokenizer.ggml.tokens", 8, 3, gguf_text("a") + gguf_text("bc") + gguf_text(""))
      .array("tokenizer.ggml.scores", 6, 3, bytes_of<float>({0, -1, 2}))
      .number<char>("yes", 7, 1)
      .tensor("embedding.weight", {5, 3}, gguf_f32, bytes_of(std::vector<float>(15, 1.5f)))
      .tensor("scale", {}, gguf_f32, bytes_of_one(7.0f))
      .tensor("half", {4, 2}, gguf_f16, bytes_of(halves))
      .tensor("ids", {2}, 26, bytes_of<std::int32_t>({1, 2}))
      .tensor("q8", {32, 2}, gguf_q8_0, std::string(68, '\x11'))
      .tensor("q4", {64, 1}, gguf_q4_0, std::string(36, '\x11'))
      .tensor("q4k", {256, 1}, gguf_q4_k, std::string(144, '\x11'))
      .tensor("q6k", {256, 1}, gguf_q6_k, std::string(210, '\x11'))
      .tensor("none", {0, 4}, gguf_f32, "")
      .file();
}

/// One damage of a kind that chance chooses.
class Damage {
 public:
  explicit Damage(std::uint64_t seed) : random_(seed) {}

  void apply(std::string& file, std::size_t header) {
    if (file.empty()) return;
    header = std::min(header, file.size());
    const std::size_t at = below(header);
    switch (random_.integer(0, 6)) {
      case 0:
        flip(file, below(file.size()));
        break;
      case 1:
      case 2:
        flip(file, at);
        break;
      case 3:
        file.resize(below(file.size() + 1));
        break;
      case 4:  // a size, a count or an offset
        put(file, at, odd_numbers()[below(odd_numbers().size())]);
        break;
      case 5:
        file.insert(at, file.substr(below(file.size()), 1 + below(40)));
        break;
      default:
        file.erase(at, 1 + below(40));
    }
  }

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_.next() % n); }

 private:
  static const std::vector<std::uint64_t>& odd_numbers() {
    static const std::vector<std::uint64_t> numbers{0,     1,         2,          3,          8,          13,
                                                    32,    64,        65'536,     1u << 31,   ~0u,        1ull << 32,
                                                    ~0ull, ~0ull - 7, ~0ull - 31, ~0ull >> 1, 1ull << 61, 100'000'001};
    return numbers;
  }

  static void put(std::string& file, std::size_t at, std::uint64_t x) {
    std::memcpy(file.data() + at, &x, std::min(sizeof x, file.size() - at));
  }

  void flip(std::string& file, std::size_t at) {
    file[at] = static_cast<char>(static_cast<unsigned char>(file[at]) ^ (1u << below(8)));
  }

  Random random_;
};

/// Everything that a file says, its metadata and the bits of all tensors; an error is its message.
std::string contents_of(const std::filesystem::path& path, Index& accepted) {
  std::string all;
  const std::string message = message_of([&] {
    const models::internal::InputFile bytes(path);
    std::uint64_t total = 0;
    for (const auto& [name, tensor] : models::internal::read_gguf(bytes).tensors) {
      if (tensor.offset > bytes.size() || tensor.size > bytes.size() - tensor.offset)
        FAIL("tensor " << name << " is not within the file");
      total += tensor.size;
    }
    if (total > bytes.size()) FAIL("tensors overlap");
    const models::GgufFile file(path);
    ++accepted;
    for (const std::string& key : file.keys())
      all += key + message_of([&] { all += std::to_string(file.metadata(key)->index()); });
    for (const std::string& name : file.names()) {
      all += message_of([&] {
        const models::Tensor tensor = file.load(name, file.shape(name));
        Index elements = 1;
        for (int axis = 0; axis < tensor.view().rank; ++axis)
          elements *= tensor.view().shape[static_cast<std::size_t>(axis)];
        all += bytes_of(std::vector<float>(tensor.view().data, tensor.view().data + elements));
      });
      all += message_of([&] { (void)file.pack(name); });
    }
  });
  return message == "no error" ? all : "";
}

TEST_CASE("Damaged files") {
  const MemoryFile memory;
  const std::string valid = valid_file();
  const std::size_t header = valid.size() - data_bytes;
  Index accepted = 0;
  memory.write(valid);
  REQUIRE(!contents_of(memory.path(), accepted).empty());
  Damage damage(1);
  constexpr Index files = 20'000;
  accepted = 0;
  for (Index i = 0; i < files; ++i) {
    std::string file = valid;
    for (std::size_t n = 1 + damage.below(3); n > 0; --n) damage.apply(file, header);
    memory.write(file);
    CAPTURE(i);
    static_cast<void>(contents_of(memory.path(), accepted));
  }
  MESSAGE(accepted << " of " << files << " are valid still");
  CHECK(accepted > files / 50);
  CHECK(accepted < files / 2);
}

TEST_CASE("Every length of a file, and every bit of its header") {
  const MemoryFile memory;
  const std::string valid = valid_file();
  Index accepted = 0;
  memory.write(valid);
  const std::string contents = contents_of(memory.path(), accepted);
  for (std::size_t length = 0; length < valid.size(); ++length) {
    memory.write(valid.substr(0, length));
    CHECK(contents_of(memory.path(), accepted).empty());
  }
  memory.write(valid + std::string(1, '\0'));
  CHECK(contents_of(memory.path(), accepted).empty());
  accepted = 0;
  Index same = 0;
  for (std::size_t bit = 0; bit < 8 * (valid.size() - data_bytes); ++bit) {
    std::string file = valid;
    file[bit / 8] = static_cast<char>(static_cast<unsigned char>(file[bit / 8]) ^ (1u << bit % 8));
    memory.write(file);
    same += contents_of(memory.path(), accepted) == contents;
  }
  CHECK(accepted > 100);  // letters of names, values
  CHECK(same > 100);      // values
  CHECK(same < accepted);
}

}  // namespace
}  // namespace headlane::test
