// A Checkpoint reads what was written.
#include "files.hpp"
#include "support/data.hpp"
#include "support/floating_point_state.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>

namespace headlane::test {
namespace {

using models::Checkpoint;
using models::Tensor;

std::vector<Index> sizes(const AnyView<const float>& view) {
  return {view.shape.begin(), view.shape.begin() + view.rank};
}
std::vector<Index> steps(const AnyView<const float>& view) {
  return {view.strides.begin(), view.strides.begin() + view.rank};
}
std::vector<float> values(const Tensor& tensor) {
  const std::vector<Index> shape = sizes(tensor.view());
  const Index n = std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>());
  return {tensor.view().data, tensor.view().data + n};
}

/// IEEE 754's definition of a format of 16 bits.
float from_format(unsigned bits, int exponent_bits, int fraction_bits) {
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const unsigned fraction = bits & ((1u << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned sign = bits >> 15 << 31;
  if (exponent == (1 << exponent_bits) - 1)
    return std::bit_cast<float>(sign | 0x7f800000u | fraction << (23 - fraction_bits));
  const double significand = fraction + (exponent == 0 ? 0.0 : static_cast<double>(1 << fraction_bits));
  const double magnitude = std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias - fraction_bits);
  return static_cast<float>(sign != 0 ? -magnitude : magnitude);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Does this process have the file open or mapped?
bool is_held(const std::filesystem::path& file) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    if (std::filesystem::read_symlink(entry, error) == file) return true;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(file.string())) return true;
  return false;
}

TEST_CASE("Values, shapes and names") {
  const Folder folder;
  folder.write("model.safetensors",
               FileBuilder()
                   .entry(R"("__metadata__":{"format":"pt","":"ü"})")
                   .add("f32", "F32", "[2,3]", bytes_of<float>({1, -2, 3.5f, 0, infinity, 1e-45f}))
                   .add("scalar", "F32", "[]", bytes_of<float>({7}))
                   .add("empty", "F32", "[4,0,9223372036854775807]", "")
                   .add("ids", "I64", "[1]", bytes_of<std::int64_t>({5}))
                   .add("f16", "F16", "[1,4]", bytes_of<std::uint16_t>({0x3c00, 0xc000, 1, 0x7c00}))
                   .add("bf16", "BF16", "[3]", bytes_of<std::uint16_t>({0x3f80, 0xc000, 1}))
                   .add("ü \\\"\\u0041\\n", "BF16", "[1]", bytes_of<std::uint16_t>({0}))
                   .file());
  const Checkpoint checkpoint(folder.path());
  CHECK(checkpoint.names() == std::vector<std::string>{"bf16", "empty", "f16", "f32", "ids", "scalar", "ü \"A\n"});
  CHECK(checkpoint.contains("f32"));
  CHECK_FALSE(checkpoint.contains("f3"));
  CHECK_FALSE(checkpoint.contains("__metadata__"));
  CHECK(checkpoint.shape("f32") == std::vector<Index>{2, 3});
  CHECK(checkpoint.shape("ids") == std::vector<Index>{1});
  CHECK(checkpoint.shape("scalar").empty());

  const Tensor f32 = checkpoint.load("f32", {2, 3});
  CHECK(sizes(f32.view()) == std::vector<Index>{2, 3});
  CHECK(steps(f32.view()) == std::vector<Index>{3, 1});
  CHECK(same_bits(values(f32), {1, -2, 3.5f, 0, infinity, 1e-45f}));
  CHECK(values(checkpoint.load("scalar", {})) == std::vector<float>{7});
  CHECK(values(checkpoint.load("f16")) == std::vector<float>{1, -2, 0x1p-24f, infinity});
  CHECK(values(checkpoint.load("bf16")) == std::vector<float>{1, -2, 0x1p-133f});
  const Tensor empty = checkpoint.load("empty", std::vector<Index>{4, 0, 9223372036854775807});
  CHECK(empty.view().rank == 3);
  CHECK(values(empty).empty());
}

TEST_CASE("A file is open as long as its Checkpoint or a copy of it is there, and a Tensor needs neither") {
  const Folder folder;
  const std::filesystem::path file = folder.path() / "model.safetensors";
  folder.write("model.safetensors", FileBuilder()
                                        .add("a", "F32", "[3]", bytes_of<float>({1, 2, 3}))
                                        .add("b", "F16", "[1]", bytes_of<std::uint16_t>({0x3c00}))
                                        .file());
  std::optional<Checkpoint> checkpoint(folder.path());
  std::optional<Checkpoint> copy = checkpoint;
  CHECK(is_held(file));
  const Tensor a = checkpoint->load("a"), b = checkpoint->load("b");
  checkpoint.reset();
  CHECK(is_held(file));
  CHECK(values(copy->load("a")) == std::vector<float>{1, 2, 3});
  copy.reset();
  CHECK_FALSE(is_held(file));
  folder.remove("model.safetensors");
  CHECK(values(a) == std::vector<float>{1, 2, 3});
  CHECK(values(b) == std::vector<float>{1});
}

TEST_CASE("Tensors larger than the blocks in which they are converted") {
  const Folder folder;
  std::vector<std::uint16_t> halves(3 * (1 << 17) + 5);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i % 0x7c00);
  const std::string shape = std::string("[").append(std::to_string(halves.size())).append("]");
  folder.write("model.safetensors", FileBuilder()
                                        .add("byte", "U8", "[1]", "x")
                                        .add("f16", "F16", shape, bytes_of(halves))
                                        .add("bf16", "BF16", shape, bytes_of(halves))
                                        .file());
  const Checkpoint checkpoint(folder.path());
  std::vector<float> float16, bfloat16;
  for (const std::uint16_t bits : halves) {
    float16.push_back(from_format(bits, 5, 10));
    bfloat16.push_back(from_format(bits, 8, 7));
  }
  CHECK(same_bits(values(checkpoint.load("f16")), float16));
  CHECK(same_bits(values(checkpoint.load("bf16")), bfloat16));
}

TEST_CASE("Data at every alignment") {
  const Folder folder;
  const std::vector<float> a{1, -0.0f, nan};
  const std::vector<std::uint16_t> halves{0x3c00, 0x8001, 0x7bff};
  for (std::size_t remainder = 0; remainder < 8; ++remainder) {
    for (std::size_t before = 0; before < 4; ++before) {
      folder.write(
          "model.safetensors",
          FileBuilder()
              .add("bytes", "U8", std::string("[").append(std::to_string(before)).append("]"), std::string(before, 'x'))
              .add("a", "F32", "[3]", bytes_of(a))
              .add("h", "F16", "[3]", bytes_of(halves))
              .add("b", "BF16", "[3]", bytes_of(halves))
              .add("e", "F32", "[0]", "")
              .file(remainder));
      const Checkpoint checkpoint(folder.path());
      const Tensor loaded = checkpoint.load("a");
      CHECK(reinterpret_cast<std::uintptr_t>(loaded.view().data) % alignof(float) == 0);
      CHECK(same_bits(values(loaded), a));
      CHECK(values(checkpoint.load("h")) == std::vector<float>{1, -0x1p-24f, 65504});
      CHECK(values(checkpoint.load("b")) == std::vector<float>{0x1p-7f, -0x1p-133f, 0x1.fep120f});
      CHECK(checkpoint.load("e").view().data != nullptr);
    }
  }
}

TEST_CASE("All float16 and bfloat16 values, in any state of the floating-point unit") {
  const Folder folder;
  std::vector<std::uint16_t> all(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  folder.write("model.safetensors", FileBuilder()
                                        .add("float16", "F16", "[256,256]", bytes_of(all))
                                        .add("bfloat16", "BF16", "[65536]", bytes_of(all))
                                        .file());
  const Checkpoint checkpoint(folder.path());
  std::vector<float> float16, bfloat16;
  for (const std::uint16_t bits : all) {
    float16.push_back(from_format(bits, 5, 10));
    bfloat16.push_back(from_format(bits, 8, 7));
  }
  const auto check = [&] {
    const Tensor h = checkpoint.load("float16"), b = checkpoint.load("bfloat16");
    return same_bits(values(h), float16) && same_bits(values(b), bfloat16);
  };
#if HEADLANE_TEST_HAS_STATE
  for (const State one : all_states) {
    set_state(one);
    const bool right = check();
    set_state(all_states[0]);
    CHECK(right);
  }
#else
  CHECK(check());
#endif
}

TEST_CASE("Shards") {
  const Folder folder;
  folder.write("one.safetensors", FileBuilder()
                                      .add("a", "F32", "[1]", bytes_of<float>({1}))
                                      .add("both", "F32", "[1]", bytes_of<float>({2}))
                                      .file());
  folder.write("two.safetensors", FileBuilder()
                                      .add("both", "F32", "[1]", bytes_of<float>({3}))
                                      .add("b", "BF16", "[1]", bytes_of<std::uint16_t>({0x4080}))
                                      .add("unnamed", "F32", "[1]", bytes_of<float>({5}))
                                      .file());
  folder.write("model.safetensors.index.json",
               R"({"metadata":{"total_size":14},"weight_map":{"a":"one.safetensors","both":"two.safetensors",)"
               R"("b":"two.safetensors"}})");
  const Checkpoint checkpoint(folder.path());
  CHECK(checkpoint.names() == std::vector<std::string>{"a", "b", "both"});
  CHECK(values(checkpoint.load("a")) == std::vector<float>{1});
  CHECK(values(checkpoint.load("both")) == std::vector<float>{3});
  CHECK(values(checkpoint.load("b")) == std::vector<float>{4});

  // A single file goes first.
  folder.write("model.safetensors", FileBuilder().add("single", "F32", "[1]", bytes_of<float>({1})).file());
  CHECK(Checkpoint(folder.path()).names() == std::vector<std::string>{"single"});
}

TEST_CASE("Files that are odd and allowed") {
  const Folder folder;
  const auto names = [&](const std::string& file) {
    folder.write("model.safetensors", file);
    return Checkpoint(folder.path()).names();
  };
  CHECK(names(safetensors("{}", "")).empty());
  CHECK(names(safetensors(R"({"__metadata__":{}}   )", "")).empty());
  // The order in the header is not that of the data; members that are not known do not count;
  // half bytes.
  CHECK(names(safetensors(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3],"more":[{"x":1}]},)"
                          R"("a":{"data_offsets":[0,1],"shape":[2,1],"dtype":"F4"}, "e":{"dtype":"F64","shape":[0],)"
                          R"("data_offsets":[1,1]}})",
                          "xyz")) == std::vector<std::string>{"a", "b", "e"});
  // 9 axes can be in a file, and be 0 elements of sizes whose product before that is large.
  CHECK(names(safetensors(R"({"x":{"dtype":"C64","shape":[4611686018427387904,0,2,2,2,2,2,2,2],"data_offsets":[0,0]}})",
                          "")) == std::vector<std::string>{"x"});
}

}  // namespace
}  // namespace headlane::test
