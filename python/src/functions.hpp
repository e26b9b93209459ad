// The functions of the module `_core`; what they mean is documented in headlane/__init__.py.
#pragma once

#include <headlane/index.hpp>

#include <nanobind/nanobind.h>
#include <optional>
#include <string_view>

namespace headlane::python {

namespace nb = nanobind;

/// `options`, here and below: the tuple of attention_options.cpp.
nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, double dropout_p,
                                        bool enable_gqa, nb::handle options, bool return_lse, bool return_sum,
                                        nb::handle out, std::optional<int> num_threads);

nb::object attention_over_cache(nb::handle query, nb::handle cache, nb::handle sequences, nb::handle options,
                                bool return_lse, bool return_sum, nb::handle out, std::optional<int> num_threads);

/// `key` and `value` may be a cache and sequences.
nb::object plan_attention_of(nb::handle query, nb::handle key, nb::handle value, bool enable_gqa, nb::handle options,
                             std::optional<int> num_threads);

nb::object attention_weights_of(nb::handle query, nb::handle key, bool enable_gqa, nb::handle options, bool return_lse,
                                nb::handle out, std::optional<int> num_threads);

nb::object attention_key_sums_of(nb::handle query, nb::handle key, bool enable_gqa, nb::handle options, nb::handle out,
                                 std::optional<int> num_threads);

nb::object merge_of(nb::handle parts, nb::handle sinks, bool return_lse, bool return_sum, nb::handle out,
                    std::optional<int> num_threads);

/// softmax or, with `log`, log_softmax.
nb::object softmax_over(bool log, nb::handle x, int axis, float scale, nb::handle mask, nb::handle bias,
                        nb::handle lengths, bool causal, Index causal_offset, nb::handle out,
                        std::optional<int> num_threads);

/// layer_norm (`centred`) or rms_norm; `sum` False: not wanted, True: a new array, otherwise where it goes.
nb::object norm_over(bool centred, nb::handle x, nb::handle weight, nb::handle bias, float eps, nb::handle residual,
                     nb::handle sum, nb::handle out, std::optional<int> num_threads);

/// An activation by its name; `function` is what messages name.
nb::object activate_by(const char* function, std::string_view activation, nb::handle x, nb::handle out,
                       std::optional<int> num_threads);

/// `out` is written, and given back.
nb::object sinusoidal_encoding_of(nb::handle out, Index offset, double base, bool doubled, bool interleaved,
                                  std::optional<int> num_threads);

nb::object add_sinusoidal_encoding_of(nb::handle x, float scale, Index offset, double base, bool doubled,
                                      bool interleaved, nb::handle out, std::optional<int> num_threads);

nb::object rotary_embedding_of(nb::handle x, double base, Index rotary_dim, bool interleaved, Index offset,
                               nb::handle positions, nb::handle frequencies, nb::handle out,
                               std::optional<int> num_threads);

/// `out` is written, and given back.
nb::object alibi_slopes_of(nb::handle out);

nb::object gemm_of(nb::handle a, nb::handle b, nb::handle out, float alpha, float beta, nb::handle bias,
                   std::optional<std::string_view> activation, nb::handle residual, std::optional<int> num_threads);

nb::object matmul(nb::handle a, nb::handle b, nb::handle out, std::optional<int> num_threads);

nb::object linear(nb::handle x, nb::handle packed, nb::handle bias, std::optional<std::string_view> activation,
                  nb::handle residual, nb::handle out, std::optional<int> num_threads);

nb::object gemm_gated_of(nb::handle a, nb::handle gate, nb::handle up, nb::handle gate_bias, nb::handle up_bias,
                         std::optional<std::string_view> activation, nb::handle out, std::optional<int> num_threads);

void add_attention_layers(nb::module_& module);
void add_kv_cache(nb::module_& module);
void add_layers(nb::module_& module);
void add_packed_matrix(nb::module_& module);
/// Only in a build with the models (HEADLANE_HAS_MODELS).
void add_models(nb::module_& module);

}  // namespace headlane::python
