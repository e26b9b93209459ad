// The input is model.safetensors: checks the offsets of its tensors and loads all that can be
// loaded.
#include "io/safetensors.hpp"

#include "io/input_file.hpp"
#include "load_all.hpp"

using namespace headlane;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InputFolder<1> input({"model.safetensors"});
  input.write(fuzz::text_of(data, size));
  fuzz::expect_checkpoint_error([&] {
    const models::internal::InputFile file(input.path() / "model.safetensors");
    std::uint64_t total = 0;
    for (const auto& [name, tensor] : models::internal::read_safetensors(file)) {
      if (tensor.offset < 8 || tensor.offset > size || tensor.size > size - tensor.offset)
        fuzz::found("outside of the file", name);
      total += tensor.size;
    }
    if (total > size) fuzz::found("tensors overlap", "");
    fuzz::load_all(input.path());
  });
  return 0;
}
