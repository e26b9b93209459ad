// Activation functions, element by element.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

namespace headlane {

struct ActivateOptions {
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// y = activation(x), element by element.
///
/// Shapes: x and y have the same shape, of any rank up to 8, and any strides.
/// Aliasing: y may be x itself (the same data and strides); any other overlap is an error.
/// Arithmetic: the bits are the same for every instruction set, number of threads, stride and
///   neighbouring element.
/// Error: see activation_kind.hpp.
/// Memory: a call allocates nothing once warm.
/// Errors: std::invalid_argument before anything is written, for Activation::none, too;
///   std::bad_alloc.
HEADLANE_API void activate(AnyView<const float> x, AnyView<float> y, Activation activation,
                           const ActivateOptions& options = {});

/// The same in bfloat16 and float16: x is widened exactly, y is the result for float32 rounded
/// once, to nearest, ties to even.
/// Memory: scratch of 32 KiB a thread, kept.
HEADLANE_API void activate(AnyView<const bfloat16> x, AnyView<bfloat16> y, Activation activation,
                           const ActivateOptions& options = {});
HEADLANE_API void activate(AnyView<const float16> x, AnyView<float16> y, Activation activation,
                           const ActivateOptions& options = {});
}  // namespace headlane
