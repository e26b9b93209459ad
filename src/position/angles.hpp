// Angles of positions: frequencies as phases of one position, and rows of their sines and cosines.
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
struct Frequencies {
  Index count;                      ///< angles of a row
  const std::uint32_t *high, *low;  ///< as in kernels::Phases; a multiple of 16 elements
};

/// The frequencies base^(-factor · j / dim), j < ceil(dim / 2). Kept for the next call
/// with the same arguments.
Frequencies frequencies_of_base(double base, Index factor, Index dim);
/// Frequencies that the caller gives as floats.
Frequencies frequencies_of(const View<const float, 1>& frequencies);

/// Rows of sines and cosines, one position after another.
class Angles {
 public:
  /// `memory`: floats_for(frequencies.count), of this thread alone.
  Angles(const Frequencies& frequencies, float* memory);
  static Index floats_for(Index count);

  /// As kernels::SinCosRows.
  void rows(const kernels::KernelTable& kernel, Index position, Index rows, float* sin, float* cos, Index row_step,
            Index columns);

 private:
  void seek(Index position);

  Frequencies frequencies_;
  std::uint32_t *high_, *low_;
  Index at_ = 0;  // the position of the current phases
};

}  // namespace headlane::internal
