// Checkpoint::pack: layers and options that are wrong.
#include "files.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>

namespace headlane::test {
namespace {

using models::Checkpoint;
using Shape = std::vector<Index>;

struct Wrong {
  std::string name, dtype;
  Shape shape;
  std::string data;
  std::string words;
};

/// A layer with one tensor replaced or added.
void check_wrong(const std::vector<Wrong>& tensors, const std::vector<Wrong>& wrong) {
  const Folder folder;
  for (const Wrong& one : wrong) {
    FileBuilder builder;
    bool replaced = false;
    for (const Wrong& tensor : tensors) {
      const Wrong& from = tensor.name == one.name ? one : tensor;
      replaced = replaced || tensor.name == one.name;
      if (from.dtype != "none") builder.add("x." + from.name, from.dtype, from.shape, from.data);
    }
    if (!replaced) builder.add("x." + one.name, one.dtype, one.shape, one.data);
    folder.write("model.safetensors", builder.file());
    const Checkpoint checkpoint(folder.path());
    check_says(message_of([&] { (void)checkpoint.pack("x."); }), {folder.path().string(), one.words});
  }
}

std::string zeros(Index n) {
  std::string text(static_cast<std::size_t>(n), '\0');
  return text;
}

TEST_CASE("W8A8: layers that are wrong") {
  const std::string infinite = bytes_of<float>({1, infinity, 1});
  check_wrong(
      {{"weight", "I8", {3, 64}, zeros(192), ""}, {"weight_scale", "F32", {3, 1}, zeros(12), ""}},
      {{"weight", "none", {}, "", "there is no tensor 'x.weight'"},
       {"weight", "U8", {3, 64}, zeros(192), "tensor 'x.weight': is of U8, only F32, F16, BF16 and I8 can be packed"},
       {"weight", "I8", {192}, zeros(192), "tensor 'x.weight': has the shape [192], a matrix is expected"},
       {"weight", "F16", {1, 2, 2}, zeros(8), "tensor 'x.weight': has the shape [1, 2, 2], a matrix is expected"},
       {"weight_scale", "none", {}, "", "there is no tensor 'x.weight_scale'"},
       {"weight_scale", "F64", {3, 1}, zeros(24), "tensor 'x.weight_scale': is of F64, only F32, F16 and BF16"},
       {"weight_scale", "F32", {4, 1}, zeros(16), "'x.weight_scale': has the shape [4, 1], [3, groups] is expected"},
       {"weight_scale", "F32", {3, 0}, "", "'x.weight_scale': has the shape [3, 0], [3, groups] is expected"},
       {"weight_scale", "F32", {3, 4}, zeros(48), "has 4 groups for 64 columns; groups of a multiple of 32 columns"},
       {"weight_scale", "F32", {3, 65}, zeros(780), "has 65 groups for 64 columns"},
       {"weight_scale", "F32", {3, 1}, infinite, "tensor 'x.weight': PackedMatrix::from_numbers: scales[1] is inf"},
       {"weight_zero_point", "I8", {3, 1}, std::string(3, '\1'), "'x.weight_zero_point': is not 0: only symmetric"},
       {"weight_g_idx", "I32", Shape{64}, std::string(256, '\1'),
        "tensor 'x.weight_g_idx': does not have the 64 columns in groups of 64, one after the other"},
       {"weight_g_idx", "I64", Shape{64}, zeros(512), "'x.weight_g_idx': is of I64, I32 is expected"}});
}

TEST_CASE("W4A16: layers that are wrong") {
  const auto shape = [](Index out, Index in) { return bytes_of<Index>({out, in}); };
  const Shape two{2};
  check_wrong({{"weight_packed", "I32", {3, 8}, zeros(96), ""},
               {"weight_shape", "I64", two, shape(3, 64), ""},
               {"weight_scale", "BF16", {3, 2}, zeros(12), ""}},
              {{"weight_packed", "U32", {3, 8}, zeros(96), "'x.weight_packed': is of U32, I32 is expected"},
               {"weight_packed", "I32", {24}, zeros(96), "'x.weight_packed': has the shape [24], a matrix is expected"},
               {"weight_packed",
                "I32",
                {3, 9},
                zeros(108),
                "'x.weight_packed': has 9 columns, rows of 64 integers have 8 (4 bits) or 16 (8 bits)"},
               {"weight_shape", "none", {}, "", "there is no tensor 'x.weight_shape'"},
               {"weight_shape", "I64", {3}, zeros(24), "'x.weight_shape': has the shape [3], [2] is expected"},
               {"weight_shape", "F32", two, zeros(8), "'x.weight_shape': is of F32, I64 or I32 is expected"},
               {"weight_shape", "I64", two, shape(4, 64), "'x.weight_shape': is [4, 64], at least [3, 32] is expected"},
               {"weight_shape", "I64", two, shape(3, 31), "'x.weight_shape': is [3, 31], at least [3, 32]"},
               {"weight_shape", "I64", two, shape(3, -1), "'x.weight_shape': is [3, -1], at least [3, 32]"},
               {"weight_shape", "I64", two, shape(3, Index{1} << 62), "has 8 columns, rows of 4611686018427387904"},
               {"weight_scale", "BF16", {3, 4}, zeros(24), "has 4 groups for 64 columns; groups of a multiple of 32"},
               {"weight_zero_point", "I32", {1, 2}, std::string(8, '\1'), "'x.weight_zero_point': is not 0"},
               {"weight_g_idx", "I32", Shape{63}, zeros(252), "'x.weight_g_idx': does not have the 64"}});
}

TEST_CASE("Options that are wrong") {
  const Folder folder;
  folder.write("model.safetensors", FileBuilder().add("x.weight", "F32", Shape{1, 2}, zeros(8)).file());
  const Checkpoint checkpoint(folder.path());
  CHECK_THROWS_WITH_AS((void)checkpoint.pack("x.", {.type = static_cast<DType>(9)}),
                       "Checkpoint::pack: type is 9, which is none of float32 … int4_group32", std::invalid_argument);
  CHECK_THROWS_WITH_AS((void)checkpoint.pack("x.", {.num_threads = -1}),
                       "Checkpoint::pack: num_threads is -1, the minimum is 0", std::invalid_argument);
}

}  // namespace
}  // namespace headlane::test
