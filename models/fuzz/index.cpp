// The input is model.safetensors.index.json and, in a second part, one of the files that it may
// name.
#include "load_all.hpp"

using namespace headlane;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InputFolder<2> input({"model.safetensors.index.json", "two.safetensors"});
  [[maybe_unused]] static const bool is_written = [] {
    input.folder().write("one.safetensors", test::FileBuilder()
                                                .add("a", "F32", "[2]", std::string(8, 'x'))
                                                .add("b", "F16", "[1]", std::string(2, 'x'))
                                                .file());
    return true;
  }();
  input.write(fuzz::text_of(data, size));
  fuzz::expect_checkpoint_error([&] { fuzz::load_all(input.path()); });
  return 0;
}
