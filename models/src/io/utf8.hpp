// UTF-8.
#pragma once

#include <string_view>

namespace headlane::models::internal {

/// As RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace headlane::models::internal
