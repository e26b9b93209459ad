// Writes the smallest possible checkpoint, of one tensor, and reads it.
#include <headlane/models/checkpoint.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

int main() {
  const std::string header = R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
  const std::uint64_t length = header.size();
  const std::array<float, 3> data{1, 2, 3};
  std::ofstream("model.safetensors", std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof length)
      .write(header.data(), static_cast<std::streamsize>(header.size()))
      .write(reinterpret_cast<const char*>(data.data()), sizeof data);

  const headlane::models::Checkpoint checkpoint(".");
  const headlane::models::Tensor x = checkpoint.load("x", {3});
  bool right = x.view().data[0] == 1 && x.view().data[2] == 3;
  try {
    checkpoint.load("x", {4});
    right = false;
  } catch (const headlane::models::CheckpointError& error) {
    std::printf("models: %s\n", error.what());
  }
  std::filesystem::remove("model.safetensors");
  std::printf("models: %s\n", right ? "right" : "wrong");
  return right ? 0 : 1;
}
