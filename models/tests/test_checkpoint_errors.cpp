// Every way in which a checkpoint can be wrong is an error that says what is wrong, with the
// numbers.
#include "files.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>

#include <sys/stat.h>
#include <unistd.h>

namespace headlane::test {
namespace {

using models::Checkpoint;

/// The message on opening a folder with this file.
std::string opening(const Folder& folder, const std::string& file, const std::string& name = "model.safetensors") {
  folder.write(name, file);
  return message_of([&] { const Checkpoint checkpoint(folder.path()); });
}

struct Wrong {
  std::string text;
  std::vector<std::string> words;
};

/// Headers in front of eight bytes of data.
void check_headers(const std::vector<Wrong>& headers) {
  const Folder folder;
  for (const auto& [text, words] : headers) {
    CAPTURE(text);
    const std::string message = opening(folder, safetensors(text, "12345678"));
    check_says(message, words);
    check_says(message, {(folder.path() / "model.safetensors").string()});
  }
}

/// Such headers, of one tensor x.
void check_entries(const std::vector<Wrong>& entries) {
  std::vector<Wrong> headers;
  for (const auto& [text, words] : entries) {
    headers.push_back({std::string(R"({"x":)").append(text).append("}"), words});
    headers.back().words.emplace_back("tensor 'x'");
  }
  check_headers(headers);
}

TEST_CASE("Files that are not there, or too short") {
  const Folder folder;
  const auto open = [&](const std::filesystem::path& path) { return message_of([&] { const Checkpoint c(path); }); };
  check_says(open(folder.path() / "none"), {(folder.path() / "none").string() + ": ", "no such folder"});
  check_says(open(folder.path()),
             {folder.path().string(), "neither model.safetensors nor model.safetensors.index.json"});
  check_says(opening(folder, ""), {"model.safetensors: is empty"});
  check_says(open(folder.path() / "model.safetensors"), {"no such folder"});
  check_says(opening(folder, "1234567"), {"has 7 bytes", "at least 8"});
  check_says(opening(folder, bytes_of<std::uint64_t>({0})), {"does not begin with '{'"});
  check_says(opening(folder, bytes_of<std::uint64_t>({3}) + "{}"), {"is 3 bytes", "only 2 follow"});
  check_says(opening(folder, bytes_of<std::uint64_t>({100'000'000}) + "{}"), {"is 100000000 bytes", "only 2 follow"});
  check_says(opening(folder, bytes_of<std::uint64_t>({100'000'001}) + "{}"),
             {"is 100000001 bytes", "the maximum is 100000000"});
  check_says(opening(folder, bytes_of<std::uint64_t>({~std::uint64_t{0}}) + "{}"), {"is 18446744073709551615"});
  check_says(opening(folder, bytes_of<std::uint64_t>({~std::uint64_t{7}}) + "{}"), {"is 18446744073709551608"});

  folder.remove("model.safetensors");
  std::filesystem::create_directory(folder.path() / "model.safetensors");
  check_says(open(folder.path()), {"model.safetensors: is not a regular file"});
  folder.remove("model.safetensors");
  REQUIRE(mkfifo((folder.path() / "model.safetensors").c_str(), 0600) == 0);
  check_says(open(folder.path()), {"model.safetensors: is not a regular file"});
  folder.remove("model.safetensors");
  opening(folder, safetensors("{}", ""));
  std::filesystem::permissions(folder.path() / "model.safetensors", std::filesystem::perms::none);
  if (geteuid() != 0) check_says(open(folder.path()), {"cannot be opened: "});
}

TEST_CASE("Headers that are no JSON object") {
  std::string deep = R"({"x":{"y":)";
  deep.append(10'000'000, '[');
  std::string deep_objects = R"({"x":{)";
  for (int i = 0; i < 1'000'000; ++i) deep_objects += R"("a":{)";
  const std::string x = R"("x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const std::string long_name(10'000, 'n');
  check_headers({{"{", {"is not JSON"}},
                 {" {}", {"does not begin with '{'"}},
                 {"\xef\xbb\xbf{}", {"does not begin with '{'"}},
                 {"[]", {"does not begin with '{'"}},
                 {"{}x", {"is not JSON"}},
                 {"{}{}", {"is not JSON"}},
                 {std::string("{}\0", 3), {"is not JSON", "NUL character at byte 2"}},
                 {"{\"n\xff\":0}", {"is not JSON", "'\"n?'"}},
                 {"{\"\xc0\x80\":0}", {"is not JSON"}},
                 {"{\"\xed\xa0\x80\":0}", {"is not JSON"}},
                 {R"({"\ud800":0})", {"is not JSON"}},
                 {"{'x':0}", {"is not JSON"}},
                 {R"({"x":{"y":1e999}})", {"is not JSON", "1e999"}},
                 {R"({"x":NaN})", {"is not JSON"}},
                 {"{" + x + ",}", {"is not JSON"}},
                 {"{/**/}", {"is not JSON"}},
                 {deep, {"nested too deeply", "32"}},
                 {deep_objects, {"nested too deeply", "32"}},
                 {"{" + x + "," + x + "}", {"the name 'x' occurs twice"}},
                 {"{" + x + R"(,"\u0078":0})", {"the name 'x' occurs twice"}},
                 {R"({"x":{"y":0,"z":{"y":1},"y":0}})", {"the name 'y' occurs twice"}},
                 {R"({"x":{"y":[{"z":[{}],"w":0,"z":1}]}})", {"the name 'z' occurs twice"}},
                 {R"({"__metadata__":{"a":"","b":"","a":""}})", {"the name 'a' occurs twice"}},
                 {R"({"__metadata__":{},"__metadata__":{}})", {"the name '__metadata__' occurs twice"}},
                 {R"({"a\u001b[31m":0})", {"tensor 'a?[31m'"}},
                 {R"({")" + long_name + R"(":0})", {"tensor '" + long_name.substr(0, 200) + "…'"}},
                 {R"({"__metadata__":3})", {"__metadata__ is not an object but number"}},
                 {R"({"__metadata__":null})", {"__metadata__ is not an object but null"}},
                 {R"({"__metadata__":{"a":"b","c":1}})", {"__metadata__ 'c' is not a string but number"}},
                 {R"({"__metadata__":{"c":{}}})", {"__metadata__ 'c' is not a string but object"}}});
}

TEST_CASE("Entries of a tensor") {
  check_entries(
      {{"3", {"not described by an object but by number"}},
       {"null", {"not described by an object but by null"}},
       {R"(["F32",[2],[0,8]])", {"not described by an object but by array"}},
       {R"({"shape":[2],"data_offsets":[0,8]})", {"has no dtype"}},
       {R"({"dtype":"F32","data_offsets":[0,8]})", {"has no shape"}},
       {R"({"dtype":"F32","shape":[2]})", {"has no data_offsets"}},
       {R"({"dtype":32,"shape":[2],"data_offsets":[0,8]})", {"dtype is not a string but number"}},
       {R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})", {"dtype 'f32' is unknown"}},
       {R"({"dtype":"","shape":[2],"data_offsets":[0,8]})", {"dtype '' is unknown"}},
       {R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", {"shape is not an array but number"}},
       {R"({"dtype":"F32","shape":{},"data_offsets":[0,8]})", {"shape is not an array but object"}},
       {R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", {"shape holds -2, not an integer"}},
       {R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", {"shape holds 2.0, not an integer"}},
       {R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})", {"shape holds \"2\", not an integer"}},
       {R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})", {"shape holds an array, not an integer"}},
       {R"({"dtype":"F32","shape":[null],"data_offsets":[0,8]})", {"shape holds null, not an integer"}},
       {R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]})",
        {"shape holds 18446744073709551616, not an integer from 0 to 2^64 - 1"}},
       {R"({"dtype":"F32","shape":[{}],"data_offsets":[0,8]})", {"shape holds an object, not an integer"}},
       {R"({"dtype":"F32","shape":[true],"data_offsets":[0,8]})", {"shape holds true, not an integer"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[0,[8]]})", {"data_offsets holds an array, not an integer"}},
       {R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", {"the name 'dtype' occurs twice"}},
       {R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})", {"the name 'shape' occurs twice"}},
       {R"({"data_offsets":[0,8],"dtype":"F32","shape":[2],"data_offsets":[0,8]})",
        {"the name 'data_offsets' occurs twice"}},
       {R"({"dtype":"F32","shape":[9223372036854775808,0],"data_offsets":[0,8]})",
        {"shape holds 9223372036854775808, too large"}},
       {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})",
        {"shape [4294967296, 4294967296] of F32 overflows"}},
       {R"({"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]})", {"overflows"}},
       // 2^59 + 2 elements of 32 bits: 64 bits, modulo 2^64.
       {R"({"dtype":"F32","shape":[576460752303423490],"data_offsets":[0,8]})",
        {"shape [576460752303423490] of F32 overflows"}},
       {R"({"dtype":"F4","shape":[15],"data_offsets":[0,8]})", {"shape [15] of F4 is no whole number of bytes"}},
       {R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", {"has 8 bytes of data, shape [3] of F32 has 12"}},
       {R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})", {"has 8 bytes of data, shape [1] of F32 has 4"}},
       {R"({"dtype":"F32","shape":[],"data_offsets":[0,8]})", {"has 8 bytes of data, shape [] of F32 has 4"}},
       {R"({"dtype":"F32","shape":[0],"data_offsets":[0,8]})", {"has 8 bytes of data, shape [0] of F32 has 0"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[]})", {"data_offsets are not two numbers"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":8})", {"data_offsets are not two numbers"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[8]})", {"data_offsets are not two numbers"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})", {"data_offsets are not two numbers"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":{"a":0,"b":8}})", {"data_offsets are not two numbers"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[0,"8"]})", {"data_offsets holds \"8\", not an integer"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", {"data_offsets holds -8, not an integer"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", {"begin at 8, behind their end 0"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[1,9]})", {"end at 9, the file has 8 bytes of data"}},
       {R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})",
        {"end at 18446744073709551615, the file has 8"}}});
}

TEST_CASE("Data that overlap, or belong to no tensor") {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  check_headers(
      {{"{}", {"has 8 bytes of data, the tensors end at 0"}},
       {R"({"__metadata__":{}})", {"has 8 bytes of data, the tensors end at 0"}},
       {"{" + a + "}", {"has 8 bytes of data, the tensors end at 4"}},
       {"{" + a + R"(,"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})", {"tensor 'b': begins at 5", "ends at 4"}},
       {R"({"b":{"dtype":"U8","shape":[7],"data_offsets":[1,8]}})", {"tensor 'b': begins at 1", "ends at 0"}},
       {R"({"b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]},)" + a + "}",
        {"tensor 'b': overlaps", "at 3, before 4"}},
       {R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)" + a + "}",
        {"tensor 'b': overlaps", "at 0, before 4"}},
       {R"({"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)" + a + "}",
        {"tensor 'b': overlaps", "at 0, before 4"}},
       {R"({"e":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},)" +
            a + "}",
        {"tensor 'e': overlaps", "at 2, before 4"}}});
}

TEST_CASE("Tensors that cannot be loaded") {
  const Folder folder;
  folder.write("model.safetensors", FileBuilder()
                                        .add("ids", "I64", "[1,1]", std::string(8, '\0'))
                                        .add("double", "F64", "[1]", std::string(8, '\0'))
                                        .add("nine", "F32", "[1,1,1,1,1,1,1,1,1]", std::string(4, '\0'))
                                        .add("eight", "F32", "[1,1,1,1,1,1,1,1]", std::string(4, '\0'))
                                        .add("x", "F32", "[2,3]", std::string(24, '\0'))
                                        .file());
  const Checkpoint checkpoint(folder.path());
  const std::string file = (folder.path() / "model.safetensors").string();
  const auto loading = [&](std::string_view name) { return message_of([&] { (void)checkpoint.load(name); }); };
  const auto loading_as = [&](std::string_view name, const std::vector<Index>& shape) {
    return message_of([&] { (void)checkpoint.load(name, shape); });
  };
  check_says(loading("ids"), {file, "tensor 'ids': is of I64, only F32, F16 and BF16"});
  check_says(loading_as("ids", {1, 1}), {"is of I64"});
  check_says(loading("double"), {"tensor 'double': is of F64"});
  check_says(loading("nine"), {file, "tensor 'nine': has 9 axes, the maximum is 8"});
  CHECK(loading("eight") == "no error");
  check_says(loading("y"), {folder.path().string(), "there is no tensor 'y'"});
  check_says(loading_as("y", {1}), {"there is no tensor 'y'"});
  check_says(message_of([&] { (void)checkpoint.shape("y"); }), {"there is no tensor 'y'"});
  check_says(loading_as("x", {3, 2}), {file, "tensor 'x': has the shape [2, 3], [3, 2] is expected"});
  check_says(loading_as("x", {2, 3, 1}), {"has the shape [2, 3], [2, 3, 1] is expected"});
  check_says(loading_as("x", {2}), {"has the shape [2, 3], [2] is expected"});
  check_says(loading_as("x", {}), {"has the shape [2, 3], [] is expected"});
  check_says(message_of([&] { (void)checkpoint.load("x", {6}); }), {"has the shape [2, 3], [6] is expected"});
  CHECK(loading_as("x", {2, 3}) == "no error");
}

TEST_CASE("Indexes of shards") {
  const Folder folder;
  folder.write("one.safetensors", FileBuilder().add("a", "F32", "[1]", std::string(4, '\0')).file());
  folder.write("bad.safetensors", safetensors("{", ""));
  const std::string name = "model.safetensors.index.json";
  const auto with = [](const std::string& map) { return std::string(R"({"weight_map":)").append(map).append("}"); };
  const std::vector<Wrong> wrong{
      {"", {"is empty"}},
      {"{", {"is not JSON"}},
      {"[]", {"is not a JSON object but array"}},
      {"{}", {"has no weight_map"}},
      {with("[]"), {"weight_map is not an object but array"}},
      {with(R"({"a":1})"), {"tensor 'a': its file is not a string but number"}},
      {with(R"({"a":"one.safetensors","a":"one.safetensors"})"), {"the name 'a' occurs twice"}},
      {with(R"({"a":""})"), {"tensor 'a': ''", "not the name of a file"}},
      {with(R"({"a":"."})"), {"tensor 'a': '.'", "not the name of a file"}},
      {with(R"({"a":".."})"), {"tensor 'a': '..'", "not the name of a file"}},
      {with(R"({"a":"../one.safetensors"})"), {"'../one.safetensors'", "not the name of a file"}},
      {with(R"({"a":"./one.safetensors"})"), {"'./one.safetensors'", "not the name of a file"}},
      {with(R"({"a":"/dev/zero"})"), {"'/dev/zero'", "not the name of a file"}},
      {with(R"({"a":"b\\one.safetensors"})"), {"not the name of a file"}},
      {with(R"({"a":"one.safetensors\u0000x"})"), {"not the name of a file"}},
      {with(R"({"a":"\u001b[31m\u007f"})"), {"/?[31m?: cannot be opened: No such file"}},
      {with(R"({"a":")" + std::string(256, 'n') + R"("})"), {std::string(200, 'n') + "…' is not the name of a file"}},
      {with(R"({"a":")" + std::string(255, 'n') + R"("})"),
       {std::string(255, 'n') + ": cannot be opened: No such file"}},
      {with(R"({"a":"none.safetensors"})"),
       {(folder.path() / "none.safetensors").string(), "cannot be opened: No such file"}},
      {with(R"({"a":"bad.safetensors"})"), {(folder.path() / "bad.safetensors").string(), "is not JSON"}},
      {with(R"({"b":"one.safetensors"})"),
       {(folder.path() / "one.safetensors").string(), "there is no tensor 'b', which " + name + " says is here"}}};
  for (const auto& [text, words] : wrong) {
    CAPTURE(text);
    check_says(opening(folder, text, name), words);
  }
  CHECK(opening(folder, with(R"({"a":"one.safetensors"})"), name) == "no error");
}

}  // namespace
}  // namespace headlane::test
