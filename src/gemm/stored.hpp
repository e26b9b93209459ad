// How the elements of a PackedMatrix are stored: conversion from float and back.
#pragma once

#include "kernels/table.hpp"

#include <headlane/dtype.hpp>

#include <cstddef>

namespace headlane::internal {

/// The address of element i of an array of this type.
inline const void* elements_from(const void* data, DType type, Index i) {
  return static_cast<const std::byte*>(data) + i * size_of(type);
}

/// True if each column has a scale, a float. They follow the elements, as many as there are columns
/// in whole panels.
constexpr bool has_scales(DType type) { return type == DType::int8; }

/// scales[j] = max |column j| / 127, rounded to 16 bits: 127 · scale is then exact, and so are all
/// elements, and packing what was unpacked gives the same numbers. NaN or inf if an element is.
void find_scales(const kernels::Source& source, float* scales);

/// Packs at most block_size rows as elements of `type`, as pack_panels() does; `to` is where they
/// begin, `scales` are those of the columns.
void pack_stored(const kernels::Source& source, DType type, const float* scales, void* to,
                 const kernels::KernelTable& kernel);

/// Element i of an array of this type, without its scale.
float widened(const void* data, DType type, Index i);

}  // namespace headlane::internal
