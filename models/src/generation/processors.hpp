// Logits processors: they exclude tokens before the best ones are chosen.
#pragma once

#include <headlane/models/generate.hpp>

#include <span>

namespace headlane::models::internal {

/// Sets the logits of tokens that must not follow `tokens` to -inf: eos before min_length, and
/// tokens that would repeat an n-gram (no_repeat_ngram_size).
void mask_forbidden(std::span<float> logits, std::span<const Index> tokens, std::span<const Index> eos,
                    const GenerateOptions& options);

}  // namespace headlane::models::internal
