// GgufFile: tensors of every type, with the bits of a naive reading of the format, packed with the
// numbers of the file, and metadata.
#include "gguf_blocks.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/gemm.hpp>
#include <headlane/models/gguf.hpp>

#include <cfenv>
#include <utility>

namespace headlane::test {
namespace {

using models::GgufFile;

/// A file with a weight [out, in] of each type.
struct Weights {
  Folder folder;
  std::filesystem::path path = folder.path() / "x.gguf";
  std::vector<std::vector<float>> values;
  Index out, in;

  Weights(Index out_, Index in_, std::uint32_t version = 3, std::uint32_t alignment = 32) : out(out_), in(in_) {
    GgufBuilder builder{.version = version, .alignment = alignment};
    if (alignment != 32) builder.number("general.alignment", 4, alignment);
    Random random(static_cast<std::uint64_t>(out + in));
    for (const GgufType& type : gguf_types) {
      const std::string blocks = random_blocks(type, random, out * in / type.elements);
      builder.tensor(type.name, {static_cast<std::uint64_t>(in), static_cast<std::uint64_t>(out)}, type.number, blocks);
      values.push_back(elements_of(type, blocks));
    }
    folder.write("x.gguf", builder.file());
  }
};

TEST_CASE("Every type, with the bits of the format") {
  for (const auto& [out, in] : {std::pair<Index, Index>{3, 256}, {70, 512}, {700, 1024}})
    for (const std::uint32_t alignment : {32u, 8u, 4096u}) {
      const Weights weights(out, in, alignment == 8 ? 2 : 3, alignment);
      const GgufFile file(weights.path);
      CHECK(file.names().size() == std::size(gguf_types));
      for (std::size_t i = 0; i < std::size(gguf_types); ++i) {
        CAPTURE(gguf_types[i].name);
        CHECK(file.type(gguf_types[i].name) == gguf_types[i].name);
        CHECK(file.shape(gguf_types[i].name) == std::vector<Index>{out, in});
        const models::Tensor tensor = file.load(gguf_types[i].name, {out, in});
        CHECK(tensor.view().rank == 2);
        CHECK(tensor.view().shape[0] == out);
        CHECK(tensor.view().strides[0] == in);
        CHECK(different(tensor.view().data, weights.values[i]) == 0);
      }
    }
}

/// FNV-1a of the bytes of floats.
std::uint64_t hash_of(const float* x, Index count) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes_of(std::vector<float>(x, x + count)))
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

/// Of 1024 elements as gguf.quants.dequantize() of PyPI's gguf 0.19.0 returns them, for blocks
/// whose byte i is the bits 13 … 20 of 2654435761 · i, in the high byte of a scale or float & 0xbb.
TEST_CASE("The bits of PyPI's gguf") {
  const std::vector<std::uint64_t> expected{0x41a18f3c77cb1f0bu, 0xce236c734460844fu, 0x51de733fe87d1a35u,
                                            0xf1fac5e48ea5507eu, 0x39448168afed7a6bu, 0x1843e54a3fc97c78u,
                                            0x393f1621a9c9f06bu};
  const Folder folder;
  for (std::size_t t = 0; t < std::size(gguf_types); ++t) {
    const GgufType& type = gguf_types[t];
    std::string blocks;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(1024 / type.elements * type.bytes); ++i) {
      const Index at = static_cast<Index>(i) % type.bytes;
      const bool high = type.elements == 1         ? at == type.bytes - 1
                        : type.number == gguf_q6_k ? at == 209
                                                   : at == 1 || (at == 3 && type.number == gguf_q4_k);
      blocks += static_cast<char>(i * 2654435761u >> 13 & (high ? 0xbbu : 0xffu));
    }
    folder.write("x.gguf", GgufBuilder().tensor("x", {1024}, type.number, blocks).file());
    CAPTURE(type.name);
    CHECK(hash_of(GgufFile(folder.path() / "x.gguf").load("x").view().data, 1024) == expected[t]);
  }
}

TEST_CASE("The caller's rounding does not matter") {
  const Weights weights(16, 512);
  const GgufFile file(weights.path);
  std::fesetround(FE_UPWARD);
  std::vector<models::Tensor> tensors;
  for (const GgufType& type : gguf_types) tensors.push_back(file.load(type.name));
  std::fesetround(FE_TONEAREST);
  for (std::size_t i = 0; i < std::size(gguf_types); ++i)
    CHECK(different(tensors[i].view().data, weights.values[i]) == 0);
}

/// What unpack() returns, transposed: [out, in].
std::vector<float> unpacked(const PackedMatrix& packed) {
  std::vector<float> all(static_cast<std::size_t>(packed.rows() * packed.columns()));
  packed.unpack(View<float, 2>(all.data(), {packed.columns(), packed.rows()}).transposed());
  return all;
}

TEST_CASE("pack: the numbers of the file, or those that are packed from the values") {
  const Weights weights(37, 512);
  const GgufFile file(weights.path);
  const std::vector<DType> stored{DType::float32,      DType::float16,      DType::bfloat16,    DType::int8_group32,
                                  DType::int4_group32, DType::int8_group32, DType::int8_group32};
  for (std::size_t i = 0; i < std::size(gguf_types); ++i) {
    CAPTURE(gguf_types[i].name);
    const View<const float, 2> w(weights.values[i].data(), {37, 512});
    for (const int threads : {0, 1, 2}) {
      const PackedMatrix packed = file.pack(gguf_types[i].name, {.num_threads = threads});
      CHECK(packed.type() == stored[i]);
      CHECK(packed.rows() == 512);
      CHECK(packed.columns() == 37);
      const bool as_it_is = i < 5;
      const std::vector<float> expected =
          as_it_is ? weights.values[i] : unpacked(PackedMatrix(w.transposed(), {.type = stored[i]}));
      CHECK(different(unpacked(packed).data(), expected) == 0);
    }
    for (const DType type :
         {DType::float32, DType::bfloat16, DType::float16, DType::int8, DType::int8_group32, DType::int4_group32}) {
      if (type == stored[i]) continue;
      const PackedMatrix packed = file.pack(gguf_types[i].name, {.type = type});
      CHECK(packed.type() == type);
      CHECK(different(unpacked(packed).data(), unpacked(PackedMatrix(w.transposed(), {.type = type}))) == 0);
    }
    const PackedMatrix same = file.pack(gguf_types[i].name, {.type = stored[i]});
    CHECK(different(unpacked(same).data(), unpacked(file.pack(gguf_types[i].name))) == 0);
  }
}

TEST_CASE("pack: a product is that by the tensor") {
  const Weights weights(37, 512);
  const GgufFile file(weights.path);
  Random random(3);
  const Tensor<2> x = random_tensor<2>({5, 512}, random), y({5, 37}), expected({5, 37});
  for (std::size_t i = 0; i < 5; ++i) {
    gemm(x.view, file.pack(gguf_types[i].name), y.view);
    gemm(x.view, View<const float, 2>(weights.values[i].data(), {37, 512}).transposed(), expected.view);
    CHECK(different_bits(y.view, expected.view) == 0);
  }
}

TEST_CASE("Tensors of up to four axes, and without elements") {
  const Folder folder;
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  folder.write("x.gguf", GgufBuilder()
                             .tensor("four", {2, 4, 1, 2}, gguf_f32, bytes_of(values))
                             .tensor("", {}, gguf_f32, bytes_of_one(7.0f))
                             .tensor("no blocks", {0, 5}, gguf_q8_0, "")
                             .tensor("no rows", {256, 0}, gguf_q4_k, "")
                             .tensor("é", {1}, gguf_f16, bytes_of_one(float16(0.5f)))
                             .file());
  const GgufFile file(folder.path() / "x.gguf");
  CHECK(file.names() == std::vector<std::string>{"", "four", "no blocks", "no rows", "é"});
  CHECK(file.contains("é"));
  CHECK_FALSE(file.contains("fou"));
  CHECK(file.shape("four") == std::vector<Index>{2, 1, 4, 2});
  CHECK(different(file.load("four").view().data, values) == 0);
  CHECK(file.shape("").empty());
  CHECK(file.load("").view().rank == 0);
  CHECK(file.load("").view().data[0] == 7);
  CHECK(file.load("é").view().data[0] == 0.5f);
  CHECK(file.load("no blocks", {5, 0}).view().shape[1] == 0);
  CHECK(file.pack("no blocks").columns() == 5);
  CHECK(file.pack("no rows").rows() == 256);
}

TEST_CASE("A file without tensors, and one that ends with its last tensor") {
  const Folder folder;
  folder.write("none.gguf", GgufBuilder().text("general.architecture", "t5").header());
  CHECK(GgufFile(folder.path() / "none.gguf").names().empty());
  std::string file = GgufBuilder().tensor("x", {3}, gguf_f32, bytes_of<float>({1, 2, 3})).file();
  file.resize(file.size() - 20);
  folder.write("x.gguf", file);
  CHECK(GgufFile(folder.path() / "x.gguf").load("x").view().data[2] == 3);
}

TEST_CASE("Metadata of every type") {
  using Integers = std::vector<std::int64_t>;
  const Folder folder;
  folder.write("x.gguf", GgufBuilder()
                             .number<std::uint8_t>("u8", 0, 200)
                             .number<std::int8_t>("i8", 1, -100)
                             .number<std::uint16_t>("u16", 2, 60000)
                             .number<std::int16_t>("i16", 3, -30000)
                             .number<std::uint32_t>("u32", 4, 4000000000u)
                             .number<std::int32_t>("i32", 5, -2000000000)
                             .number("f32", 6, 0.1f)
                             .number<char>("no", 7, 0)
                             .number<char>("yes", 7, 1)
                             .text("general.architecture", std::string("llama\0é\xff", 9))
                             .number<std::uint64_t>("u64", 10, std::uint64_t{1} << 62)
                             .number<std::uint64_t>("large", 10, std::uint64_t{1} << 63)
                             .number<std::int64_t>("i64", 11, -(std::int64_t{1} << 62))
                             .number("f64", 12, 0.1)
                             .array("bools", 7, 3, std::string("\1\0\1", 3))
                             .array("integers", 3, 2, bytes_of<std::int16_t>({-5, 6}))
                             .array("floats", 6, 2, bytes_of<float>({0.5f, 0.1f}))
                             .array("texts", 8, 3, gguf_text("a") + gguf_text("") + gguf_text("bc"))
                             .array("nothing", 8, 0, "")
                             .file());
  const GgufFile file(folder.path() / "x.gguf");
  const std::vector<std::pair<const char*, models::GgufValue>> expected{
      {"u8", std::int64_t{200}},
      {"i8", std::int64_t{-100}},
      {"u16", std::int64_t{60000}},
      {"i16", std::int64_t{-30000}},
      {"u32", std::int64_t{4000000000}},
      {"i32", std::int64_t{-2000000000}},
      {"f32", double{0.1f}},
      {"no", false},
      {"yes", true},
      {"general.architecture", std::string("llama\0é\xff", 9)},
      {"u64", std::int64_t{1} << 62},
      {"i64", -(std::int64_t{1} << 62)},
      {"f64", 0.1},
      {"bools", std::vector<bool>{true, false, true}},
      {"integers", Integers{-5, 6}},
      {"floats", std::vector<double>{0.5, double{0.1f}}},
      {"texts", std::vector<std::string>{"a", "", "bc"}},
      {"nothing", std::vector<std::string>{}}};
  for (const auto& [key, value] : expected) {
    CAPTURE(key);
    CHECK(file.metadata(key) == value);
  }
  CHECK(file.keys().size() == expected.size() + 1);
  CHECK(file.keys().front() == "bools");
  CHECK_FALSE(file.metadata("none").has_value());
  CHECK_THROWS_AS(static_cast<void>(file.metadata("large")), models::CheckpointError);
}

TEST_CASE("Copies share the file, which may be replaced") {
  const Weights weights(3, 256);
  std::optional<GgufFile> file(weights.path);
  const GgufFile copy = *file;
  file.reset();
  std::filesystem::remove(weights.path);
  CHECK(different(copy.load("Q6_K").view().data, weights.values[6]) == 0);
}

}  // namespace
}  // namespace headlane::test
