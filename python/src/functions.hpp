// The functions of the module `_core`; what they mean is documented in headlane/__init__.py.
#pragma once

#include <headlane/index.hpp>

#include <nanobind/nanobind.h>
#include <optional>
#include <string_view>

namespace headlane::python {

namespace nb = nanobind;

nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        double dropout_p, bool is_causal, std::optional<float> scale, bool enable_gqa,
                                        Index causal_offset, float softcap, Index window_left, Index window_right,
                                        nb::handle key_lengths, nb::handle query_lengths, nb::handle alibi_slopes,
                                        nb::handle sinks, bool return_lse, nb::handle out,
                                        std::optional<int> num_threads);

/// softmax or, with `log`, log_softmax.
nb::object softmax_over(bool log, nb::handle x, int axis, float scale, nb::handle out, std::optional<int> num_threads);

/// An activation by its name; `function` is what messages name.
nb::object activate_by(const char* function, std::string_view activation, nb::handle x, nb::handle out,
                       std::optional<int> num_threads);

nb::object gemm_of(nb::handle a, nb::handle b, nb::handle out, float alpha, float beta, nb::handle bias,
                   std::optional<std::string_view> activation, nb::handle residual, std::optional<int> num_threads);

nb::object matmul(nb::handle a, nb::handle b, nb::handle out, std::optional<int> num_threads);

nb::object linear(nb::handle x, nb::handle packed, nb::handle bias, std::optional<std::string_view> activation,
                  nb::handle residual, nb::handle out, std::optional<int> num_threads);

nb::object gemm_gated_of(nb::handle a, nb::handle gate, nb::handle up, nb::handle gate_bias, nb::handle up_bias,
                         std::optional<std::string_view> activation, nb::handle out, std::optional<int> num_threads);

void add_packed_matrix(nb::module_& module);

}  // namespace headlane::python
