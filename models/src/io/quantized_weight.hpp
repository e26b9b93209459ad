// The weights of a model that compressed-tensors quantised.
#pragma once

#include <headlane/models/checkpoint.hpp>
#include <headlane/models/checkpoint_error.hpp>

#include <string>

namespace headlane::models::internal {

/// The weight [out, in] of a layer as it is stored, packed as [in, out]. -128 becomes -127. Throws
/// CheckpointError for another shape.
inline PackedMatrix quantized_weight(const Checkpoint& checkpoint, const std::string& prefix, Index out, Index in) {
  PackedMatrix packed = checkpoint.pack(prefix, {.clamp = true});
  if (packed.columns() != out || packed.rows() != in)
    throw CheckpointError(prefix + "weight has the shape [" + std::to_string(packed.columns()) + ", " +
                          std::to_string(packed.rows()) + "], [" + std::to_string(out) + ", " + std::to_string(in) +
                          "] is expected");
  return packed;
}

}  // namespace headlane::models::internal
