// Every way in which a GGUF file can be wrong is an error that says what is wrong, with the
// numbers.
#include "files.hpp"
#include "gguf_files.hpp"

#include <doctest/doctest.h>
#include <headlane/models/gguf.hpp>

#include <limits>

namespace headlane::test {
namespace {

using models::GgufFile;

constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();

std::string opening(const Folder& folder, const std::string& content) {
  folder.write("x.gguf", content);
  return message_of([&] { const GgufFile file(folder.path() / "x.gguf"); });
}

struct Wrong {
  std::string content;
  std::vector<std::string> words;
};

void check_files(const std::vector<Wrong>& files) {
  const Folder folder;
  for (const auto& [content, words] : files) {
    const std::string message = opening(folder, content);
    check_says(message, words);
    check_says(message, {(folder.path() / "x.gguf").string() + ": "});
  }
}

TEST_CASE("Files that are not there, or are none") {
  const Folder folder;
  check_says(message_of([&] { const GgufFile file(folder.path() / "none.gguf"); }),
             {(folder.path() / "none.gguf").string() + ": cannot be opened: "});
  check_says(message_of([&] { const GgufFile file(folder.path()); }), {"is not a regular file"});
  GgufBuilder keys;
  keys.keys = 65'537;
  GgufBuilder cut;
  cut.keys = 1;
  check_files({{"", {"is empty"}},
               {std::string(23, 'x'), {"has 23 bytes, a GGUF file has at least 24"}},
               {GgufBuilder{.magic = "GGML"}.header(), {"does not begin with 'GGUF'"}},
               {GgufBuilder{.version = 0}.header(), {"is of version 0, only 2 and 3"}},
               {GgufBuilder{.version = 1}.header(), {"is of version 1, only 2 and 3"}},
               {GgufBuilder{.version = 4}.header(), {"is of version 4, only 2 and 3"}},
               {GgufBuilder{.version = 3u << 24}.header(), {"is big-endian, only little-endian"}},
               {keys.header(), {"has 65537 keys, the maximum is 65536"}},
               {cut.header(), {"key 0: needs 8 bytes from byte 24 on, but the file ends after 0"}},
               {cut.header() + "1234567", {"key 0: needs 8 bytes from byte 24 on, but the file ends after 7"}}});
}

/// A header with one key, of these bytes.
std::string with_key(const std::string& bytes) {
  GgufBuilder builder;
  builder.keys = 1;
  builder.fields = bytes;
  return builder.header();
}

/// The key "k" with a value of a type.
std::string with_value(std::uint32_t type, const std::string& bytes) {
  return with_key(gguf_text("k") + bytes_of_one(type) + bytes);
}

std::string array_of(std::uint32_t type, std::uint64_t count, const std::string& bytes) {
  return with_value(9, bytes_of_one(type) + bytes_of_one(count) + bytes);
}

TEST_CASE("Keys and values") {
  const auto text = [](std::uint64_t length, const std::string& bytes) { return bytes_of_one(length) + bytes; };
  const std::string bool_2 = bytes_of_one<std::uint8_t>(2);
  check_files(
      {{with_key(text(65'536, std::string(70'000, 'k'))), {"key 0: its name has 65536 bytes, the maximum is 65535"}},
       {with_key(text(huge, "k")), {"key 0: its name has 18446744073709551615 bytes"}},
       {with_key(text(5, "k")), {"key 0: needs 5 bytes from byte 32 on, but the file ends after 1"}},
       {with_key(gguf_text("\xff")), {"key 0: its name is not UTF-8"}},
       {with_key(gguf_text("k")), {"key 'k': needs 4 bytes from byte 33 on, but the file ends after 0"}},
       {with_value(13, ""), {"key 'k': its type is 13, which is unknown"}},
       {with_value(0xffffffffu, ""), {"key 'k': its type is 4294967295, which is unknown"}},
       {with_value(10, "1234567"), {"key 'k': has 1 values of 8 bytes, but the file ends after 7 bytes"}},
       {with_value(7, bool_2), {"key 'k': has a bool that is 2"}},
       {with_value(8, text(3, "ab")), {"key 'k': needs 3 bytes from byte 45 on, but the file ends after 2"}},
       {with_value(8, text(huge, "ab")), {"key 'k': needs 18446744073709551615 bytes"}},
       {array_of(9, 0, ""), {"key 'k': is an array of arrays, which cannot be read"}},
       {array_of(13, 0, ""), {"key 'k': its type is 13, which is unknown"}},
       {array_of(4, 2, "1234567"), {"key 'k': has 2 values of 4 bytes, but the file ends after 7 bytes"}},
       {array_of(10, std::uint64_t{1} << 61, ""), {"key 'k': has 2305843009213693952 values of 8 bytes"}},
       {array_of(0, huge, ""), {"key 'k': has 18446744073709551615 values of 1 bytes"}},
       {array_of(8, huge, gguf_text("a")), {"key 'k': needs 8 bytes from byte 58 on, but the file ends after 0"}},
       {array_of(7, 2, std::string(1, '\0') + bool_2), {"key 'k': has a bool that is 2"}},
       {GgufBuilder().text("k", "").text("a\x1b[31m", "").text("k", "").header(), {"key 'k': occurs twice"}},
       {GgufBuilder().text("a\x1b[31m", "").text("a\x1b[31m", "").header(), {"key 'a?[31m': occurs twice"}}});
}

TEST_CASE("The alignment") {
  const auto with = [](std::uint32_t alignment) {
    return GgufBuilder().number("general.alignment", 4, alignment).header();
  };
  check_files({{with(0), {"key 'general.alignment': is 0, not a power of two"}},
               {with(24), {"key 'general.alignment': is 24, not a power of two"}},
               {GgufBuilder().number<std::int32_t>("general.alignment", 5, 32).header(),
                {"key 'general.alignment': is not a number of the type uint32"}},
               {GgufBuilder().array("general.alignment", 4, 1, bytes_of_one<std::uint32_t>(32)).header(),
                {"key 'general.alignment': is not a number of the type uint32"}}});
  const Folder folder;
  CHECK(opening(folder, with(1)) == "no error");
  CHECK(opening(folder, with(1u << 31)) == "no error");
}

/// A file with 64 bytes of data and one tensor.
std::string with_tensor(const std::vector<std::uint64_t>& sizes, std::uint32_t type, std::uint64_t offset) {
  GgufBuilder builder;
  builder.info("x", sizes, type, offset);
  builder.data.resize(64);
  return builder.file();
}

TEST_CASE("Tensors") {
  constexpr std::uint64_t large = std::uint64_t{1} << 32;
  GgufBuilder cut, long_name, none;
  cut.info("x", {16}, gguf_f32, 0);
  cut.infos.pop_back();
  long_name.info(std::string(65'536, 'n'), {16}, gguf_f32, 0);
  none.tensors = huge;
  check_files(
      {{with_tensor({16}, 4, 0), {"tensor 'x': its type is 4, which is unknown"}},
       {with_tensor({16}, 42, 0), {"tensor 'x': its type is 42, which is unknown"}},
       {with_tensor({1, 1, 1, 1, 16}, gguf_f32, 0), {"tensor 'x': has 5 axes, the maximum is 4"}},
       {with_tensor({large << 31}, gguf_f32, 0), {"tensor 'x': shape holds 9223372036854775808, too large a number"}},
       {with_tensor({large, large}, gguf_f32, 0), {"tensor 'x': shape [4294967296, 4294967296] of F32 overflows"}},
       {with_tensor({0, large, large}, gguf_f32, 0), {"shape [4294967296, 4294967296, 0] of F32 overflows"}},
       {with_tensor({large << 30}, gguf_f32, 0), {"shape [4611686018427387904] of F32 overflows"}},
       {with_tensor({48, 2}, gguf_q8_0, 0),
        {"shape [2, 48] of Q8_0: rows of 48 elements are no whole number of blocks of 32"}},
       {with_tensor({}, gguf_q4_k, 0), {"shape [] of Q4_K: rows of 1 elements are no whole number of blocks of 256"}},
       {with_tensor({17}, gguf_f32, 0), {"tensor 'x': has 68 bytes of data from byte 0 on, the file has 64"}},
       {with_tensor({16}, gguf_f32, 32), {"tensor 'x': has 64 bytes of data from byte 32 on, the file has 64"}},
       {with_tensor({16}, gguf_f32, huge - 31), {"from byte 18446744073709551584 on, the file has 64"}},
       {with_tensor({0}, gguf_f32, 96), {"has 0 bytes of data from byte 96 on, the file has 64"}},
       {with_tensor({8}, gguf_f32, 16), {"tensor 'x': begins at 16, not aligned to 32"}},
       {with_tensor({8}, gguf_f32, 32), {"tensor 'x': begins at 32, but the data before it ends at 0"}},
       {with_tensor({8}, gguf_f32, 0), {"has 64 bytes of data, the tensors end at 32"}},
       {cut.header(), {"tensor 'x': needs 8 bytes from byte 49 on, but the file ends after 7"}},
       {long_name.file(), {"tensor 0: its name has 65536 bytes, the maximum is 65535"}},
       {none.header(), {"tensor 0: needs 8 bytes from byte 24 on, but the file ends after 0"}}});
}

TEST_CASE("Tensors that overlap, or leave gaps") {
  const auto two = [](std::uint64_t a, std::uint64_t a_size, std::uint64_t b, std::uint64_t b_size) {
    GgufBuilder builder;
    builder.info("a", {a_size}, gguf_f32, a).info("b", {b_size}, gguf_f32, b);
    builder.data.resize(96);
    return builder.file();
  };
  check_files(
      {{two(0, 16, 32, 16), {"tensor 'b': overlaps another one: it begins at 32, before 64"}},
       {two(32, 16, 0, 24), {"tensor 'a': overlaps another one: it begins at 32, before 96"}},
       {two(0, 16, 0, 16), {"tensor 'b': overlaps another one: it begins at 0, before 64"}},
       {two(0, 7, 64, 8), {"tensor 'b': begins at 64, but the data before it ends at 28"}},
       {two(0, 8, 32, 8), {"has 96 bytes of data, the tensors end at 64"}},
       {GgufBuilder().info("a", {1}, gguf_f32, 0).info("a", {1}, gguf_f32, 32).file(), {"tensor 'a': occurs twice"}}});
  const Folder folder;
  CHECK(opening(folder, two(0, 16, 64, 8)) == "no error");
  CHECK(opening(folder, two(64, 1, 0, 9)) == "no error");
  CHECK(opening(folder, two(96, 0, 0, 24)) == "no error");
  check_says(opening(folder, two(0, 16, 64, 0)), {"has 96 bytes of data, the tensors end at 64"});
}

struct SomeTensors {
  Folder folder;
  std::filesystem::path path = folder.path() / "x.gguf";
  SomeTensors() {
    std::string bad_scale(34, '\0'), bad_number = bad_scale;
    bad_scale[1] = 0x7c;
    bad_number[33] = -128;
    std::string large(210, '\x7f');
    large[209] = 0x7b;
    folder.write("x.gguf", GgufBuilder()
                               .tensor("q5", {256}, gguf_q5_k, std::string(176, '\0'))
                               .tensor("vector", {32}, gguf_q8_0, std::string(34, '\0'))
                               .tensor("cube", {1, 2, 3}, gguf_f32, std::string(24, '\0'))
                               .tensor("scale", {32, 1}, gguf_q8_0, bad_scale)
                               .tensor("number", {32, 1}, gguf_q8_0, bad_number)
                               .tensor("large", {256, 1}, gguf_q6_k, large)
                               .tensor("x", {3, 2}, gguf_f32, std::string(24, '\0'))
                               .file());
  }
};

TEST_CASE("Tensors that cannot be loaded") {
  const SomeTensors some;
  const GgufFile file(some.path);
  const auto loading = [&](std::string_view name) { return message_of([&] { (void)file.load(name); }); };
  const auto loading_as = [&](const std::vector<Index>& shape) {
    return message_of([&] { (void)file.load("x", shape); });
  };
  const std::string path = some.path.string();
  check_says(loading("q5"), {path, "tensor 'q5': is of Q5_K, only F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K can be"});
  check_says(loading("y"), {path, "there is no tensor 'y'"});
  check_says(message_of([&] { (void)file.shape("y"); }), {"there is no tensor 'y'"});
  check_says(message_of([&] { (void)file.type("y"); }), {"there is no tensor 'y'"});
  check_says(message_of([&] { (void)file.load("y", {1}); }), {"there is no tensor 'y'"});
  check_says(loading_as({3, 2}), {path, "tensor 'x': has the shape [2, 3], [3, 2] is expected"});
  check_says(loading_as({2}), {"has the shape [2, 3], [2] is expected"});
  check_says(loading_as({2, 3, 1}), {"has the shape [2, 3], [2, 3, 1] is expected"});
  CHECK(loading_as({2, 3}) == "no error");
}

TEST_CASE("Tensors that cannot be packed") {
  const SomeTensors some;
  const GgufFile file(some.path);
  const auto packing = [&](std::string_view name) { return message_of([&] { (void)file.pack(name); }); };
  const std::string path = some.path.string();
  check_says(packing("q5"), {path, "tensor 'q5': is of Q5_K, only F32"});
  check_says(packing("y"), {path, "there is no tensor 'y'"});
  check_says(packing("vector"), {path, "tensor 'vector': has the shape [32], a matrix is expected"});
  check_says(packing("cube"), {"tensor 'cube': has the shape [3, 2, 1], a matrix is expected"});
  check_says(packing("scale"), {path, "tensor 'scale': ", "scales[0, 0] is inf; a scale must be finite"});
  check_says(packing("number"), {path, "tensor 'number': ", "numbers[31, 0] is -128; int8_group32 has -127 … 127"});
  check_says(packing("large"), {path, "tensor 'large': ", "too large for a scale of float16"});
  CHECK_THROWS_WITH_AS((void)file.pack("x", {.type = static_cast<DType>(9)}),
                       "GgufFile::pack: type is 9, which is none of float32 … int4_group32", std::invalid_argument);
  CHECK_THROWS_WITH_AS((void)file.pack("x", {.num_threads = -1}), "GgufFile::pack: num_threads is -1, the minimum is 0",
                       std::invalid_argument);
  CHECK(message_of([&] { (void)file.load("number"); }) == "no error");
}

TEST_CASE("A number of the metadata that is too large") {
  const Folder folder;
  folder.write("x.gguf", GgufBuilder().array("k", 10, 2, bytes_of<std::uint64_t>({1, huge})).header());
  const GgufFile file(folder.path() / "x.gguf");
  check_says(message_of([&] { (void)file.metadata("k"); }),
             {(folder.path() / "x.gguf").string(), "key 'k': holds 18446744073709551615, too large a number"});
}

TEST_CASE("A file that changes after it was opened") {
  const SomeTensors some;
  const GgufFile file(some.path);
  std::filesystem::resize_file(some.path, std::filesystem::file_size(some.path) - 40);
  const std::string message = message_of([&] { (void)file.load("x"); });
  check_says(message, {some.path.string(), "tensor 'x': the file was "});
}

}  // namespace
}  // namespace headlane::test
