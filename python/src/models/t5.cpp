// The class T5; headlane/models/_t5.py gives it names, defaults and documentation.
#include <headlane/models/t5.hpp>

#include "core/call.hpp"
#include "gemm/products.hpp"
#include "models/models.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <new>

namespace headlane::python {
namespace {

using models::EarlyStopping;
using models::GenerateOptions;
using models::T5;

/// False, True or "never".
EarlyStopping early_stopping_of(const char* function, nb::handle object) {
  if (PyBool_Check(object.ptr())) return object.ptr() == Py_True ? EarlyStopping::yes : EarlyStopping::no;
  if (!nb::isinstance<nb::str>(object)) fail_as_type(function, "early_stopping", object, "False, True or 'never'");
  require(text_of(function, "early_stopping", object) == "never", function,
          ": early_stopping is neither False, True nor 'never'");
  return EarlyStopping::never;
}

nb::object early_stopping_object(EarlyStopping value) {
  if (value == EarlyStopping::never) return nb::str("never");
  return nb::bool_(value == EarlyStopping::yes);
}

nb::dict options_dict(const GenerateOptions& options) {
  nb::dict result;
  result["num_beams"] = options.num_beams;
  result["max_length"] = options.max_length;
  result["min_length"] = options.min_length;
  result["length_penalty"] = options.length_penalty;
  result["early_stopping"] = early_stopping_object(options.early_stopping);
  result["no_repeat_ngram_size"] = options.no_repeat_ngram_size;
  return result;
}

nb::list generate(const T5& t5, nb::handle given, nb::handle num_beams, nb::handle max_length, nb::handle min_length,
                  nb::handle length_penalty, nb::handle early_stopping, nb::handle no_repeat_ngram_size,
                  nb::handle num_threads) {
  constexpr const char* function = "generate";
  const auto ids = sentences_of(function, "ids", given);
  Signals signals;
  const GenerateOptions options{
      .num_beams = integer_of(function, "num_beams", num_beams),
      .max_length = integer_of(function, "max_length", max_length),
      .min_length = integer_of(function, "min_length", min_length),
      .length_penalty = double_of(function, "length_penalty", length_penalty),
      .early_stopping = early_stopping_of(function, early_stopping),
      .no_repeat_ngram_size = integer_of(function, "no_repeat_ngram_size", no_repeat_ngram_size),
      .progress = [&](const models::GenerateProgress&) { signals(); },
      .num_threads = threads_of(function, num_threads)};
  std::vector<std::vector<Index>> outputs;
  compute(function, [&] { outputs = t5.generate(ids, options); });
  nb::list result;
  for (const std::vector<Index>& output : outputs) result.append(nb::cast(output));
  return result;
}

nb::object encode(const T5& t5, nb::handle given, nb::handle num_threads) {
  const std::vector<Index> ids = sentence_of("encode", "ids", given);
  const int threads = threads_of("encode", num_threads);
  std::vector<float> states;
  compute("encode", [&] { states = t5.encode(ids, threads); });
  return array_of(states, {std::ssize(ids), t5.config().d_model});
}

nb::object logits(const T5& t5, nb::handle given, nb::handle given_output, nb::handle num_threads) {
  const std::vector<Index> ids = sentence_of("logits", "ids", given),
                           output = sentence_of("logits", "output", given_output);
  const int threads = threads_of("logits", num_threads);
  std::vector<float> values;
  compute("logits", [&] { values = t5.logits(ids, output, threads); });
  return array_of(values, {std::ssize(output), t5.config().vocab_size});
}

nb::dict config_of(const T5& t5) {
  const models::T5Config& config = t5.config();
  nb::dict result, tasks;
  result["vocab_size"] = config.vocab_size;
  result["d_model"] = config.d_model;
  result["d_kv"] = config.d_kv;
  result["d_ff"] = config.d_ff;
  result["num_heads"] = config.num_heads;
  result["num_layers"] = config.num_layers;
  result["num_decoder_layers"] = config.num_decoder_layers;
  result["pad_token_id"] = config.pad_token_id;
  result["decoder_start_token_id"] = config.decoder_start_token_id;
  result["eos_token_ids"] = nb::tuple(nb::cast(config.eos_token_ids));
  for (const auto& [name, task] : config.tasks) tasks[name.c_str()] = task.prefix;
  result["tasks"] = tasks;
  result["unsupported"] = nb::tuple(nb::cast(config.unsupported));
  return result;
}

}  // namespace

void add_t5(nb::module_& module) {
  using nb::arg;
  nb::class_<T5>(module, "T5", nb::is_final())
      .def(
          "__init__",
          [](T5* self, const nb::bytes& folder) {
            const std::filesystem::path path = folder_of(folder);
            compute("T5", [&] { new (self) T5(path); });
          },
          arg("folder"))
      .def("generate", &generate, arg("ids").none(), arg("num_beams").none(), arg("max_length").none(),
           arg("min_length").none(), arg("length_penalty").none(), arg("early_stopping").none(),
           arg("no_repeat_ngram_size").none(), arg("num_threads").none())
      .def("encode", &encode, arg("ids").none(), arg("num_threads").none())
      .def("logits", &logits, arg("ids").none(), arg("output").none(), arg("num_threads").none())
      .def(
          "defaults",
          [](const T5& t5, nb::handle task) { return options_dict(t5.defaults(text_of("defaults", "task", task))); },
          arg("task").none())
      .def_prop_ro("config", &config_of);
}

}  // namespace headlane::python
