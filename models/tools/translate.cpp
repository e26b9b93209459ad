// headlane-translate: sentences from the command line or standard input, translated by a T5 model, line by line.
#include <headlane/models/text.hpp>
#include <headlane/runtime.hpp>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
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

struct Wanted {
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

void declare(CLI::App& app, Wanted& wanted) {
  constexpr Index most_tokens = 1'000'000;
  app.set_version_flag("--version", std::string(headlane::version()), "Print the version and exit");
  app.add_option("model", wanted.folder, "Folder of the model: config.json, *.safetensors, spiece.model")->required();
  app.add_option("sentence", wanted.sentences, "What to translate; without it, each line of standard input");
  app.add_option("--task", wanted.translator.task, "Task of the model's config, such as translation_en_to_fr");
  app.add_option("--prefix", wanted.translator.prefix, "Stands before each sentence, in place of the task's");
  app.add_option("--beams", wanted.beams, "Beams of the search; 1 is greedy")->check(CLI::Range(Index{1}, Index{1024}));
  app.add_option("--max-length", wanted.max_length, "Most tokens of a translation")
      ->check(CLI::Range(Index{1}, most_tokens));
  app.add_option("--min-length", wanted.min_length, "Least tokens of a translation")
      ->check(CLI::Range(Index{0}, most_tokens));
  app.add_option("--length-penalty", wanted.length_penalty, "Of beams: above 0 favours long translations")
      ->check(CLI::Range(-100.0, 100.0));
  app.add_option("--early-stopping", wanted.early_stopping, "Of beams: no, yes or never")
      ->check(CLI::IsMember({"no", "yes", "never"}));
  app.add_option("--no-repeat-ngram", wanted.no_repeat_ngram_size, "No sequence of so many tokens comes twice")
      ->check(CLI::Range(Index{0}, most_tokens));
  app.add_option("--batch", wanted.batch, "Sentences in work at a time; changes no translation")
      ->check(CLI::Range(Index{1}, Index{4096}))
      ->capture_default_str();
  app.add_option(
         "--max-input", wanted.max_input,
         "Most bytes of a sentence: a longer one ends the program with an error, for the time it takes grows with "
         "the square of its length")
      ->check(CLI::Range(Index{1}, Index{1} << 30))
      ->capture_default_str();
  app.add_option("--threads", wanted.threads, "0: as many as there are")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--quiet", wanted.quiet, "Nothing but errors on standard error");
  app.footer(
      "Translations go to standard output, one for each sentence, in order; notices and speed to standard error.\n"
      "Exit code 0, 1 for an error, 2 for wrong arguments.");
}

/// Over those of the task.
GenerateOptions options_of(const Translator& translator, const Wanted& wanted) {
  GenerateOptions options = translator.defaults();
  if (wanted.beams) options.num_beams = *wanted.beams;
  // The start token counts in the library, not for users.
  if (wanted.max_length) options.max_length = *wanted.max_length + 1;
  if (wanted.min_length) options.min_length = *wanted.min_length + 1;
  if (wanted.length_penalty) options.length_penalty = *wanted.length_penalty;
  if (wanted.early_stopping)
    options.early_stopping = *wanted.early_stopping == "no"    ? EarlyStopping::no
                             : *wanted.early_stopping == "yes" ? EarlyStopping::yes
                                                               : EarlyStopping::never;
  if (wanted.no_repeat_ngram_size) options.no_repeat_ngram_size = *wanted.no_repeat_ngram_size;
  options.num_threads = wanted.threads;
  if (options.min_length > options.max_length)
    throw std::invalid_argument("the least tokens of a translation, " + std::to_string(options.min_length - 1) +
                                ", are more than the most, " + std::to_string(options.max_length - 1) +
                                " (--min-length, --max-length, or the model's)");
  return options;
}

/// The text of a notice without characters that drive a terminal.
std::string plain(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

class Session {
 public:
  Session(const Translator& translator, const Wanted& wanted)
      : translator_(translator), wanted_(wanted), options_(options_of(translator, wanted)) {
    const bool shows = !wanted.quiet && isatty(STDERR_FILENO) == 1;
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
    // An empty line stays one.
    std::vector<std::string> asked, answers;
    for (const std::string& sentence : sentences)
      if (!empty(sentence)) asked.push_back(sentence);
    if (!asked.empty()) answers = translator_.translate(asked, options_);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    tokens_ += tokens_of_batch_;
    tokens_of_batch_ = 0;
    if (!wanted_.quiet && isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "\r\033[K");
    auto answer = answers.begin();
    for (const std::string& sentence : sentences) {
      std::cout << (empty(sentence) ? std::string() : *answer++) << '\n';
      if (!wanted_.quiet) notice(sentence);
    }
    std::cout.flush();
    if (!std::cout) throw std::runtime_error("cannot write to standard output");
    sentences_ += std::ssize(sentences);
    sentences.clear();
  }

  void summary() const {
    if (wanted_.quiet || tokens_ == 0) return;
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
  const Wanted& wanted_;
  GenerateOptions options_;
  Index sentences_ = 0, tokens_ = 0, tokens_of_batch_ = 0;
  double seconds_ = 0;
};

/// The next line of standard input, or the beginning of one that is longer than `most` bytes, which may never end.
bool next_line(std::string& line, Index most) {
  line.clear();
  int c = 0;
  while (std::ssize(line) <= most && (c = std::getc(stdin)) != EOF && c != '\n') line += static_cast<char>(c);
  if (std::ferror(stdin) != 0) throw std::runtime_error("cannot read standard input");
  return c != EOF || !line.empty();
}

void run(const Wanted& wanted) {
  const Translator translator(wanted.folder, wanted.translator);
  if (!wanted.quiet)
    for (const std::string& name : translator.model().config().unsupported)
      std::fprintf(stderr, "notice: the model's setting %s is ignored\n", plain(name).c_str());
  Session session(translator, wanted);
  std::vector<std::string> waiting;
  Index number = 0;
  const auto add = [&](std::string sentence) {
    ++number;
    if (std::ssize(sentence) > wanted.max_input) {
      session.translate(waiting);  // those before it
      throw std::runtime_error("sentence " + std::to_string(number) + " has more than " +
                               std::to_string(wanted.max_input) + " bytes (--max-input): divide it");
    }
    if (!sentence.empty() && sentence.back() == '\r') sentence.pop_back();
    for (char& c : sentence)
      if (c == '\n') c = ' ';  // a sentence is a line of the output
    waiting.push_back(std::move(sentence));
    if (std::ssize(waiting) == wanted.batch) session.translate(waiting);
  };
  for (const std::string& sentence : wanted.sentences) add(sentence);
  if (wanted.sentences.empty()) {
    // Who types wants each answer at once.
    const bool typed = isatty(STDIN_FILENO) == 1;
    for (std::string line; next_line(line, wanted.max_input);) {
      add(line);
      if (typed) session.translate(waiting);
    }
  }
  session.translate(waiting);
  session.summary();
}

int guarded(int argc, char** argv) {
  Wanted wanted;
  CLI::App app("Translates with a T5 model.", "headlane-translate");
  try {
    declare(app, wanted);
    app.parse(argc, argv);
    run(wanted);
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
  } catch (...) {  // out of memory, in a message as well
    return failed;
  }
}
