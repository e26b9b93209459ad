// Opens a folder's checkpoint and loads every tensor.
#pragma once

#include "fuzz.hpp"

#include <headlane/models/checkpoint.hpp>

#include <bit>

namespace headlane::fuzz {

inline std::uint32_t sum_of_loaded = 0;  // so that reading is not optimised away

inline void load_all(const std::filesystem::path& folder) {
  const models::Checkpoint checkpoint(folder);
  for (const std::string& name : checkpoint.names()) {
    expect_checkpoint_error([&] {
      const models::Tensor tensor = checkpoint.load(name, checkpoint.shape(name));
      const AnyView<const float>& view = tensor.view();
      std::uint64_t elements = 1;
      for (int axis = 0; axis < view.rank; ++axis)
        elements *= static_cast<std::uint64_t>(view.shape[static_cast<std::size_t>(axis)]);
      for (std::uint64_t i = 0; i < elements; ++i) sum_of_loaded += std::bit_cast<std::uint32_t>(view.data[i]);
    });
    const std::string prefix = name.substr(0, name.find_last_of('.') + 1);
    expect_checkpoint_error([&] {
      const PackedMatrix packed = checkpoint.pack(prefix, {.clamp = true, .num_threads = 1});
      sum_of_loaded += static_cast<std::uint32_t>(packed.bytes());
    });
  }
}

}  // namespace headlane::fuzz
