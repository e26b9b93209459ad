// A call of each operation, large enough for several blocks and heads.
#pragma once

#include "support/mask_case.hpp"

#include <headlane/headlane.hpp>

namespace headlane::test {

struct Work {
  Random random{1};
  Tensor<2> a = random_tensor<2>({70, 600}, random), b = random_tensor<2>({600, 130}, random), c{{70, 130}};
  Tensor<2> x = random_tensor<2>({200, 300}, random), y{{200, 300}};
  AttentionTensors t{{.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 70, .kv_length = 600}, 2};
  Mask mask = random_mask({1, 1, 1, 600}, random, 3);
  Tensor<4> bias = random_bias({1, 1, 70, 600}, random, 3);
  Tensor<3> m = random_tensor<3>({1, 40, 128}, random), m_out{{1, 40, 128}};

  PackedMatrix packed{b.view};
  void run_gemm() const {
    gemm(a.view, b.view, c.view, {.alpha = 0.5f});
    gemm(a.view, packed, c.view, {.bias = b.view.select(0, 0), .activation = Activation::gelu});
  }
  void run_softmax() const {
    softmax(x.view, y.view);
    softmax(x.view, y.view, {.scale = 2, .log = true});
    SoftmaxOptions along_rows{.axis = 0};
    along_rows.bias = x.view;
    softmax(x.view, y.view, along_rows);
    softmax(x.view, y.view, {.causal = true});
  }
  void run_attention() const {
    t.run();
    t.run(causal(530));
    t.run(with_bias(with_mask({}, stretched<const bool>(mask.view, {2, 4, 70, 600})),
                    stretched<const float>(bias.view, {2, 4, 70, 600})));
  }
  void run_activate() const {
    activate(x.view, y.view, Activation::gelu);
    activate(x.view.transposed(), y.view.transposed(), Activation::tanh);
    activate(b.view.transposed().slice(1, 0, 300), y.view.slice(0, 0, 130), Activation::silu);
  }
  void run_multi_head() const { multi_head_attention(m.view, m.view, m.view, m_out.view, 2); }
  void run() const {
    run_gemm();
    run_softmax();
    run_activate();
    run_attention();
    run_multi_head();
  }
};

}  // namespace headlane::test
