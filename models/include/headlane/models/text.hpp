// Text in, text out: T5 with the SentencePiece model of its folder.
#pragma once

#include <headlane/export.h>
#include <headlane/models/t5.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::models {

struct TranslatorOptions {
  /// Of T5Config::tasks: its prefix and its options of generation. Empty: the only task, or the only one that is a translation; if there are
  /// several, it has to be named; if there is none, the prefix is empty.
  std::string task = {};
  /// Stands before each sentence, in place of the task's.
  std::optional<std::string> prefix = std::nullopt;
};

/// Does not change once it is made: any number of threads may use it at the same time. One that was moved from may be destroyed and
/// assigned to; all else throws std::invalid_argument.
class HEADLANE_API Translator {
 public:
  /// What T5 reads, spiece.model, and words.txt if it is there: the words that the model knows, one in a line.
  /// Errors: as T5; CheckpointError for spiece.model as well; std::invalid_argument for a task that is not there.
  explicit Translator(const std::filesystem::path& folder, const TranslatorOptions& options = {});
  ~Translator();
  Translator(Translator&&) noexcept;
  Translator& operator=(Translator&&) noexcept;

  [[nodiscard]] const T5& model() const;
  [[nodiscard]] const std::string& task() const;
  [[nodiscard]] const std::string& prefix() const;
  /// Of the task.
  [[nodiscard]] GenerateOptions defaults() const;

  /// For each sentence its translation. The text is UTF-8. A sentence of which the tokenizer leaves
  /// nothing (empty, or white space of any kind) has an empty one.
  [[nodiscard]] std::vector<std::string> translate(std::span<const std::string> sentences,
                                                   const GenerateOptions& options) const;

  /// The steps of translate(): the tokens of prefix and text with </s> behind them; the text of tokens, without those that mean none.
  [[nodiscard]] std::vector<Index> tokenize(std::string_view text) const;
  [[nodiscard]] std::string detokenize(std::span<const Index> tokens) const;

  /// What the model was not trained on: words of the text that words.txt lacks, if there is such a file, in lower case and of contractions
  /// (isn't) the part before the apostrophe is enough; and pieces of it that the vocabulary lacks. In the order of the text, each once.
  [[nodiscard]] std::vector<std::string> unknown(std::string_view text) const;

 private:
  struct Implementation;
  [[nodiscard]] HEADLANE_HIDDEN const Implementation& implementation(const char* function) const;
  std::unique_ptr<const Implementation> implementation_;
};

}  // namespace headlane::models
