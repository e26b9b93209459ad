// The tensors that layers read of a state dict.
#pragma once

namespace headlane::internal {

/// Of Linear and Normalization.
inline constexpr const char* linear_tensors[] = {"weight", "bias"};
inline constexpr const char* embedding_tensors[] = {"weight"};
inline constexpr const char* feed_forward_tensors[] = {"linear1.weight",   "linear1.bias",   "linear_gate.weight",
                                                       "linear_gate.bias", "linear2.weight", "linear2.bias"};
inline constexpr const char* attention_tensors[] = {"in_proj_weight", "q_proj_weight", "k_proj_weight",
                                                    "v_proj_weight",  "in_proj_bias",  "out_proj.weight",
                                                    "out_proj.bias"};

}  // namespace headlane::internal
