// Words of a text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headlane::models::internal {

/// Runs of letters, in lower case, with apostrophes inside them (’ as '). UTF-8; bytes that are none separate words.
std::vector<std::string> words_of(std::string_view text);

}  // namespace headlane::models::internal
