// The benchmark's cases: operations and sizes, at d_model = 512 with 8 heads.
#pragma once

#include "naive.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// A case ready to be timed, with its buffers allocated and filled.
struct Work {
  std::function<void()> library;
  std::function<void(int threads)> naive;  ///< textbook loops; empty if the case has none
  /// Measures the machine's limit, in the case's unit per second.
  std::function<double(std::string_view isa, int threads)> limit;
  std::span<float> output;
};

struct Case {
  std::string op;    ///< a table each
  std::string size;  ///< a line each
  double amount;     ///< work of a call: floating-point operations, elements or bytes
  double flops;      ///< approximate floating-point operations, to estimate the duration
  bool quick;        ///< part of --quick
  std::function<Work()> prepare;
  bool naive = true;  ///< has textbook loops

  [[nodiscard]] std::string name() const { return op + "/" + size; }
};

/// The heading of an operation's table.
struct Section {
  std::string_view op, title;
};
inline constexpr Section sections[] = {
    {"gemm", "GEMM, m×n×k: GFLOP/s and share of the FMA peak of the same instruction set"},
    {"softmax", "Softmax, rows×columns: 10⁹ elements/s and share of the speed of a plain copy"},
    {"attention", "Attention, 8 heads of 64, [batch×] length: GFLOP/s and share of the FMA peak"},
    {"causal", "Causal attention: GFLOP/s of useful work (visible keys only) and share of the FMA peak"},
    {"decode", "Decoding, one query row, [batch×] keys: GB/s of K and V and share of just reading as many bytes"},
    {"norm", "Layer norm and RMS norm, rows×columns: 10⁹ elements/s and share of the speed of a plain copy"},
    {"activation", "GELU, rows×columns: 10⁹ elements/s and share of the speed of a plain copy"},
    {"position",
     "Positions: sinusoidal, the same added to x, rotary: 10⁹ elements/s and share of the speed of a plain copy"},
    {"delta_rule",
     "Gated delta rule, 16 heads of 128, [batch×] length: GFLOP/s, the product with a decay as an fma, and share of "
     "the FMA peak"},
    {"delta_step", "The same of one token: GB/s of the states, read and written, and share of a plain copy"},
    {"convolution",
     "Causal convolution of width 4 and SiLU, rows×channels: 10⁹ elements/s and share of the speed of a plain copy"},
    {"attention_layer",
     "Multi-head attention layer, [batch×] length: GFLOP/s of the products and share of the FMA peak"},
    {"encoder_layer",
     "Encoder layer, d_ff 2048, GELU, [batch×] length: GFLOP/s of the products and share of the FMA peak"},
};

Case gemm_case(Index m, Index n, Index k, bool quick = false);
Case softmax_case(Index rows, Index columns, bool quick = false);
Case attention_case(const AttentionShape& shape, bool quick = false);
/// Floating-point operations of an encoder layer, or of its attention layer.
Case layer_case(bool encoder, Index batch, Index length, bool quick = false);

std::vector<Case> gemm_cases();
std::vector<Case> softmax_cases();
std::vector<Case> attention_cases();
std::vector<Case> norm_cases();
std::vector<Case> activation_cases();
std::vector<Case> position_cases();
std::vector<Case> recurrent_cases();
std::vector<Case> layer_cases();

}  // namespace bench
