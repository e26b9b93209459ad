// Conversions between float32 and the types of 16 bits.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

namespace headlane {

struct ConvertOptions {
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// to = from, element by element: widened exactly.
///
/// Shapes: from and to have the same shape, of any rank from 1 to 8, and any strides; those of
///   `from` may be 0.
/// Aliasing: to must overlap neither from nor itself.
/// Arithmetic: every element has the bits that the conversions of the types (dtype.hpp) return,
///   sign and payload of a NaN included, on every instruction set, for any number of threads and
///   whatever the caller's floating-point state.
/// Memory: a call allocates nothing once warm.
/// Errors: std::invalid_argument before anything is written.
HEADLANE_API void convert(AnyView<const bfloat16> from, AnyView<float> to,
                          const ConvertOptions& options = {});
HEADLANE_API void convert(AnyView<const float16> from, AnyView<float> to,
                          const ConvertOptions& options = {});

/// The same in the other direction: rounded to nearest, ties to even.
HEADLANE_API void convert(AnyView<const float> from, AnyView<bfloat16> to,
                          const ConvertOptions& options = {});
HEADLANE_API void convert(AnyView<const float> from, AnyView<float16> to,
                          const ConvertOptions& options = {});

}  // namespace headlane
