// The settings of a sentence-transformers folder besides those of the model.
#pragma once

#include <headlane/models/bert.hpp>

#include <filesystem>

namespace headlane::models::internal {

struct SentenceFolder {
  std::filesystem::path transformer;  ///< config.json, weights, tokenizer
  BertConfig config;                  ///< from `pooling` on; max_seq_length 0: not said
};

/// As sentence-transformers reads it. Without modules.json it has its defaults, and the other
/// files are not read but for the tokenizer's limit. Throws CheckpointError for modules other
/// than Transformer, Pooling and Normalize, in this order, and for settings that are not known or
/// not supported.
SentenceFolder sentence_folder(const std::filesystem::path& folder);

}  // namespace headlane::models::internal
