// Angles of positions: frequencies as steps of a phase, and rows of their sines and cosines.
#pragma once

#include "core/check.hpp"
#include "core/dispatch.hpp"
#include "kernels/table.hpp"

#include <headlane/view.hpp>

#include <cstdint>

namespace headlane::internal {

/// Positions are -max_position … max_position: errors of 2^-61 for each add up to 2^-25.
inline constexpr Index max_position = Index{1} << 36;
/// Bound on the magnitude of a frequency.
inline constexpr float max_frequency = 65536.0f;

/// Throws std::invalid_argument unless positions offset … offset + length - 1 are within the
/// bounds.
void check_positions(Caller caller, const char* name, Index offset, Index length);
/// Throws std::invalid_argument unless the base is finite and at least 1.
void check_base(Caller caller, double base);

/// Frequencies as phases, which positions multiply. Valid in the calling thread until it makes
/// others.
struct Steps {
  Index count;                      ///< angles of a row
  const std::uint32_t *high, *low;  ///< as in kernels::Phases; a multiple of 16 elements
};

/// Steps of the frequencies base^(-factor · j / dim), j < ceil(dim / 2). Kept for the next call
/// with the same arguments.
Steps steps_of_base(double base, Index factor, Index dim);
/// Steps of given frequencies.
Steps steps_of(const View<const float, 1>& frequencies);

/// Rows of sines and cosines, one position after another.
class Angles {
 public:
  /// `memory`: floats_for(steps.count), of this thread alone.
  Angles(const Steps& steps, float* memory);
  static Index floats_for(Index count);

  /// As kernels::SinCosRows.
  void rows(const kernels::KernelTable& kernel, Index position, Index rows, float* sin, float* cos, Index row_step,
            Index columns);

 private:
  void seek(Index position);

  Steps steps_;
  std::uint32_t *high_, *low_;
  Index at_ = 0;  // the position of the current phases
};

}  // namespace headlane::internal
