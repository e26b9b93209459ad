// Headers of many tensors, and large headers without any: time and memory are bounded.
#include "files.hpp"
#include "io/input_file.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "support/process.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>

#include <algorithm>
#include <ctime>
#include <fstream>

namespace headlane::test {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The least of three.
template <class Call>
double seconds_of(const Call& call) {
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = cpu_seconds();
    call();
    least = std::min(least, cpu_seconds() - start);
  }
  return least;
}

/// The peak memory of call(), in MiB; 0 if the kernel does not report it.
template <class Call>
double peak_of(const Call& call) {
  std::ofstream reset("/proc/self/clear_refs");
  const bool done = static_cast<bool>(reset << "5" << std::flush);
  const double before = mib_of_process("VmRSS");
  call();
  return done ? mib_of_process("VmHWM") - before : 0;
}

std::string many_tensors(int n) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  for (int i = 0; i < n; ++i) {
    const std::string begin = std::to_string(4L * i), end = std::to_string(4L * i + 4);
    header.append(R"(,"model.layers.)").append(std::to_string(i)).append(R"(.weight":{"dtype":"F32","shape":[1,1])");
    header.append(R"(,"data_offsets":[)").append(begin).append(",").append(end).append("]}");
  }
  return header + "}";
}

TEST_CASE("Four times the tensors take four times the time") {
  constexpr int n = 10'000;
  const std::string few = many_tensors(n), many = many_tensors(4 * n);
  CHECK(models::internal::parse_header(few, 4 * n, "few").size() == n);
  CHECK(models::internal::parse_header(many, 16 * n, "many").size() == 4 * n);
  const double short_time = seconds_of([&] { models::internal::parse_header(few, 4 * n, "few"); });
  const double long_time = seconds_of([&] { models::internal::parse_header(many, 16 * n, "many"); });
  MESSAGE(n << " tensors: " << 1e3 * short_time << " ms, " << 4 * n << ": " << 1e3 * long_time << " ms");
  CHECK(long_time < 9 * short_time);
}

TEST_CASE("Other JSON: four times the objects take four times the time") {
  const auto objects = [](int n, bool named) {
    std::string text = named ? R"({"list":{"":{})" : R"({"list":[{})";
    for (int i = 0; i < n; ++i)
      text += named ? std::string(",\"").append(std::to_string(i)).append("\":{}") : std::string(",{}");
    return text + (named ? "}}" : "]}");
  };
  constexpr int n = 20'000;
  for (const bool named : {true, false}) {
    const std::string few = objects(n, named), many = objects(4 * n, named);
    const double short_time = seconds_of([&] { models::internal::parse_json(few, "few"); });
    const double long_time = seconds_of([&] { models::internal::parse_json(many, "many"); });
    CHECK(long_time < 9 * short_time);
  }
}

TEST_CASE("A header of 99 MB that is none is refused at once, and in little memory") {
  struct Wrong {
    std::string begin, unit, word;
  };
  const std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0])";
  const std::vector<Wrong> wrong{
      {"", std::string(1, '\0'), "does not begin with '{'"},
      {"{", std::string(1, '\0'), "NUL character at byte 1"},
      {"{", "0", "is not JSON"},
      {R"({"x":[)", "0,", "not described by an object but by array"},
      {R"({"x":[)", "[0],", "not described by an object but by array"},
      {R"({"x":{"shape":[)", "0,", "shape has too many axes, the maximum is 64"},
      {R"({"x":{"data_offsets":[)", "0,", "data_offsets are not two numbers"},
      {R"({"x":{"dtype":[)", "0,", "dtype is not a string but array"},
      {R"({"x":{"more":[)", "0,", "too many values, the maximum is 65536"},
      {R"({"x":{"more":[)", "[],", "too many values, the maximum is 65536"},
      {R"({"x":{"more":[)", "{},", "too many values, the maximum is 65536"},
      {R"({"x":{"more":)", "[", "nested too deeply"},
      {R"({"__metadata__":[)", "0,", "__metadata__ is not an object but array"},
      {R"({"__metadata__":{"a":"b"}, "x":)" + tensor + "}}", "x", "is not JSON"},
  };
  for (const auto& [begin, unit, word] : wrong) {
    CAPTURE(begin);
    CAPTURE(unit);
    std::string header = begin;
    header.reserve(99'000'000 + unit.size());
    while (header.size() < 99'000'000) header += unit;
    const double start = cpu_seconds();
    const double megabytes = peak_of(
        [&] { check_says(message_of([&] { models::internal::parse_header(header, 0, "file"); }), {"file: ", word}); });
    CHECK(cpu_seconds() - start < 1);
    CHECK(megabytes < 20);
  }
}

TEST_CASE("A file with such a header needs the memory of the header") {
  const Folder folder;
  const std::string begin = R"({"x":{"more":[0)";
  folder.write("model.safetensors", bytes_of<std::uint64_t>({99'000'000}) + begin);
  std::filesystem::resize_file(folder.path() / "model.safetensors", 8 + 99'000'000);
  const models::internal::InputFile file(folder.path() / "model.safetensors");
  const double megabytes =
      peak_of([&] { check_says(message_of([&] { models::internal::read_safetensors(file); }), {"NUL character"}); });
  CHECK(megabytes < 120);
}

TEST_CASE("Other values count together") {
  const auto header = [](int of_metadata, int of_tensor) {
    std::string text = R"({"__metadata__":{"":"")";
    for (int i = 1; i < of_metadata; ++i) text.append(",\"").append(std::to_string(i)).append(R"(":"")");
    text += R"(},"x":{"dtype":"U8","more":[0)";
    for (int i = 2; i < of_tensor; ++i) text += ",0";
    return text + R"(],"shape":[0],"data_offsets":[0,0]}})";
  };
  const auto reading = [](const std::string& text) {
    return message_of([&] { models::internal::parse_header(text, 0, "file"); });
  };
  CHECK(reading(header(30'000, 35'536)) == "no error");
  check_says(reading(header(30'000, 35'537)), {"file: ", "too many values, the maximum is 65536"});
  check_says(reading(header(30'001, 35'536)), {"file: ", "too many values, the maximum is 65536"});
}

TEST_CASE("As many axes as other libraries have") {
  const auto reading = [](int axes) {
    std::string shape = "1";
    for (int i = 1; i < axes; ++i) shape += ",1";
    const std::string text = R"({"x":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})";
    return message_of([&] { models::internal::parse_header(text, 1, "file"); });
  };
  CHECK(reading(64) == "no error");
  check_says(reading(65), {"file: tensor 'x': shape has too many axes, the maximum is 64"});
}

TEST_CASE("A million values of JSON") {
  const auto reading = [](int values) {
    std::string text = R"({"x":[0)";
    for (int i = 3; i < values; ++i) text += ",0";
    return message_of([&] { models::internal::parse_json(text + "]}", "file"); });
  };
  CHECK(reading(1'000'000) == "no error");
  check_says(reading(1'000'001), {"file: JSON has too many values, the maximum is 1000000"});
}

}  // namespace
}  // namespace headlane::test
