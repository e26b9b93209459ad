// headlane's norms, GELU and layers, for headlane.cpp.
#pragma once

#include "worker.hpp"

namespace peers {

/// kind: layer_norm, rms_norm, gelu, sigmoid or tanh.
Job norms(const Arguments& arguments);

/// kind: attention (MultiHeadAttention) or encoder (EncoderLayer). Weights are packed here.
Job layers(const Arguments& arguments);

}  // namespace peers
