// The class T5, which headlane/models/_t5.py wraps.
#include <headlane/models/t5.hpp>

#include "models/models.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace headlane::python {
namespace {

using models::EarlyStopping;
using models::GenerateOptions;
using models::T5;

/// False, True or "never".
EarlyStopping early_stopping_of(const Call& call, nb::handle object) {
  if (PyBool_Check(object.ptr())) return object.ptr() == Py_True ? EarlyStopping::yes : EarlyStopping::no;
  if (!nb::isinstance<nb::str>(object)) call.refuse_value("early_stopping", object, "False, True or 'never'");
  call.require(call.text("early_stopping", object) == "never", "early_stopping is neither False, True nor 'never'");
  return EarlyStopping::never;
}

nb::object early_stopping_object(EarlyStopping value) {
  if (value == EarlyStopping::never) return nb::str("never");
  return nb::bool_(value == EarlyStopping::yes);
}

nb::dict defaults_of(const T5& t5, nb::handle task) {
  const GenerateOptions options = t5.defaults(Call("defaults").text("task", task));
  nb::dict result = dict_of(options, std::pair("num_beams", &GenerateOptions::num_beams),
                            std::pair("max_length", &GenerateOptions::max_length),
                            std::pair("min_length", &GenerateOptions::min_length),
                            std::pair("length_penalty", &GenerateOptions::length_penalty),
                            std::pair("no_repeat_ngram_size", &GenerateOptions::no_repeat_ngram_size));
  result["early_stopping"] = early_stopping_object(options.early_stopping);
  return result;
}

nb::list generate(const T5& t5, nb::handle given, nb::handle num_beams, nb::handle max_length, nb::handle min_length,
                  nb::handle length_penalty, nb::handle early_stopping, nb::handle no_repeat_ngram_size,
                  nb::handle num_threads) {
  const Call call("generate");
  return on_ranks(call, t5.team(), "T5::generate", [&] {
    const auto ids = sentences_of(call, "ids", given);
    Signals signals;
    const GenerateOptions options{.num_beams = call.integer("num_beams", num_beams),
                                  .max_length = call.integer("max_length", max_length),
                                  .min_length = call.integer("min_length", min_length),
                                  .length_penalty = call.float64("length_penalty", length_penalty),
                                  .early_stopping = early_stopping_of(call, early_stopping),
                                  .no_repeat_ngram_size = call.integer("no_repeat_ngram_size", no_repeat_ngram_size),
                                  .progress = [&](const models::GenerateProgress&) { signals(); },
                                  .num_threads = call.threads(num_threads)};
    std::vector<std::vector<Index>> outputs;
    call.compute([&] { outputs = t5.generate(ids, options); });
    nb::list result;
    for (const std::vector<Index>& output : outputs) result.append(nb::cast(output));
    return result;
  });
}

nb::object encode(const T5& t5, nb::handle given, nb::handle num_threads) {
  const Call call("encode");
  return on_ranks(call, t5.team(), "T5::encode", [&] {
    const std::vector<Index> ids = sentence_of(call, "ids", given);
    const int threads = call.threads(num_threads);
    std::vector<float> states;
    call.compute([&] { states = t5.encode(ids, threads); });
    return array_of(states, {std::ssize(ids), t5.config().d_model});
  });
}

nb::object logits(const T5& t5, nb::handle given, nb::handle given_output, nb::handle num_threads) {
  const Call call("logits");
  return on_ranks(call, t5.team(), "T5::logits", [&] {
    const std::vector<Index> ids = sentence_of(call, "ids", given), output = sentence_of(call, "output", given_output);
    const int threads = call.threads(num_threads);
    std::vector<float> values;
    call.compute([&] { values = t5.logits(ids, output, threads); });
    return array_of(values, {std::ssize(output), t5.config().vocab_size});
  });
}

nb::dict config_of(const T5& t5) {
  using models::T5Config;
  const T5Config& config = t5.config();
  nb::dict result =
      dict_of(config, std::pair("vocab_size", &T5Config::vocab_size), std::pair("d_model", &T5Config::d_model),
              std::pair("d_kv", &T5Config::d_kv), std::pair("d_ff", &T5Config::d_ff),
              std::pair("num_heads", &T5Config::num_heads), std::pair("num_layers", &T5Config::num_layers),
              std::pair("num_decoder_layers", &T5Config::num_decoder_layers),
              std::pair("pad_token_id", &T5Config::pad_token_id),
              std::pair("decoder_start_token_id", &T5Config::decoder_start_token_id));
  nb::dict tasks;
  for (const auto& [name, task] : config.tasks) tasks[name.c_str()] = task.prefix;
  result["eos_token_ids"] = nb::tuple(nb::cast(config.eos_token_ids));
  result["tasks"] = tasks;
  result["unsupported"] = nb::tuple(nb::cast(config.unsupported));
  return result;
}

}  // namespace

void add_t5(nb::module_& module) {
  nb::class_<T5> t5 = define_model<T5>(module, "T5");
  define(t5, "generate", &generate, "ids", "num_beams", "max_length", "min_length", "length_penalty", "early_stopping",
         "no_repeat_ngram_size", "num_threads");
  define(t5, "encode", &encode, "ids", "num_threads");
  define(t5, "logits", &logits, "ids", "output", "num_threads");
  define(t5, "defaults", &defaults_of, "task");
  t5.def_prop_ro("config", &config_of);
}

}  // namespace headlane::python
