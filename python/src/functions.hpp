// The functions of the module `_core`; what they mean is documented in headlane/__init__.py.
#pragma once

#include <headlane/index.hpp>

#include <nanobind/nanobind.h>
#include <optional>

namespace headlane::python {

namespace nb = nanobind;

nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        double dropout_p, bool is_causal, std::optional<float> scale, bool enable_gqa,
                                        Index causal_offset, bool return_lse, nb::handle out,
                                        std::optional<int> num_threads);

/// softmax or, with `log`, log_softmax.
nb::object softmax_over(bool log, nb::handle x, int axis, float scale, nb::handle out, std::optional<int> num_threads);

nb::object gemm_of(nb::handle a, nb::handle b, nb::handle out, float alpha, float beta, std::optional<int> num_threads);

nb::object matmul(nb::handle a, nb::handle b, nb::handle out, std::optional<int> num_threads);

}  // namespace headlane::python
