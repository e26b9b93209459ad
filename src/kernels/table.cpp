// Compiled once per ISA, see cmake/isa.cmake: fills the table for the Arch that the build names.
#include "kernels/table.hpp"

#include "kernels/attention/block.hpp"
#include "kernels/attention/few_keys.hpp"
#include "kernels/attention/weights.hpp"
#include "kernels/gemm/bfloat.hpp"
#include "kernels/gemm/block.hpp"
#include "kernels/gemm/integers.hpp"
#include "kernels/gemm/pack.hpp"
#include "kernels/gemm/quantise.hpp"
#include "kernels/position/rotary.hpp"
#include "kernels/position/sin_cos.hpp"
#include "kernels/recurrent/causal_convolution.hpp"
#include "kernels/recurrent/linear_attention.hpp"
#include "kernels/recurrent/linear_attention_step.hpp"
#include "kernels/rowwise/activation.hpp"
#include "kernels/rowwise/convert.hpp"
#include "kernels/rowwise/copy_rows.hpp"
#include "kernels/rowwise/norm_row.hpp"
#include "kernels/rowwise/softmax_masked.hpp"
#include "kernels/rowwise/softmax_row.hpp"
#include "kernels/simd/exp.hpp"

#define HEADLANE_JOIN_(a, b) a##b
#define HEADLANE_JOIN(a, b) HEADLANE_JOIN_(a, b)
#define HEADLANE_TEXT_(a) #a
#define HEADLANE_TEXT(a) HEADLANE_TEXT_(a)

namespace headlane::internal::kernels {
namespace {

using Arch = HEADLANE_ARCH;

template <class F>
void each(const float* x, float* y, Index n, const F& f) noexcept {
  for (Index i = 0; i < n; i += lanes) f(Lanes<Arch>::load(x + i, n - i, 0.0f)).store(y + i, n - i);
}
void exp_each(const float* x, float* y, Index n) noexcept {
  each(x, y, n, [](const Lanes<Arch>& v) { return exp(v); });
}
void log_each(const float* x, float* y, Index n) noexcept {
  each(x, y, n, [](const Lanes<Arch>& v) { return log(v); });
}

/// Integers, Bfloat: with the extension for products of them. The CPUs of AMD take the latter, and
/// have adders beside their FMA units.
template <bool Integers, bool Bfloat>
constexpr KernelTable table{
    .name = HEADLANE_TEXT(HEADLANE_ISA),
    .extension = Bfloat     ? "vnni+bf16"
                 : Integers ? IntegerUnit<Arch, true>::name
                            : "",
    .tile_rows = Tile<Arch>::rows,
    .panel_tile_rows = PanelTile<Arch>::rows,
    .rows_by_columns = max_rows_by_columns<Arch>,
    .pack_rows = pack_rows<Arch>,
    .pack_panels = pack_panels<Arch>,
    .gemm_block = gemm_block<Arch, Bfloat>,
    .quantise_rows = quantise_rows<Arch, Integers>,
    .gemm_int8 = gemm_integers<Arch, Integers>,
    .pairs = IntegerUnit<Arch, Integers>::in_pairs,
    .round_rows = round_rows<Arch, Bfloat>,
    .gemm_bfloat16 = gemm_bfloat16<Arch, Bfloat>,
    .gemm_epilogue = gemm_epilogue<Arch>,
    .softmax_rows = softmax_rows<Arch>,
    .softmax_masked = softmax_masked<Arch>,
    .norm_rows = norm_rows<Arch>,
    .copy_rows = copy_rows<Arch>,
    .attention_block = attention_block<Arch>,
    .attention_few_keys = attention_few_keys<Arch>,
    .attention_merge = attention_merge<Arch>,
    .attention_finish = attention_finish<Arch>,
    .widen_rows = widen_rows<Arch>,
    .attention_weights = attention_weights<Arch>,
    .linear_attention = linear_attention<Arch>,
    .linear_attention_step = linear_attention_step<Arch>,
    .causal_convolution = causal_convolution<Arch>,
    .activate = activate<Arch>,
    .widen = widen<Arch>,
    .round = round<Arch>,
    .sin_cos_rows = sin_cos_rows<Arch>,
    .scale_add_rows = scale_add_rows<Arch>,
    .rotary_rows = rotary_rows<Arch>,
    .exp = exp_each,
    .log = log_each,
};

}  // namespace

static_assert(Tile<Arch>::rows <= max_tile_rows);

extern const KernelTable HEADLANE_JOIN(table_, HEADLANE_ISA)[3];
const KernelTable HEADLANE_JOIN(table_, HEADLANE_ISA)[3] = {table<false, false>, table<true, false>,
                                                            table<true, has_bfloat_dot<Arch>>};

}  // namespace headlane::internal::kernels
