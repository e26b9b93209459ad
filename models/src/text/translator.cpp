#include "io/error.hpp"
#include "text/words.hpp"

#include <headlane/models/text.hpp>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>
#include <utility>

namespace headlane::models {

using namespace internal;

namespace {

std::string chosen_task(const T5Config& config, const TranslatorOptions& options) {
  std::string names;
  std::vector<std::string> found;
  for (const auto& [name, task] : config.tasks) {
    names += (names.empty() ? "" : ", ") + name;
    if (config.tasks.size() == 1 || name.starts_with("translation")) found.push_back(name);
  }
  if (!options.task.empty() && !config.tasks.contains(options.task))
    throw std::invalid_argument("Translator: the model has no task '" + options.task +
                                "'; it has: " + (names.empty() ? "none" : names));
  if (!options.task.empty()) return options.task;
  if (found.size() > 1 && !options.prefix)
    throw std::invalid_argument("Translator: the model has several tasks, name one of them: " + names);
  return found.size() == 1 ? found.front() : std::string();
}

/// The words of words.txt, if it exists.
std::optional<std::set<std::string, std::less<>>> read_words(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  std::ifstream in(file, std::ios::binary);
  std::set<std::string, std::less<>> words;
  for (std::string line; std::getline(in, line);)
    for (std::string& word : words_of(line)) words.insert(std::move(word));
  if (in.bad() || !in.eof()) fail(file, "cannot be read");
  return words;
}

}  // namespace

struct Translator::Implementation {
  T5 model;
  std::string task, prefix;
  sentencepiece::SentencePieceProcessor pieces;
  std::optional<std::set<std::string, std::less<>>> words;

  Implementation(const std::filesystem::path& folder, const TranslatorOptions& options)
      : model(folder, {.weights = options.weights, .activations = options.activations}),
        task(chosen_task(model.config(), options)),
        words(read_words(folder / "words.txt")) {
    const std::filesystem::path file = folder / "spiece.model";
    if (!std::filesystem::exists(file)) fail(file, "is missing");
    if (std::filesystem::is_directory(file)) fail(file, "is a folder");
    const auto status = pieces.Load(file.string());
    if (!status.ok()) fail(file, "is not a model of SentencePiece: ", shown(status.ToString()));
    if (pieces.GetPieceSize() > model.config().vocab_size)
      fail(file, "has ", pieces.GetPieceSize(), " pieces, but 'vocab_size' is ", model.config().vocab_size);
    if (options.prefix) prefix = *options.prefix;
    else if (!task.empty()) prefix = model.config().tasks.at(task).prefix;
  }
};

Translator::Translator(const std::filesystem::path& folder, const TranslatorOptions& options)
    : implementation_(std::make_unique<const Implementation>(folder, options)) {}
Translator::~Translator() = default;
Translator::Translator(Translator&&) noexcept = default;
Translator& Translator::operator=(Translator&&) noexcept = default;

const Translator::Implementation& Translator::implementation(const char* function) const {
  return unmoved(implementation_, function, "translator");
}

const T5& Translator::model() const { return implementation("Translator::model").model; }
const std::string& Translator::task() const { return implementation("Translator::task").task; }
const std::string& Translator::prefix() const { return implementation("Translator::prefix").prefix; }
GenerateOptions Translator::defaults() const {
  const Implementation& self = implementation("Translator::defaults");
  return self.model.defaults(self.task);
}

std::vector<Index> Translator::tokenize(std::string_view text) const {
  const Implementation& self = implementation("Translator::tokenize");
  const std::vector<int> ids = self.pieces.EncodeAsIds(self.prefix + std::string(text));
  std::vector<Index> tokens(ids.begin(), ids.end());
  const std::vector<Index>& ends = self.model.config().eos_token_ids;
  if (!ends.empty()) tokens.push_back(ends.front());
  return tokens;
}

std::string Translator::detokenize(std::span<const Index> tokens) const {
  const Implementation& self = implementation("Translator::detokenize");
  const auto& pieces = self.pieces;
  const T5Config& config = self.model.config();
  std::vector<int> ids;
  for (const Index token : tokens) {
    // Models have more tokens than pieces: <extra_id_…> and padding of the vocabulary.
    if (token < 0 || token >= pieces.GetPieceSize() || token == config.pad_token_id) continue;
    const int id = static_cast<int>(token);
    if (std::ranges::find(config.eos_token_ids, token) == config.eos_token_ids.end() && !pieces.IsControl(id) &&
        !pieces.IsUnknown(id))
      ids.push_back(id);
  }
  return pieces.DecodeIds(ids);
}

std::vector<std::string> Translator::translate(std::span<const std::string> sentences,
                                               const GenerateOptions& options) const {
  const Implementation& self = implementation("Translator::translate");
  std::vector<std::vector<Index>> inputs;
  std::vector<std::size_t> places;  // of sentences that are not blank
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    if (self.pieces.EncodeAsIds(sentences[i]).empty()) continue;
    places.push_back(i);
    inputs.push_back(tokenize(sentences[i]));
  }
  const std::vector<std::vector<Index>> outputs = self.model.generate(inputs, options);
  std::vector<std::string> result(sentences.size());
  for (std::size_t i = 0; i < places.size(); ++i) result[places[i]] = detokenize(outputs[i]);
  return result;
}

std::vector<std::string> Translator::unknown(std::string_view text) const {
  const Implementation& self = implementation("Translator::unknown");
  std::vector<std::string> result;
  const auto report = [&](std::string what) {
    if (std::ranges::find(result, what) == result.end()) result.push_back(std::move(what));
  };
  const auto& pieces = self.pieces;
  if (const auto& words = self.words)
    for (std::string& word : words_of(text)) {
      // Contractions: "isn't" is known if "isn" is.
      const std::string_view stem = std::string_view(word).substr(0, word.find('\''));
      if (!words->contains(word) && !words->contains(stem)) report(std::move(word));
    }
  for (const std::string& piece : pieces.EncodeAsPieces(text)) {
    if (!pieces.IsUnknown(pieces.PieceToId(piece))) continue;
    constexpr std::string_view space = "\xe2\x96\x81";
    report(piece.starts_with(space) ? piece.substr(space.size()) : piece);
  }
  return result;
}

}  // namespace headlane::models
