// The program headlane-translate, started as a user starts it: every option at its limits, and
// input of any length.
#include "files.hpp"

#include <headlane/runtime.hpp>

#include <iterator>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace headlane::test {
namespace {

using Texts = std::vector<std::string>;

struct Outcome {
  int code = -1;  ///< exit code; -1 if a signal ended it
  std::string out, err;
};

/// Opens it as the descriptor `number` of a child.
void redirect(int number, const std::filesystem::path& file, int flags) {
  const int opened = open(file.c_str(), flags, 0600);  // NOLINT(*-vararg): POSIX
  if (opened < 0 || dup2(opened, number) < 0) _exit(99);
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Standard input is the file `input`, or else has this text; standard output may go elsewhere.
struct Streams {
  std::string text = {};
  std::string input = {}, output = {};
};

Outcome run(const Texts& arguments, const Streams& streams = {}) {
  const Folder folder;
  folder.write("in", streams.text);
  const auto in = streams.input.empty() ? folder.path() / "in" : std::filesystem::path(streams.input);
  const auto out = streams.output.empty() ? folder.path() / "out" : std::filesystem::path(streams.output);
  Texts all{HEADLANE_TRANSLATE, HEADLANE_LITTLE_MODEL};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& one : all) pointers.push_back(one.data());
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    redirect(STDIN_FILENO, in, O_RDONLY);
    redirect(STDOUT_FILENO, out, O_WRONLY | O_CREAT);
    redirect(STDERR_FILENO, folder.path() / "err", O_WRONLY | O_CREAT);
    execv(pointers[0], pointers.data());
    _exit(99);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content_of(folder.path() / "out"),
          content_of(folder.path() / "err")};
}

const std::string cat = "The cat is small.", chat = "Le chat est petit.\n";

void check_refused(const Texts& arguments, const std::vector<std::string>& words) {
  CAPTURE(arguments);
  const Outcome outcome = run(arguments);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  check_says(outcome.err, words);
}

void check_accepted(Texts arguments) {
  CAPTURE(arguments);
  arguments.push_back(cat);
  const Outcome outcome = run(arguments);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK_FALSE(outcome.out.empty());
}

TEST_CASE("Sentences from the command line and from standard input") {
  CHECK(run({cat, "", " ", cat}).out == chat + "\n\n" + chat);
  const Outcome outcome = run({}, {.text = cat + "\r\n\n" + cat});
  CHECK(outcome.code == 0);
  CHECK(outcome.out == chat + "\n" + chat);
  CHECK(run({}, {.text = ""}).out.empty());
  CHECK(run({"--quiet", cat}).err.empty());
}

TEST_CASE("--version and --help") {
  const Outcome version = run({"--version"});
  CHECK(version.code == 0);
  CHECK(version.out == std::string(headlane::version()) + "\n");
  const Outcome help = run({"--help"});
  CHECK(help.code == 0);
  for (const char* option : {"--task", "--prefix", "--beams", "--max-length", "--min-length", "--length-penalty",
                             "--early-stopping", "--no-repeat-ngram", "--batch", "--max-input", "--threads",
                             "--weights", "--activations", "--quiet", "--version", "4096"})
    check_says(help.out, {option});
}

TEST_CASE("--weights") {
  for (const char* type : {"float32", "bfloat16", "float16", "int8", "int8_group32"})
    CHECK(run({"--weights", type, cat}).out == chat);
  check_refused({"--weights", "int3", cat}, {"--weights", "int3", "int4_group32,int8,int8_group32"});
  for (const char* type : {"bfloat16", "int8"}) CHECK(run({"--weights", type, "--activations", type, cat}).out == chat);
  check_refused({"--weights", "int8", "--activations", "float16", cat}, {"--activations", "float16"});
}

TEST_CASE("Numbers at and beyond their limits") {
  struct Option {
    std::string name;
    Texts allowed, refused;
  };
  const std::vector<Option> options{{"--beams", {"1", "2", "340"}, {"0", "-1", "1025", "99999999999999999999", "1.5"}},
                                    {"--max-length", {"1", "1000000"}, {"0", "-3", "1000001", "9223372036854775807"}},
                                    {"--min-length", {"0", "1", "63"}, {"-1", "-3", "1000001", "-9223372036854775808"}},
                                    {"--length-penalty", {"-100", "0", "100"}, {"-100.5", "101", "1e400"}},
                                    {"--no-repeat-ngram", {"0", "1", "1000000"}, {"-1", "1000001"}},
                                    {"--batch", {"1", "4096"}, {"0", "-1", "4097"}},
                                    {"--max-input", {"17", "1073741824"}, {"0", "-1", "1073741825"}},
                                    {"--threads", {"0", "1", "3"}, {"-1", "1025", "2.0"}}};
  for (const auto& [name, allowed, refused] : options) {
    for (const std::string& value : allowed) check_accepted({name, value});
    for (const std::string& value : refused) check_refused({name, value}, {name, value});
    for (const char* value : {"=", "=x", "=1x"}) check_refused({name + value}, {name});
    check_refused({name}, {name});
  }
  check_refused({"--length-penalty", "nan", cat}, {"length_penalty is nan"});
  check_refused({"--beams", "1000", cat}, {"num_beams is 1000, more than"});
}

TEST_CASE("The least tokens and the most") {
  CHECK(run({"--min-length", "5", "--max-length", "5", "--quiet", cat}).code == 0);
  check_refused({"--min-length", "6", "--max-length", "5", cat}, {"6, exceeds the maximum, 5", "--min-length"});
  check_refused({"--min-length", "64", cat}, {"64, exceeds the maximum, 63"});
  CHECK(run({"--min-length", "64", "--max-length", "64", "--quiet", cat}).code == 0);
}

TEST_CASE("Words and texts in place of others") {
  check_refused({"--early-stopping", "perhaps", cat}, {"--early-stopping", "perhaps"});
  for (const std::string value : {"no", "yes", "never"}) check_accepted({"--early-stopping", value});
  check_refused({"--task", "summarization", cat}, {"no task 'summarization'", "translation_en_to_fr"});
  check_accepted({"--task", "translation_en_to_fr"});
  check_accepted({"--prefix", ""});
  check_refused({"--unknown", cat}, {"--unknown"});
}

TEST_CASE("Input that is too long is an error, after what stands before it") {
  const std::string line(100, 'a'), endless(420'000, 'a');
  for (const std::string& text : {line + "a", endless.substr(0, 100'000)}) {
    const Outcome given = run({"--quiet", "--max-input", "100", cat, text, cat});
    CHECK(given.code == 1);
    CHECK(given.out == chat);
    check_says(given.err, {"sentence 2 has more than 100 bytes", "--max-input"});
    std::string lines = cat;
    for (const std::string& next : {text, cat}) lines.append("\n").append(next);
    const Outcome read = run({"--quiet", "--max-input", "100"}, {.text = lines});
    CHECK(read.code == 1);
    CHECK(read.out == chat);
    CHECK(read.err == given.err);
  }
  CHECK(run({"--quiet", "--max-length", "1", "--max-input", "100"}, {.text = line + "\r\n" + cat}).code == 0);
  CHECK(run({"--quiet", "--max-length", "1", "--max-input", "101"}, {.text = line + "a\n" + cat}).code == 0);
  check_says(run({"--max-input", "16"}, {.text = cat}).err, {"sentence 1 has more than 16 bytes"});
  check_says(run({}, {.text = endless}).err, {"sentence 1 has more than 4096 bytes"});
  // A line that never ends.
  const Outcome zeros = run({"--quiet"}, {.input = "/dev/zero"});
  CHECK(zeros.code == 1);
  check_says(zeros.err, {"sentence 1 has more than 4096 bytes"});
}

TEST_CASE("Streams that cannot be read or written") {
  const Outcome folder = run({}, {.input = "/"});
  CHECK(folder.code == 1);
  check_says(folder.err, {"cannot read standard input"});
  const Outcome full = run({"--quiet", cat}, {.output = "/dev/full"});
  CHECK(full.code == 1);
  check_says(full.err, {"cannot write to standard output"});
}

}  // namespace
}  // namespace headlane::test
