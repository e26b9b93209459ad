// The extension module headlane._core. Its functions take all arguments by position; the package
// gives them defaults, types and documentation.
#include "core/call.hpp"
#include "core/define.hpp"
#include "core/functions.hpp"

#include <headlane/runtime.hpp>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

// The entry that nanobind defines has another name, and is called by the one below.
#define PyInit__core headlane_init_core

NB_MODULE(_core, module) {
  using namespace headlane;
  namespace nb = nanobind;

  const auto def = [&](const char* name, auto function, auto... names) {
    python::define(module, name, function, names...);
  };
  def("scaled_dot_product_attention", &python::scaled_dot_product_attention, "query", "key", "value", "attn_mask",
      "dropout_p", "is_causal", "scale", "enable_gqa", "options", "return_lse", "return_sum", "out", "num_threads");
  def("attention_over_cache", &python::attention_over_cache, "query", "cache", "sequences", "attn_mask", "options",
      "return_lse", "return_sum", "out", "num_threads");
  def("plan_attention", &python::plan_attention_of, "query", "key", "value", "attn_mask", "enable_gqa", "options",
      "num_threads");
  def("attention_weights", &python::attention_weights_of, "query", "key", "attn_mask", "enable_gqa", "options",
      "return_lse", "out", "num_threads");
  def("attention_key_sums", &python::attention_key_sums_of, "query", "key", "attn_mask", "enable_gqa", "options", "out",
      "num_threads");
  def("merge", &python::merge_of, "parts", "sinks", "return_lse", "return_sum", "out", "num_threads");
  def("t5_bucket", &python::t5_bucket_of, "distance", "buckets", "max_distance", "bidirectional");
  def("softmax", &python::softmax_over, "log", "x", "axis", "scale", "mask", "bias", "lengths", "causal",
      "causal_offset", "out", "num_threads");
  def("norm", &python::norm_over, "centred", "x", "weight", "bias", "eps", "residual", "sum", "out", "num_threads");
  def("gemm", &python::gemm_of, "a", "b", "out", "alpha", "beta", "bias", "activation", "residual", "activations",
      "num_threads");
  def("matmul", &python::matmul, "a", "b", "out", "activations", "num_threads");
  def("linear", &python::linear, "x", "packed", "bias", "activation", "residual", "out", "activations", "num_threads");
  def("gemm_gated", &python::gemm_gated_of, "a", "gate", "up", "gate_bias", "up_bias", "activation", "activations",
      "out", "num_threads");
  def("activate", &python::activate_by, "function", "activation", "x", "out", "num_threads");
  def("sinusoidal_encoding", &python::sinusoidal_encoding_of, "length", "d_model", "offset", "base", "doubled",
      "interleaved", "out", "num_threads");
  def("add_sinusoidal_encoding", &python::add_sinusoidal_encoding_of, "x", "scale", "offset", "base", "doubled",
      "interleaved", "out", "num_threads");
  def("rotary_embedding", &python::rotary_embedding_of, "x", "base", "rotary_dim", "interleaved", "offset", "positions",
      "frequencies", "out", "num_threads");
  module.def("are_there", &python::are_there);
  def("alibi_slopes", &python::alibi_slopes_of, "heads");
  for (auto* add : {&python::add_kv_cache, &python::add_packed_matrix, &python::add_row_program, &python::add_layers,
                    &python::add_attention_layers, &python::add_experts, &python::add_mpi,
                    &python::add_linear_attention, &python::add_causal_convolution})
    add(module);
#ifdef HEADLANE_HAS_MODELS
  python::add_models(module);
#endif

  module.attr("attention_options") = python::attention_options();
  module.def("version", &version);
  module.def("available_isas", &available_isas);
  module.def("isa", &isa);
  module.def("isa_extension", &isa_extension);
  def("set_isa", [](nb::handle name) { set_isa(python::Call("set_isa").text("name", name)); }, "name");
  module.def("num_threads", &num_threads);
  def(
      "set_num_threads",
      [](nb::handle threads) {
        if (threads.is_none()) python::Call("set_num_threads").refuse_value("threads", threads, "an integer");
        set_num_threads(python::Call("set_num_threads").threads(threads, "threads"));
      },
      "threads");
}

#undef PyInit__core

/// nanobind has one set of classes in a process: a second interpreter, before it fails at NumPy,
/// would replace those of the first.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the name that Python asks for
extern "C" NB_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return headlane_init_core();
  PyErr_SetString(PyExc_ImportError, "headlane can only be imported in the main interpreter, not in a subinterpreter");
  return nullptr;
}
