// The functions of the module `_core`. The package documents them, under the same names.
#pragma once

#include <nanobind/nanobind.h>

namespace headlane::python {

namespace nb = nanobind;

// Every argument is the object that the caller of the package gave. `options`: a dict of options of
// attention by name (attention/options.hpp).

nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        nb::handle dropout_p, nb::handle is_causal, nb::handle scale,
                                        nb::handle enable_gqa, nb::handle options, nb::handle return_lse,
                                        nb::handle return_sum, nb::handle out, nb::handle num_threads);

nb::object attention_over_cache(nb::handle query, nb::handle cache, nb::handle sequences, nb::handle attn_mask,
                                nb::handle options, nb::handle return_lse, nb::handle return_sum, nb::handle out,
                                nb::handle num_threads);

/// `key` and `value` may be a cache and sequences.
nb::object plan_attention_of(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                             nb::handle enable_gqa, nb::handle options, nb::handle num_threads);

nb::object attention_weights_of(nb::handle query, nb::handle key, nb::handle attn_mask, nb::handle enable_gqa,
                                nb::handle options, nb::handle return_lse, nb::handle out, nb::handle num_threads);

nb::object attention_key_sums_of(nb::handle query, nb::handle key, nb::handle attn_mask, nb::handle enable_gqa,
                                 nb::handle options, nb::handle out, nb::handle num_threads);

nb::object merge_of(nb::handle parts, nb::handle sinks, nb::handle return_lse, nb::handle return_sum, nb::handle out,
                    nb::handle num_threads);

/// softmax or, with `log`, log_softmax.
nb::object softmax_over(bool log, nb::handle x, nb::handle axis, nb::handle scale, nb::handle mask, nb::handle bias,
                        nb::handle lengths, nb::handle causal, nb::handle causal_offset, nb::handle out,
                        nb::handle num_threads);

/// layer_norm (`centred`) or rms_norm. `sum`: False, not wanted; True, a new array; or the array to
/// write it to.
nb::object norm_over(bool centred, nb::handle x, nb::handle weight, nb::handle bias, nb::handle eps,
                     nb::handle residual, nb::handle sum, nb::handle out, nb::handle num_threads);

/// An activation by its name. Messages name `function`.
nb::object activate_by(const char* function, nb::handle activation, nb::handle x, nb::handle out,
                       nb::handle num_threads);

/// Returns a NumPy array if `out` is None.
nb::object sinusoidal_encoding_of(nb::handle length, nb::handle d_model, nb::handle offset, nb::handle base,
                                  nb::handle doubled, nb::handle interleaved, nb::handle out, nb::handle num_threads);

nb::object add_sinusoidal_encoding_of(nb::handle x, nb::handle scale, nb::handle offset, nb::handle base,
                                      nb::handle doubled, nb::handle interleaved, nb::handle out,
                                      nb::handle num_threads);

nb::object rotary_embedding_of(nb::handle x, nb::handle base, nb::handle rotary_dim, nb::handle interleaved,
                               nb::handle offset, nb::handle positions, nb::handle frequencies, nb::handle out,
                               nb::handle num_threads);

nb::object alibi_slopes_of(nb::handle heads);

nb::object t5_bucket_of(nb::handle distance, nb::handle buckets, nb::handle max_distance, nb::handle bidirectional);

nb::object gemm_of(nb::handle a, nb::handle b, nb::handle out, nb::handle alpha, nb::handle beta, nb::handle bias,
                   nb::handle activation, nb::handle residual, nb::handle activations, nb::handle num_threads);

nb::object matmul(nb::handle a, nb::handle b, nb::handle out, nb::handle activations, nb::handle num_threads);

nb::object linear(nb::handle x, nb::handle packed, nb::handle bias, nb::handle activation, nb::handle residual,
                  nb::handle out, nb::handle activations, nb::handle num_threads);

nb::object gemm_gated_of(nb::handle a, nb::handle gate, nb::handle up, nb::handle gate_bias, nb::handle up_bias,
                         nb::handle activation, nb::handle activations, nb::handle out, nb::handle num_threads);

/// Whether dicts, namespaces of classes and objects have these values under these names; those that
/// are to have nothing are the value themselves. entries: there, name and value in turn.
bool are_there(const nb::list& entries);

/// Python's names of the options of attention, a tuple.
nb::tuple attention_options();

void add_attention_layers(nb::module_& module);
void add_causal_convolution(nb::module_& module);
void add_experts(nb::module_& module);
void add_kv_cache(nb::module_& module);
void add_layers(nb::module_& module);
void add_linear_attention(nb::module_& module);
void add_mpi(nb::module_& module);
void add_packed_matrix(nb::module_& module);
void add_row_program(nb::module_& module);
/// Only in a build with the models (HEADLANE_HAS_MODELS).
void add_models(nb::module_& module);

}  // namespace headlane::python
