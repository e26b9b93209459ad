// Shared by the bindings of headlane::models.
#pragma once

#include "core/define.hpp"
#include "core/dtype.hpp"
#include "core/result.hpp"
#include "mpi/transport.hpp"

#include <headlane/models/model_options.hpp>

#include <chrono>
#include <filesystem>
#include <nanobind/nanobind.h>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace headlane::python {

/// Token ids of a sentence, or of several: sequences of integers (lists, NumPy arrays …), copied.
/// Throws TypeError, with the index, for anything else. The model checks the ids.
std::vector<Index> sentence_of(const Call& call, const std::string& name, nb::handle object);
std::vector<std::vector<Index>> sentences_of(const Call& call, const char* name, nb::handle object);

/// Lets a signal (Ctrl-C) end a long call. To be called repeatedly without the GIL, by the thread
/// that Python called; throws the exception of the signal's handler. Takes the GIL at most every 10
/// ms, since other threads may hold it.
class Signals {
 public:
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - checked_ < std::chrono::milliseconds(10)) return;
    const GilAcquire acquire;
    checked_ = std::chrono::steady_clock::now();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  std::chrono::steady_clock::time_point checked_ = std::chrono::steady_clock::now();
};

/// Adds a model's class and its __init__, which takes the folder as os.fsencode() returns it: that
/// represents every name.
template <class Model>
nb::class_<Model> define_model(nb::module_& module, const char* name) {
  nb::class_<Model> model(module, name, nb::is_final());
  model.def(
      "__init__",
      [name](Model* self, const nb::bytes& folder, nb::handle weights, nb::handle activations, nb::handle team) {
        const std::filesystem::path path = std::string(folder.c_str(), folder.size());
        const Call call(name);
        mpi::Transport* const ranks = team_of(call, team);
        on_ranks(call, ranks, name, [&] {
          const models::ModelOptions options{.weights = dtype_named(call, "weights", weights),
                                             .activations = activations_named(call, activations),
                                             .team = ranks};
          call.compute([&] { new (self) Model(path, options); });
        });
      },
      nb::arg("folder"), nb::arg("weights"), nb::arg("activations"), nb::arg("team").none());
  return model;
}

/// Fields of a config by name.
template <class Config, class... Fields>
nb::dict dict_of(const Config& config, const std::pair<const char*, Fields Config::*>&... fields) {
  nb::dict result;
  ((result[fields.first] = nb::cast(config.*fields.second)), ...);
  return result;
}

void add_bert(nb::module_& module);
void add_stored(nb::module_& module);
void add_t5(nb::module_& module);

}  // namespace headlane::python
