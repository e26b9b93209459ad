// Checkpoint::pack: weights as they are, and in the layouts of compressed-tensors, whose rules are
// written out here.
#include "files.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>

#include <bit>
#include <functional>
#include <utility>

namespace headlane::test {
namespace {

using models::Checkpoint;
using Shape = std::vector<Index>;

/// Integers [out, in] of `bits` bits, from the least one on.
std::vector<std::int8_t> random_numbers(Index count, int bits, Random& random) {
  std::vector<std::int8_t> numbers;
  const Index least = bits == 4 ? -8 : -127, greatest = bits == 4 ? 7 : 127;
  for (Index i = 0; i < count; ++i) numbers.push_back(static_cast<std::int8_t>(random.integer(least, greatest)));
  return numbers;
}

/// pack_to_int32() of compressed-tensors: each number plus 2^(bits - 1), from the lowest bits of a
/// word on, rows padded with zeros.
std::vector<std::int32_t> packed_words(const std::vector<std::int8_t>& numbers, Index out, Index in, int bits) {
  const Index words = (in * bits + 31) / 32, per_word = 32 / bits;
  std::vector<std::uint32_t> packed(static_cast<std::size_t>(out * words));
  for (Index i = 0; i < out; ++i)
    for (Index j = 0; j < in; ++j) {
      const auto x = static_cast<std::uint32_t>(int{numbers[static_cast<std::size_t>(i * in + j)]} + (1 << (bits - 1)));
      packed[static_cast<std::size_t>(i * words + j / per_word)] |= x << static_cast<unsigned>(j % per_word * bits);
    }
  return {packed.begin(), packed.end()};
}

/// Scales as a type of a file holds them, and their bytes.
struct Scales {
  std::vector<float> values;
  std::string bytes;
};

Scales random_scales(Index count, const std::string& dtype, Random& random) {
  Scales scales;
  for (Index i = 0; i < count; ++i) {
    const float x = (random.uniform() + 1.5f) / 100;
    const float16 half(x);
    const bfloat16 bfloat(x);
    scales.values.push_back(dtype == "F32"   ? x
                            : dtype == "F16" ? static_cast<float>(half)
                                             : static_cast<float>(bfloat));
    scales.bytes += dtype == "F32"   ? bytes_of<float>({x})
                    : dtype == "F16" ? bytes_of<float16>({half})
                                     : bytes_of<bfloat16>({bfloat});
  }
  return scales;
}

/// Element [i, j] of a matrix [out, in] against what a packed one unpacks to.
Index different(const PackedMatrix& packed, const std::function<float(Index, Index)>& element) {
  const Tensor<2> b({packed.rows(), packed.columns()});
  packed.unpack(b.view);
  Index count = 0;
  for_each_position(b.view.shape,
                    [&](const auto& p) { count += bits_of(b.view(p[0], p[1])) != bits_of(element(p[1], p[0])); });
  return count;
}

void write(const Folder& folder, const FileBuilder& builder) { folder.write("model.safetensors", builder.file()); }

TEST_CASE("Weights that are not quantised") {
  const Folder folder;
  Random random(1);
  const Tensor<2> w = random_tensor<2>({40, 70}, random);
  std::vector<float> floats;
  std::vector<float16> halves;
  std::vector<bfloat16> bfloats;
  for_each(w.view, [&](float x) { floats.push_back(x), halves.emplace_back(x), bfloats.emplace_back(x); });
  const Shape shape{40, 70};
  write(folder, FileBuilder()
                    .add("a.weight", "F32", shape, bytes_of(floats))
                    .add("b.weight", "F16", shape, bytes_of(halves))
                    .add("c.d.weight", "BF16", shape, bytes_of(bfloats)));
  const Checkpoint checkpoint(folder.path());
  const auto at = [&](Index i, Index j) { return static_cast<std::size_t>(70 * i + j); };
  const PackedMatrix a = checkpoint.pack("a."), b = checkpoint.pack("b."), c = checkpoint.pack("c.d.");
  CHECK(a.type() == DType::float32);
  CHECK(b.type() == DType::float16);
  CHECK(c.type() == DType::bfloat16);
  CHECK(different(a, [&](Index i, Index j) { return floats[at(i, j)]; }) == 0);
  CHECK(different(b, [&](Index i, Index j) { return static_cast<float>(halves[at(i, j)]); }) == 0);
  CHECK(different(c, [&](Index i, Index j) { return static_cast<float>(bfloats[at(i, j)]); }) == 0);
}

TEST_CASE("W8A8: integers of 8 bits, a scale for each row or one for all") {
  const Folder folder;
  Random random(2);
  const Index out = 50, in = 33;
  for (const std::string dtype : {"F32", "F16", "BF16"})
    for (const Shape& shape : {Shape{out, 1}, Shape{out}, Shape{1}, Shape{1, 1}}) {
      const bool one = shape[0] == 1;
      const std::vector<std::int8_t> q = random_numbers(out * in, 8, random);
      const Scales scales = random_scales(one ? 1 : out, dtype, random);
      write(folder, FileBuilder()
                        .add("x.weight", "I8", Shape{out, in}, bytes_of(q))
                        .add("x.weight_scale", dtype, shape, scales.bytes)
                        .add("x.weight_zero_point", "I8", Shape{out, 1}, std::string(50, '\0')));
      for (const int threads : {1, 2}) {
        const PackedMatrix packed = Checkpoint(folder.path()).pack("x.", {.num_threads = threads});
        CHECK(packed.type() == DType::int8);
        CHECK(different(packed, [&](Index i, Index j) {
                return static_cast<float>(q[static_cast<std::size_t>(i * in + j)]) *
                       scales.values[one ? 0 : static_cast<std::size_t>(i)];
              }) == 0);
      }
    }
}

/// A weight in groups: packed, or of I8.
FileBuilder grouped(const std::vector<std::int8_t>& q, Index out, Index in, int bits, bool packed) {
  FileBuilder builder;
  if (!packed) return builder.add("x.weight", "I8", Shape{out, in}, bytes_of(q));
  const std::vector<std::int32_t> words = packed_words(q, out, in, bits);
  builder.add("x.weight_packed", "I32", Shape{out, std::ssize(words) / out}, bytes_of(words));
  return builder.add("x.weight_shape", "I64", Shape{2}, bytes_of<Index>({out, in}));
}

struct Groups {
  Index in, groups;
};

TEST_CASE("W4A16 and W8A16: packed integers, or of I8, and scales for groups") {
  const Folder folder;
  Random random(3);
  const Index out = 35;
  for (const std::string dtype : {"F32", "F16", "BF16"})
    for (const Groups& grouping : {Groups{64, 2}, {256, 2}, {384, 12}, {192, 3}, {32, 1}, {45, 1}, {1056, 33}})
      for (const auto& [bits, packed] : {std::pair{4, true}, {8, true}, {8, false}}) {
        const Index in = grouping.in, groups = grouping.groups;
        if (bits == 8 && groups == 1) continue;
        const std::vector<std::int8_t> q = random_numbers(out * in, bits, random);
        const Scales scales = random_scales(out * groups, dtype, random);
        write(folder, grouped(q, out, in, bits, packed).add("x.weight_scale", dtype, Shape{out, groups}, scales.bytes));
        const PackedMatrix matrix = Checkpoint(folder.path()).pack("x.");
        CHECK(matrix.type() == (bits == 4 ? DType::int4_group32 : DType::int8_group32));
        CHECK(matrix.rows() == in);
        CHECK(matrix.columns() == out);
        CHECK(different(matrix, [&](Index i, Index j) {
                const float scale = scales.values[static_cast<std::size_t>(i * groups + j / (in / groups))];
                return static_cast<float>(q[static_cast<std::size_t>(i * in + j)]) *
                       static_cast<float>(float16(scale));  // exact but for F32
              }) == 0);
      }
}

TEST_CASE("Packed integers of 8 bits with a scale for each row, and the order of groups") {
  const Folder folder;
  Random random(4);
  const Index out = 3, in = 64;
  const std::vector<std::int8_t> q = random_numbers(out * in, 8, random), r = random_numbers(out * in, 4, random);
  const Scales scales = random_scales(out, "F16", random), two = random_scales(2 * out, "F16", random);
  std::vector<std::int32_t> order;
  for (Index j = 0; j < in; ++j) order.push_back(static_cast<std::int32_t>(j / 32));
  FileBuilder builder = grouped(q, out, in, 8, true);
  builder.add("x.weight_scale", "F16", Shape{out, 1}, scales.bytes)
      .add("y.weight_packed", "I32", Shape{out, 8}, bytes_of(packed_words(r, out, in, 4)))
      .add("y.weight_shape", "I32", Shape{2}, bytes_of<std::int32_t>({3, 64}))
      .add("y.weight_scale", "F16", Shape{out, 2}, two.bytes)
      .add("y.weight_g_idx", "I32", Shape{in}, bytes_of(order));
  write(folder, builder);
  const Checkpoint checkpoint(folder.path());
  const PackedMatrix x = checkpoint.pack("x.");
  CHECK(x.type() == DType::int8);
  CHECK(different(x, [&](Index i, Index j) {
          return static_cast<float>(q[static_cast<std::size_t>(i * in + j)]) *
                 scales.values[static_cast<std::size_t>(i)];
        }) == 0);
  CHECK(checkpoint.pack("y.").type() == DType::int4_group32);
}

TEST_CASE("As another type; numbers of -128") {
  const Folder folder;
  Random random(5);
  std::vector<std::int8_t> q = random_numbers(20 * 40, 8, random);
  q[7] = -128;
  std::vector<std::int8_t> clamped = q;
  clamped[7] = -127;
  const Scales scales = random_scales(20, "F32", random);
  FileBuilder builder;
  builder.add("x.weight", "I8", Shape{20, 40}, bytes_of(q)).add("x.weight_scale", "F32", Shape{20, 1}, scales.bytes);
  builder.add("y.weight", "I8", Shape{20, 40}, bytes_of(clamped))
      .add("y.weight_scale", "F32", Shape{20, 1}, scales.bytes);
  write(folder, builder);
  const Checkpoint checkpoint(folder.path());
  const std::string message = message_of([&] { (void)checkpoint.pack("x."); });
  check_says(message, {(folder.path() / "model.safetensors").string(),
                       "tensor 'x.weight': ", "numbers[7, 0] is -128; int8 has -127 … 127, clamp is not set"});
  const Tensor<2> b({40, 20}), c({40, 20});
  checkpoint.pack("y.").unpack(b.view);
  checkpoint.pack("x.", {.clamp = true}).unpack(c.view);
  CHECK(different_bits(b.view, c.view) == 0);
  for (const DType type : {DType::float32, DType::bfloat16, DType::int8_group32, DType::int4_group32}) {
    const PackedMatrix other = checkpoint.pack("y.", {.type = type});
    CHECK(other.type() == type);
    PackedMatrix(b.view, {.type = type}).unpack(c.view);
    CHECK(different(other, [&](Index i, Index j) { return c.view(j, i); }) == 0);
  }
}

std::string zeros(Index n) {
  std::string text(static_cast<std::size_t>(n), '\0');
  return text;
}

/// Damages the header, and the shape of a packed weight, its last data.
TEST_CASE("Layers in damaged files are packed, or are an error") {
  const Folder folder;
  FileBuilder builder = grouped(std::vector<std::int8_t>(3 * 64, 5), 3, 64, 4, true);
  builder.add("x.weight_scale", "BF16", Shape{3, 2}, zeros(12))
      .add("y.weight", "I8", Shape{3, 5}, zeros(15))
      .add("y.weight_scale", "F32", Shape{3, 1}, zeros(12))
      .add("y.weight_zero_point", "I8", Shape{3, 1}, zeros(3));
  const std::string valid = builder.file();
  const std::size_t header = valid.size() - 96 - 16 - 12 - 15 - 12 - 3;
  Random random(6);
  Index packed = 0, refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string file = valid;
    for (Index n = random.integer(1, 3); n > 0; --n) {
      const bool in_shape = random.integer(0, 3) == 0;
      const auto at = static_cast<std::size_t>(random.integer(0, static_cast<Index>(in_shape ? 15 : header - 9)));
      char& c = file[in_shape ? header + 96 + at : 8 + at];
      const bool digit = c >= '0' && c <= '9';
      c = digit ? static_cast<char>('0' + random.integer(0, 9))
                : static_cast<char>(static_cast<unsigned char>(c) ^ (1u << random.integer(0, 7)));
    }
    folder.write("model.safetensors", file);
    for (const char* layer : {"x.", "y."}) {
      const std::string message = message_of([&] { (void)Checkpoint(folder.path()).pack(layer, {.clamp = true}); });
      ++(message == "no error" ? packed : refused);
    }
  }
  MESSAGE(packed << " layers packed, " << refused << " refused");
  CHECK(packed > 100);
  CHECK(refused > 1000);
}

}  // namespace
}  // namespace headlane::test
