// generate() of T5.
#pragma once

#include "t5/model.hpp"

#include <span>
#include <vector>

namespace headlane::models::internal {

/// Throws std::invalid_argument unless ids are of the vocabulary and there is one.
void check_ids(const char* function, const char* what, std::span<const Index> ids, const T5Config& config);

std::vector<std::vector<Index>> generate(const T5Model& model, const T5Config& config,
                                         std::span<const std::vector<Index>> inputs, const GenerateOptions& options);

}  // namespace headlane::models::internal
