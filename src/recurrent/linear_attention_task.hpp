// A task of linear_attention: some columns of the state of a head, which go through all tokens.
#pragma once

#include "kernels/table.hpp"

#include <headlane/linear_attention.hpp>
#include <headlane/view.hpp>

namespace headlane::internal {

/// The call, shared by all tasks.
struct LinearAttentionProblem {
  const kernels::KernelTable& kernel;
  const View<const float, 4>&q, &k, &v;
  const View<float, 4>& out;
  const LinearAttentionOptions& options;
  float scale;
  Index heads_of_key, blocks, parts;  ///< blocks of columns in a head, and tasks that share them
  const float* factor;                ///< [key_dim], 1 / sqrt(key_dim), for normalize
};

/// Runs task 0 … batch · heads · parts - 1: some blocks of columns of a head, for all tokens.
void run_linear_attention_task(const LinearAttentionProblem& p, Index task);

}  // namespace headlane::internal
