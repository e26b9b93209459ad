// The constants of headlane/cblas.h under short names, and the message of the last error.
#pragma once

#include <headlane/cblas.h>

#include <string>

namespace headlane::test {

inline constexpr int row_major = HEADLANE_CBLAS_ROW_MAJOR, column_major = HEADLANE_CBLAS_COLUMN_MAJOR;
inline constexpr int no_trans = HEADLANE_CBLAS_NO_TRANS, trans = HEADLANE_CBLAS_TRANS,
                     conj_trans = HEADLANE_CBLAS_CONJ_TRANS;

/// Empty if the last call of this thread succeeded.
inline std::string error() {
  const char* text = headlane_cblas_error();
  return text == nullptr ? "" : text;
}

}  // namespace headlane::test
