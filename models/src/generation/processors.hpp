// What forbids tokens: changes of logits before the best are chosen.
#pragma once

#include <headlane/models/generate.hpp>

#include <span>

namespace headlane::models::internal {

/// Tokens that may not follow `tokens` get -inf: the ends before min_length, and what would repeat an n-gram.
void forbid(std::span<float> logits, std::span<const Index> tokens, std::span<const Index> eos,
            const GenerateOptions& options);

}  // namespace headlane::models::internal
