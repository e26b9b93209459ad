// Translator: text to text, with T5 and the SentencePiece model of its folder.
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
  /// One of T5Config::tasks: sets the prefix and the generation options. If empty: the only task,
  /// or the only one whose name begins with "translation". If there are several, one must be
  /// named; if there is none, the prefix is empty.
  std::string task = {};
  /// Prepended to each sentence instead of the prefix of the task.
  std::optional<std::string> prefix = std::nullopt;
  DType weights = DType::float32;      ///< as in ModelOptions
  DType activations = DType::float32;  ///< as in ModelOptions
};

/// Threads: immutable; any number of threads may use it concurrently.
/// Errors: std::invalid_argument if it was moved from (it may still be destroyed and assigned to).
class HEADLANE_API Translator {
 public:
  /// Reads what T5 reads, spiece.model, and, if it exists, words.txt: the words that the model
  /// knows, one per line.
  /// Errors: as T5; CheckpointError for spiece.model, too; std::invalid_argument for an unknown
  ///   task.
  explicit Translator(const std::filesystem::path& folder, const TranslatorOptions& options = {});
  ~Translator();
  Translator(Translator&&) noexcept;
  Translator& operator=(Translator&&) noexcept;

  [[nodiscard]] const T5& model() const;
  [[nodiscard]] const std::string& task() const;
  [[nodiscard]] const std::string& prefix() const;
  /// The generation options of the task.
  [[nodiscard]] GenerateOptions defaults() const;

  /// The translation of each sentence. Text is UTF-8. A sentence without tokens (empty, or
  /// nothing but white space) has an empty translation.
  [[nodiscard]] std::vector<std::string> translate(std::span<const std::string> sentences,
                                                   const GenerateOptions& options) const;

  /// The steps of translate(): prefix and text as tokens, ending with </s>; and tokens as text,
  /// special tokens dropped.
  [[nodiscard]] std::vector<Index> tokenize(std::string_view text) const;
  [[nodiscard]] std::string detokenize(std::span<const Index> tokens) const;

  /// The parts of a text that the model was not trained on, each once, in the order of the text:
  ///   words that words.txt lacks, if there is such a file, in lower case; for a contraction
  ///   (isn't), the part before the apostrophe suffices;
  ///   pieces that the vocabulary lacks.
  [[nodiscard]] std::vector<std::string> unknown(std::string_view text) const;

 private:
  struct Implementation;
  [[nodiscard]] HEADLANE_HIDDEN const Implementation& implementation(const char* function) const;
  std::unique_ptr<const Implementation> implementation_;
};

}  // namespace headlane::models
