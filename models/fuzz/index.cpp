// The input is model.safetensors.index.json and, in a second part, one of the files that it may
// name.
#include "load_all.hpp"

using namespace headlane;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const input = [] {
    auto* result = new fuzz::InputFolder<2>({"model.safetensors.index.json", "two.safetensors"});
    result->folder().write("one.safetensors", test::FileBuilder()
                                                  .add("a", "F32", "[2]", std::string(8, 'x'))
                                                  .add("b", "F16", "[1]", std::string(2, 'x'))
                                                  .file());
    return result;
  }();
  input->write(fuzz::text_of(data, size));
  fuzz::expect_checkpoint_error([&] { fuzz::load_all(input->path()); });
  return 0;
}
