#include "generation/processors.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace headlane::models::internal {

void mask_forbidden(std::span<float> logits, std::span<const Index> tokens, std::span<const Index> eos,
                    const GenerateOptions& options) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  const Index length = std::ssize(tokens), n = options.no_repeat_ngram_size;
  if (length < options.min_length)
    for (const Index token : eos) logits[static_cast<std::size_t>(token)] = lowest;
  if (n == 0 || length < n) return;
  // Tokens that followed an earlier occurrence of the last n - 1 tokens.
  const auto context = static_cast<std::size_t>(n - 1);
  const auto last = tokens.last(context);
  for (std::size_t i = context; i < tokens.size(); ++i)
    if (std::ranges::equal(tokens.subspan(i - context, context), last))
      logits[static_cast<std::size_t>(tokens[i])] = lowest;
}

}  // namespace headlane::models::internal
