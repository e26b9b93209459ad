// What a folder of sentence-transformers says beside the model: where it is, pooling, normalisation, the longest sentence.
#pragma once

#include <headlane/models/bert.hpp>

#include <filesystem>

namespace headlane::models {

struct SentenceFolder {
  std::filesystem::path transformer;  ///< config.json, weights, tokenizer
  Pooling pooling = Pooling::mean;    ///< sentence-transformers' own default
  bool normalize = false;
  Index max_seq_length = 0;  ///< 0: not said
};

/// Defaults, if there is no modules.json. Throws CheckpointError for modules other than Transformer, Pooling and Normalize, in this order, and
/// for pooling other than mean or cls.
SentenceFolder sentence_folder(const std::filesystem::path& folder);

}  // namespace headlane::models
