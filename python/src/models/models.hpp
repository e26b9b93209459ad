// What the bindings of headlane::models share.
#pragma once

#include <headlane/index.hpp>

#include <filesystem>
#include <nanobind/nanobind.h>
#include <string>
#include <vector>

namespace headlane::python {

namespace nb = nanobind;

/// Token ids of a sentence, or of several: sequences of integers (lists, arrays of NumPy …), copied. Throws TypeError, which names `name`
/// and the place, for anything else; what a sentence may hold is for the model to say.
std::vector<Index> sentence_of(const char* function, const std::string& name, nb::handle object);
std::vector<std::vector<Index>> sentences_of(const char* function, const char* name, nb::handle object);

/// From os.fsencode(), so that no name is impossible.
std::filesystem::path folder_of(const nb::bytes& name);

void add_bert(nb::module_& module);
void add_t5(nb::module_& module);

}  // namespace headlane::python
