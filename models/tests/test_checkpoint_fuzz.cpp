// Files that are damaged in many ways either load or are an error, and nothing outside of the
// file is ever read.
#include "files.hpp"
#include "io/safetensors.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>

#include <algorithm>
#include <bit>
#include <cctype>
#include <iterator>
#include <sstream>

namespace headlane::test {
namespace {

std::string valid_file() {
  return FileBuilder()
      .entry(R"("__metadata__":{"format":"pt"})")
      .add("embedding.weight", "F32", "[3,5]", bytes_of(std::vector<float>(15, 1.5f)))
      .add("scale", "F32", "[]", bytes_of<float>({7}))
      .add("position_ids", "I64", "[1,2]", bytes_of<std::int64_t>({0, 1}))
      .add("layer.0.weight", "F16", "[2,2,2]", bytes_of(std::vector<std::uint16_t>(8, 0x3c00)))
      .add("layer.0.bias", "BF16", "[3]", bytes_of(std::vector<std::uint16_t>(3, 0x3f80)))
      .add("none", "F32", "[0,4]", "")
      .file();
}

const std::vector<std::string>& odd_texts() {
  static const std::vector<std::string> texts = [] {
    std::istringstream words(
        R"(0 1 -1 3 4 8 18446744073709551615 18446744073709551616 9223372036854775807 9223372036854775808 4294967296)"
        R"( 4611686018427387904 2.0 1e1 1e400 null true "" [] {} [[ {" , : ] } \ \u0000 "F32" "F64" "BF16")"
        R"( "U8" "F4" "dtype")"
        R"( "shape" "data_offsets" [0,0] [0,60] [60,64] "scale" "__metadata__")"
        " \xff");
    return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
  }();
  return texts;
}

/// One damage of a kind that chance chooses.
class Damage {
 public:
  explicit Damage(std::uint64_t seed) : random_(seed) {}

  void apply(std::string& file) {
    if (file.empty()) return;
    const std::size_t header_end = std::min(file.size(), std::size_t{8} + 640);
    switch (random_.integer(0, 8)) {
      case 0:
        flip(file, 0, file.size());
        break;
      case 1:
        flip(file, 8, header_end);
        break;
      case 2:
        file.resize(below(file.size() + 1));
        break;
      case 3:
        file.insert(below(file.size() + 1), odd_texts()[below(odd_texts().size())]);
        break;
      case 4:
        file.erase(below(file.size()), 1 + below(12));
        break;
      case 5:
        splice(file);
        break;
      case 6:
        set_length(file);
        break;
      case 7:
        file.append(1 + below(9), static_cast<char>(random_.next()));
        break;
      default:
        replace_number(file, header_end);
        break;
    }
  }

  /// The length says again how long the header is, so that what follows is looked at.
  static void mend_length(std::string& file, std::size_t data_bytes) {
    if (file.size() < 8 + data_bytes) return;
    const std::uint64_t length = file.size() - 8 - data_bytes;
    std::memcpy(file.data(), &length, sizeof length);
  }

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_.next() % n); }

 private:
  void flip(std::string& file, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    char& c = file[begin + below(end - begin)];
    c = static_cast<char>(static_cast<unsigned char>(c) ^ (1u << below(8)));
  }

  void splice(std::string& file) {
    const std::string part = file.substr(below(file.size()), 1 + below(60));
    file.replace(below(file.size()), below(2) * part.size(), part);
  }

  void set_length(std::string& file) {
    if (file.size() < 8) return;
    const std::vector<std::uint64_t> lengths{0,           1,         file.size() - 8, file.size() - 7,
                                             file.size(), 1u << 31,  100'000'000,     100'000'001,
                                             ~0ull,       ~0ull - 7, ~0ull >> 1,      below(700)};
    std::memcpy(file.data(), &lengths[below(lengths.size())], 8);
  }

  /// A value in the header, from a digit on, by another text.
  void replace_number(std::string& file, std::size_t end) {
    for (std::size_t at = std::min(end, 8 + below(640)); at < end; ++at) {
      if (std::isdigit(static_cast<unsigned char>(file[at])) == 0) continue;
      std::size_t length = 0;
      while (at + length < end && std::isdigit(static_cast<unsigned char>(file[at + length])) != 0) ++length;
      file.replace(at, length, odd_texts()[below(odd_texts().size())]);
      return;
    }
  }

  Random random_;
};

/// Are its tensors found, and are they within the file and apart?
bool parses(const std::string& bytes) {
  static const MemoryFile memory;
  memory.write(bytes);
  try {
    const models::internal::InputFile file(memory.path());
    std::uint64_t total = 0;
    for (const auto& [name, tensor] : models::internal::read_safetensors(file)) {
      const bool within =
          tensor.offset >= 8 && tensor.offset <= file.size() && tensor.size <= file.size() - tensor.offset;
      if (!within) FAIL("tensor " << name << " is not within the file");
      total += tensor.size;
    }
    if (total > file.size()) FAIL("tensors overlap");
    return true;
  } catch (const models::CheckpointError&) {
    return false;
  }
}

/// Opens the folder and reads all that can be loaded. False if it is an error to open it.
bool opens(const Folder& folder, Index& read) {
  try {
    const models::Checkpoint checkpoint(folder.path());
    for (const std::string& name : checkpoint.names()) {
      try {
        const models::Tensor tensor = checkpoint.load(name);
        const AnyView<const float>& view = tensor.view();
        Index elements = 1;
        for (int axis = 0; axis < view.rank; ++axis) elements *= view.shape[static_cast<std::size_t>(axis)];
        for (Index i = 0; i < elements; ++i) read += std::bit_cast<std::uint32_t>(view.data[i]) != sentinel_bits;
      } catch (const models::CheckpointError&) {
        ++read;
      }
    }
    return true;
  } catch (const models::CheckpointError&) {
    return false;
  }
}

TEST_CASE("Damaged files") {
  const Folder folder;
  const std::string valid = valid_file();
  const std::size_t data_bytes = 15 * 4 + 4 + 16 + 16 + 6;
  REQUIRE(parses(valid));
  Damage damage(1);
  Index accepted = 0, read = 0;
  constexpr Index files = 30'000;
  for (Index i = 0; i < files; ++i) {
    std::string file = valid;
    for (std::size_t n = 1 + damage.below(3); n > 0; --n) damage.apply(file);
    if (damage.below(2) == 0) Damage::mend_length(file, data_bytes);
    const bool good = parses(file);
    accepted += good;
    if (!good && i % 4 != 0) continue;  // files take their time
    folder.write("model.safetensors", file);
    CAPTURE(i);
    if (opens(folder, read) != (good && !file.empty())) FAIL("a file of the same bytes is not judged alike");
  }
  MESSAGE(accepted << " of " << files << " are valid still, " << read << " elements read");
  CHECK(accepted > files / 50);
  CHECK(accepted < files / 2);
}

TEST_CASE("Every length of a file, and every bit of its header") {
  const std::string valid = valid_file();
  for (std::size_t length = 0; length < valid.size(); ++length) CHECK_FALSE(parses(valid.substr(0, length)));
  CHECK_FALSE(parses(valid + '\0'));
  Index accepted = 0;
  for (std::size_t bit = 0; bit < 8 * 8; ++bit) {
    std::string file = valid;
    file[bit / 8] = static_cast<char>(static_cast<unsigned char>(file[bit / 8]) ^ (1u << bit % 8));
    CHECK_FALSE(parses(file));
  }
  for (std::size_t bit = 64; bit < 8 * (valid.size() - 102); ++bit) {
    std::string file = valid;
    file[bit / 8] = static_cast<char>(static_cast<unsigned char>(file[bit / 8]) ^ (1u << bit % 8));
    accepted += parses(file);
  }
  CHECK(accepted > 100);  // letters of names
}

TEST_CASE("Damaged indexes of shards") {
  const Folder folder;
  folder.write("one.safetensors", valid_file());
  const std::string valid =
      R"({"metadata":{"total_size":102},"weight_map":{"scale":"one.safetensors","none":"one.safetensors"}})";
  Damage damage(2);
  Index accepted = 0, read = 0;
  for (Index i = 0; i < 3'000; ++i) {
    std::string file = valid;
    for (std::size_t n = 1 + damage.below(2); n > 0; --n) damage.apply(file);
    folder.write("model.safetensors.index.json", file);
    accepted += opens(folder, read);
  }
  CHECK(accepted > 50);
}

}  // namespace
}  // namespace headlane::test
