// What attention_check.cpp hands to attention.cpp.
#pragma once

#include <headlane/view.hpp>

namespace headlane {

namespace kernels {
struct KernelTable;
}

/// Attention whose arguments are checked and whose defaults are filled in; no output is empty.
struct AttentionProblem {
  View<const float, 4> q, k, v;
  View<float, 4> out;
  View<float, 3> lse;         // data null: not wanted
  View<const bool, 4> mask;   // data null: none
  View<const float, 4> bias;  // data null: none
  float scale;
  Index offset;       // a row's position on the key axis is its number plus this
  Index left, right;  // it sees keys position - left … position + right: window and causal
  float softcap;      // 0: none
  View<const Index, 1> key_lengths, query_lengths;
  View<const float, 1> alibi_slopes, sinks;
  const kernels::KernelTable& kernel;
  int threads;
};

void run_attention(const AttentionProblem& problem);

}  // namespace headlane
