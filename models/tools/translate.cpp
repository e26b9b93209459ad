// headlane-translate: translates sentences from the command line or standard input with a T5 model.
#include <headlane/models/text.hpp>
#include <headlane/runtime.hpp>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

using headlane::Index;
using headlane::models::EarlyStopping;
using headlane::models::GenerateOptions;
using headlane::models::GenerateProgress;
using headlane::models::Translator;
using headlane::models::TranslatorOptions;

constexpr int failed = 1, wrong_usage = 2;

struct Arguments {
  std::string folder;
  std::vector<std::string> sentences;
  TranslatorOptions translator;
  std::optional<Index> beams, max_length, min_length, no_repeat_ngram_size;
  std::optional<double> length_penalty;
  std::optional<std::string> early_stopping;
  Index batch = 16, max_input = 4096;
  int threads = 0;
  bool quiet = false;
};

/// An option whose value is the name of one of these types.
void add_type(CLI::App& app, const char* name, headlane::DType& to, std::initializer_list<headlane::DType> types,
              const char* description) {
  std::map<std::string, headlane::DType> by_name;
  for (const headlane::DType type : types) by_name.emplace(headlane::name_of(type), type);
  app.add_option_function<std::string>(
         name, [&to, by_name](const std::string& given) { to = by_name.at(given); }, description)
      ->check(CLI::IsMember(by_name));
}

void declare(CLI::App& app, Arguments& arguments) {
  constexpr Index max_tokens = 1'000'000;
  app.set_version_flag("--version", std::string(headlane::version()), "Print the version and exit");
  app.add_option("model", arguments.folder, "Folder of the model: config.json, *.safetensors, spiece.model")
      ->required();
  app.add_option("sentence", arguments.sentences, "Sentences to translate; default: the lines of standard input");
  app.add_option("--task", arguments.translator.task, "Task of the model's config, such as translation_en_to_fr");
  app.add_option("--prefix", arguments.translator.prefix,
                 "Prepended to each sentence instead of the prefix of the task");
  app.add_option("--beams", arguments.beams, "Number of beams; 1: greedy search")
      ->check(CLI::Range(Index{1}, Index{1024}));
  app.add_option("--max-length", arguments.max_length, "Maximum number of tokens in a translation")
      ->check(CLI::Range(Index{1}, max_tokens));
  app.add_option("--min-length", arguments.min_length, "Minimum number of tokens in a translation")
      ->check(CLI::Range(Index{0}, max_tokens));
  app.add_option("--length-penalty", arguments.length_penalty, "Beam search: above 0 favors long translations")
      ->check(CLI::Range(-100.0, 100.0));
  app.add_option("--early-stopping", arguments.early_stopping, "Beam search: when to stop (no, yes, never)")
      ->check(CLI::IsMember({"no", "yes", "never"}));
  app.add_option("--no-repeat-ngram", arguments.no_repeat_ngram_size,
                 "No n-gram of this size occurs twice; 0: no limit")
      ->check(CLI::Range(Index{0}, max_tokens));
  app.add_option("--batch", arguments.batch, "Sentences translated at a time; does not change results")
      ->check(CLI::Range(Index{1}, Index{4096}))
      ->capture_default_str();
  app.add_option("--max-input", arguments.max_input,
                 "Maximum number of bytes in a sentence; a longer one is an error, since time grows with the square of "
                 "the length")
      ->check(CLI::Range(Index{1}, Index{1} << 30))
      ->capture_default_str();
  using headlane::DType;
  add_type(app, "--weights", arguments.translator.weights,
           {DType::float32, DType::bfloat16, DType::float16, DType::int8, DType::int8_group32, DType::int4_group32},
           "How weights are stored: the smaller, the faster");
  add_type(app, "--activations", arguments.translator.activations, {DType::float32, DType::bfloat16, DType::int8},
           "Rounds them, too, for weights of such a type; int8 is the fastest");
  app.add_option("--threads", arguments.threads, "Number of threads; 0: one per processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--quiet", arguments.quiet, "Print only errors to standard error");
  app.footer(
      "Translations are written to standard output, one line per sentence, in order; notices and speed to\n"
      "standard error.\n"
      "Exit code: 0, 1 for an error, 2 for wrong arguments.");
}

/// The options of the task, overridden by those of the command line.
GenerateOptions options_of(const Translator& translator, const Arguments& arguments) {
  GenerateOptions options = translator.defaults();
  if (arguments.beams) options.num_beams = *arguments.beams;
  // The library counts the start token, users do not.
  if (arguments.max_length) options.max_length = *arguments.max_length + 1;
  if (arguments.min_length) options.min_length = *arguments.min_length + 1;
  if (arguments.length_penalty) options.length_penalty = *arguments.length_penalty;
  if (arguments.early_stopping)
    options.early_stopping = *arguments.early_stopping == "no"    ? EarlyStopping::no
                             : *arguments.early_stopping == "yes" ? EarlyStopping::yes
                                                                  : EarlyStopping::never;
  if (arguments.no_repeat_ngram_size) options.no_repeat_ngram_size = *arguments.no_repeat_ngram_size;
  options.num_threads = arguments.threads;
  if (options.min_length > options.max_length)
    throw std::invalid_argument("the minimum number of tokens, " + std::to_string(options.min_length - 1) +
                                ", exceeds the maximum, " + std::to_string(options.max_length - 1) +
                                " (--min-length, --max-length, or the model's)");
  return options;
}

/// Replaces control characters, which could control a terminal.
std::string plain(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

class Session {
 public:
  Session(const Translator& translator, const Arguments& arguments)
      : translator_(translator), arguments_(arguments), options_(options_of(translator, arguments)) {
    const bool shows = !arguments.quiet && isatty(STDERR_FILENO) == 1;
    options_.progress = [this, shows](const GenerateProgress& progress) {
      tokens_of_batch_ = progress.tokens;
      if (shows)
        std::fprintf(stderr, "\r%td sentences, %td tokens", sentences_ + progress.finished_sentences,
                     tokens_ + progress.tokens);
    };
  }

  void translate(std::vector<std::string>& sentences) {
    if (sentences.empty()) return;
    const auto start = std::chrono::steady_clock::now();
    // An empty line remains empty.
    std::vector<std::string> asked, answers;
    for (const std::string& sentence : sentences)
      if (!empty(sentence)) asked.push_back(sentence);
    if (!asked.empty()) answers = translator_.translate(asked, options_);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    tokens_ += tokens_of_batch_;
    tokens_of_batch_ = 0;
    if (!arguments_.quiet && isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "\r\033[K");
    auto answer = answers.begin();
    for (const std::string& sentence : sentences) {
      std::cout << (empty(sentence) ? std::string() : *answer++) << '\n';
      if (!arguments_.quiet) notice(sentence);
    }
    std::cout.flush();
    if (!std::cout) throw std::runtime_error("cannot write to standard output");
    sentences_ += std::ssize(sentences);
    sentences.clear();
  }

  void summary() const {
    if (arguments_.quiet || tokens_ == 0) return;
    std::fprintf(stderr, "%td sentences, %td tokens in %.2f s: %.0f tokens/s\n", sentences_, tokens_, seconds_,
                 static_cast<double>(tokens_) / seconds_);
  }

 private:
  static bool empty(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

  void notice(const std::string& sentence) const {
    std::string words;
    for (const std::string& word : translator_.unknown(sentence)) words += (words.empty() ? "" : ", ") + plain(word);
    if (words.empty()) return;
    std::cout.flush();
    std::fprintf(stderr, "notice: the model does not know: %s; it guesses in \"%s\"\n", words.c_str(),
                 plain(sentence).c_str());
  }

  const Translator& translator_;
  const Arguments& arguments_;
  GenerateOptions options_;
  Index sentences_ = 0, tokens_ = 0, tokens_of_batch_ = 0;
  double seconds_ = 0;
};

/// The next line of standard input. Stops after `max_bytes` + 2 bytes, the last of which may end a
/// line together with \n: a line may be endless.
bool next_line(std::string& line, Index max_bytes) {
  line.clear();
  int c = 0;
  while (std::ssize(line) <= max_bytes + 1 && (c = std::getc(stdin)) != EOF && c != '\n') line += static_cast<char>(c);
  if (std::ferror(stdin) != 0) throw std::runtime_error("cannot read standard input");
  return c != EOF || !line.empty();
}

void run(const Arguments& arguments) {
  const Translator translator(arguments.folder, arguments.translator);
  if (!arguments.quiet)
    for (const std::string& name : translator.model().config().unsupported)
      std::fprintf(stderr, "notice: the model's setting %s is ignored\n", plain(name).c_str());
  Session session(translator, arguments);
  std::vector<std::string> waiting;
  Index number = 0;
  const auto add = [&](std::string sentence) {
    ++number;
    if (!sentence.empty() && sentence.back() == '\r') sentence.pop_back();
    if (std::ssize(sentence) > arguments.max_input) {
      session.translate(waiting);  // the sentences before it
      throw std::runtime_error("sentence " + std::to_string(number) + " has more than " +
                               std::to_string(arguments.max_input) + " bytes (--max-input): divide it");
    }
    for (char& c : sentence)
      if (c == '\n') c = ' ';  // a sentence is a line of the output
    waiting.push_back(std::move(sentence));
    if (std::ssize(waiting) == arguments.batch) session.translate(waiting);
  };
  for (const std::string& sentence : arguments.sentences) add(sentence);
  if (arguments.sentences.empty()) {
    // Typed sentences are translated at once.
    const bool typed = isatty(STDIN_FILENO) == 1;
    for (std::string line; next_line(line, arguments.max_input);) {
      add(line);
      if (typed) session.translate(waiting);
    }
  }
  session.translate(waiting);
  session.summary();
}

int guarded(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Translates with a T5 model.", "headlane-translate");
  try {
    declare(app, arguments);
    app.parse(argc, argv);
    run(arguments);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : wrong_usage;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "headlane-translate: %s\n", plain(error.what()).c_str());
    return wrong_usage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headlane-translate: %s\n", plain(error.what()).c_str());
    return failed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return guarded(argc, argv);
  } catch (...) {  // out of memory, even for a message
    return failed;
  }
}
