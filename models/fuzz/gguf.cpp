// The input is a GGUF file: checks the offsets of its tensors, loads all that can be loaded, packs
// what can be packed, and decodes the metadata.
#include <headlane/models/gguf.hpp>

#include "fuzz.hpp"
#include "io/gguf_header.hpp"

#include <bit>

namespace headlane::fuzz {

inline std::uint64_t sum_of_loaded = 0;  // so that reading is not optimised away

inline void load_gguf(const std::filesystem::path& path) {
  const models::GgufFile file(path);
  for (const std::string& key : file.keys())
    expect_checkpoint_error([&] { sum_of_loaded += file.metadata(key)->index(); });
  for (const std::string& name : file.names()) {
    expect_checkpoint_error([&] {
      const models::Tensor tensor = file.load(name, file.shape(name));
      Index elements = 1;
      for (int axis = 0; axis < tensor.view().rank; ++axis)
        elements *= tensor.view().shape[static_cast<std::size_t>(axis)];
      for (Index i = 0; i < elements; ++i) sum_of_loaded += std::bit_cast<std::uint32_t>(tensor.view().data[i]);
    });
    expect_checkpoint_error([&] { sum_of_loaded += file.pack(name, {.num_threads = 1}).bytes(); });
  }
}

}  // namespace headlane::fuzz

using namespace headlane;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InputFolder<1> input({"x.gguf"});
  input.write(fuzz::text_of(data, size));
  fuzz::expect_checkpoint_error([&] {
    const models::internal::InputFile file(input.path() / "x.gguf");
    std::uint64_t total = 0;
    for (const auto& [name, tensor] : models::internal::read_gguf(file).tensors) {
      const bool within = tensor.offset >= 24 && tensor.offset <= size && tensor.size <= size - tensor.offset;
      if (tensor.size > 0 && !within) fuzz::found("outside of the file", name);
      total += tensor.size;
    }
    if (total > size) fuzz::found("tensors overlap", "");
    fuzz::load_gguf(input.path() / "x.gguf");
  });
  return 0;
}
