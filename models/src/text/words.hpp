// The words of a text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headlane::models::internal {

/// Runs of letters in lower case, including apostrophes inside them (’ as '). The text is UTF-8;
/// invalid bytes separate words.
std::vector<std::string> words_of(std::string_view text);

}  // namespace headlane::models::internal
