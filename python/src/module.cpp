// The extension module headlane._core. Its functions take everything by position; headlane/__init__.py gives them names,
// defaults and documentation.
#include "functions.hpp"

#include <headlane/position.hpp>
#include <headlane/runtime.hpp>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

NB_MODULE(_core, module) {
  using namespace headlane;
  namespace nb = nanobind;
  using nb::arg;

  // None for an array is refused by name, like everything else that is none.
  module.def("scaled_dot_product_attention", &python::scaled_dot_product_attention, arg("query").none(),
             arg("key").none(), arg("value").none(), arg("dropout_p"), arg("enable_gqa"), arg("options"),
             arg("return_lse"), arg("return_sum"), arg("out").none(), arg("num_threads").none());
  module.def("attention_over_cache", &python::attention_over_cache, arg("query").none(), arg("cache").none(),
             arg("sequences"), arg("options"), arg("return_lse"), arg("return_sum"), arg("out").none(),
             arg("num_threads").none());
  module.def("plan_attention", &python::plan_attention_of, arg("query").none(), arg("key").none(), arg("value").none(),
             arg("enable_gqa"), arg("options"), arg("num_threads").none());
  module.def("attention_weights", &python::attention_weights_of, arg("query").none(), arg("key").none(),
             arg("enable_gqa"), arg("options"), arg("return_lse"), arg("out").none(), arg("num_threads").none());
  module.def("attention_key_sums", &python::attention_key_sums_of, arg("query").none(), arg("key").none(),
             arg("enable_gqa"), arg("options"), arg("out").none(), arg("num_threads").none());
  module.def("merge", &python::merge_of, arg("parts"), arg("sinks").none(), arg("return_lse"), arg("return_sum"),
             arg("out").none(), arg("num_threads").none());
  module.def("t5_bucket", &t5_bucket, arg("distance"), arg("buckets"), arg("max_distance"), arg("bidirectional"));
  module.def("softmax", &python::softmax_over, arg("log"), arg("x").none(), arg("axis"), arg("scale"),
             arg("mask").none(), arg("bias").none(), arg("lengths").none(), arg("causal"), arg("causal_offset"),
             arg("out").none(), arg("num_threads").none());
  module.def("norm", &python::norm_over, arg("centred"), arg("x").none(), arg("weight").none(), arg("bias").none(),
             arg("eps"), arg("residual").none(), arg("sum").none(), arg("out").none(), arg("num_threads").none());
  module.def("gemm", &python::gemm_of, arg("a").none(), arg("b").none(), arg("out").none(), arg("alpha"), arg("beta"),
             arg("bias").none(), arg("activation").none(), arg("residual").none(), arg("num_threads").none());
  module.def("matmul", &python::matmul, arg("a").none(), arg("b").none(), arg("out").none(), arg("num_threads").none());

  module.def("linear", &python::linear, arg("x").none(), arg("packed").none(), arg("bias").none(),
             arg("activation").none(), arg("residual").none(), arg("out").none(), arg("num_threads").none());
  module.def("gemm_gated", &python::gemm_gated_of, arg("a").none(), arg("gate").none(), arg("up").none(),
             arg("gate_bias").none(), arg("up_bias").none(), arg("activation").none(), arg("out").none(),
             arg("num_threads").none());
  module.def("activate", &python::activate_by, arg("function"), arg("activation"), arg("x").none(), arg("out").none(),
             arg("num_threads").none());
  module.def("sinusoidal_encoding", &python::sinusoidal_encoding_of, arg("out").none(), arg("offset"), arg("base"),
             arg("doubled"), arg("interleaved"), arg("num_threads").none());
  module.def("add_sinusoidal_encoding", &python::add_sinusoidal_encoding_of, arg("x").none(), arg("scale"),
             arg("offset"), arg("base"), arg("doubled"), arg("interleaved"), arg("out").none(),
             arg("num_threads").none());
  module.def("rotary_embedding", &python::rotary_embedding_of, arg("x").none(), arg("base"), arg("rotary_dim"),
             arg("interleaved"), arg("offset"), arg("positions").none(), arg("frequencies").none(), arg("out").none(),
             arg("num_threads").none());
  module.def("alibi_slopes", &python::alibi_slopes_of, arg("out").none());
  python::add_kv_cache(module);
  python::add_packed_matrix(module);
  python::add_layers(module);
  python::add_attention_layers(module);
#ifdef HEADLANE_HAS_MODELS
  python::add_models(module);
#endif

  module.def("version", &version);
  module.def("available_isas", &available_isas);
  module.def("isa", &isa);
  module.def("set_isa", &set_isa, arg("name"));
  module.def("num_threads", &num_threads);
  module.def("set_num_threads", &set_num_threads, arg("threads"));
}
