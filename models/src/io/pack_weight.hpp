// Shared by GgufFile::pack() and Checkpoint::pack(): checks of the options, and errors.
#pragma once

#include "io/error.hpp"
#include "io/tensor_memory.hpp"

#include <headlane/models/checkpoint.hpp>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace headlane::models::internal {

/// Throws std::invalid_argument, which names the function.
inline void check_pack_options(const char* function, const PackWeightOptions& options) {
  using headlane::internal::require;
  if (options.type) {
    require(*options.type <= DType::int4_group32, function, ": type is ", static_cast<Index>(*options.type),
            ", which is none of float32 … int4_group32");
  }
  require(options.num_threads >= 0, function, ": num_threads is ", options.num_threads, ", the minimum is 0");
}

/// pack(), whose errors are those of a file: CheckpointError, with `subject` after the path.
template <class Pack>
PackedMatrix packed_from(const std::filesystem::path& path, std::string_view subject, const Pack& pack) {
  try {
    return pack();
  } catch (const std::invalid_argument& error) {
    fail(path, subject, error.what());
  }
}

/// The matrix; as another type if the options name one, packed from its float32 values.
inline PackedMatrix as_type_of(PackedMatrix packed, const PackWeightOptions& options) {
  if (options.type.value_or(packed.type()) == packed.type()) return packed;
  const std::shared_ptr<float> values = allocate_floats(static_cast<std::size_t>(packed.rows() * packed.columns()));
  const View<float, 2> b(values.get(), {packed.rows(), packed.columns()});
  packed.unpack(b);
  return PackedMatrix(b, {.type = *options.type, .num_threads = options.num_threads});
}

}  // namespace headlane::models::internal
