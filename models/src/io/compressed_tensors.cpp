// Checkpoint::pack: weights as they are, and as compressed-tensors quantises them.
#include "io/checkpoint_contents.hpp"
#include "io/pack_weight.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headlane::models {

using namespace internal;

namespace {

constexpr Index group_columns = 32;

/// Integers [out, in] of `bits` bits.
struct Integers {
  std::vector<std::int8_t> numbers;
  Index out = 0, in = 0;
  int bits = 8;
};

}  // namespace

/// The tensors of a layer.
struct HEADLANE_HIDDEN Checkpoint::LayerReader {
  const Checkpoint& checkpoint;
  const Contents& all;
  const std::string prefix;

  [[nodiscard]] std::string name(const char* tensor) const { return prefix + tensor; }
  [[nodiscard]] bool has(const char* tensor) const { return all.entries.contains(name(tensor)); }

  template <class... Parts>
  [[noreturn]] void fail_at(const char* tensor, const Parts&... parts) const {
    fail(all.at(name(tensor)).file->path(), subject_of(name(tensor)), parts...);
  }

  /// A tensor with elements of this type.
  template <class T>
  [[nodiscard]] std::vector<T> read(const char* tensor) const {
    const auto& [file, stored] = all.at(name(tensor));
    std::vector<T> elements(stored.size / sizeof(T));
    file->read(stored.offset, std::as_writable_bytes(std::span(elements)), subject_of(name(tensor)));
    return elements;
  }

  [[nodiscard]] const StoredTensor& at(const char* tensor) const { return all.at(name(tensor)).stored; }
  void check_matrix(const char* tensor) const;
  void check_symmetric() const;
  void check_order(Index in, Index group) const;
  [[nodiscard]] std::vector<Index> read_shape() const;
  [[nodiscard]] Integers read_integers() const;
  [[nodiscard]] Integers read_packed() const;
  [[nodiscard]] PackedMatrix pack_integers(const Integers& all_integers, const NumbersOptions& options) const;
  [[nodiscard]] PackedMatrix pack_groups(const Integers& integers, const float* scales, Index groups,
                                         const NumbersOptions& options) const;
  [[nodiscard]] PackedMatrix pack(const NumbersOptions& options) const;
};

void Checkpoint::LayerReader::check_matrix(const char* tensor) const {
  const std::vector<Index>& shape = at(tensor).shape;
  if (shape.size() != 2) fail_at(tensor, "has the shape ", listed(shape), ", a matrix is expected");
}

/// Zero points are absent, or 0.
void Checkpoint::LayerReader::check_symmetric() const {
  constexpr const char* tensor = "weight_zero_point";
  if (!has(tensor)) return;
  const std::vector<std::byte> zeros = read<std::byte>(tensor);
  if (std::any_of(zeros.begin(), zeros.end(), [](std::byte x) { return x != std::byte{0}; }))
    fail_at(tensor, "is not 0: only symmetric weights can be packed");
}

/// Column j belongs to group j / group.
void Checkpoint::LayerReader::check_order(Index in, Index group) const {
  constexpr const char* tensor = "weight_g_idx";
  if (!has(tensor)) return;
  if (at(tensor).dtype != "I32") fail_at(tensor, "is of ", at(tensor).dtype, ", I32 is expected");
  const std::vector<std::int32_t> groups = read<std::int32_t>(tensor);
  bool in_order = std::ssize(groups) == in;
  for (Index j = 0; j < in && in_order; ++j) in_order = groups[static_cast<std::size_t>(j)] == j / group;
  if (!in_order) fail_at(tensor, "does not have the ", in, " columns in groups of ", group, ", one after the other");
}

std::vector<Index> Checkpoint::LayerReader::read_shape() const {
  constexpr const char* tensor = "weight_shape";
  const StoredTensor& stored = at(tensor);
  if (stored.shape != std::vector<Index>{2})
    fail_at(tensor, "has the shape ", listed(stored.shape), ", [2] is expected");
  if (stored.dtype == "I64") return read<Index>(tensor);
  if (stored.dtype != "I32") fail_at(tensor, "is of ", stored.dtype, ", I64 or I32 is expected");
  const std::vector<std::int32_t> sizes = read<std::int32_t>(tensor);
  return {sizes.begin(), sizes.end()};
}

Integers Checkpoint::LayerReader::read_integers() const {
  check_matrix("weight");
  const std::vector<Index>& shape = at("weight").shape;
  return {read<std::int8_t>("weight"), shape[0], shape[1], 8};
}

/// Words of 32 bits hold integers from the lowest bits on, each plus 2^(bits - 1).
Integers Checkpoint::LayerReader::read_packed() const {
  constexpr const char* tensor = "weight_packed";
  if (at(tensor).dtype != "I32") fail_at(tensor, "is of ", at(tensor).dtype, ", I32 is expected");
  check_matrix(tensor);
  const std::vector<Index> shape = read_shape();
  const Index out = at(tensor).shape[0], words = at(tensor).shape[1], in = shape[1];
  if (shape[0] != out || in < group_columns)
    fail_at("weight_shape", "is ", listed(shape), ", at least [", out, ", 32] is expected");
  const bool four = words == (in - 1) / 8 + 1, eight = words == (in - 1) / 4 + 1;
  if (!four && !eight) {
    fail_at(tensor, "has ", words, " columns, rows of ", in, " integers have ", (in - 1) / 8 + 1, " (4 bits) or ",
            (in - 1) / 4 + 1, " (8 bits)");
  }
  Integers result{{}, out, in, four ? 4 : 8};
  const std::vector<std::uint32_t> packed = read<std::uint32_t>(tensor);
  result.numbers.reserve(static_cast<std::size_t>(out * in));
  const Index per_word = 32 / result.bits;
  for (Index i = 0; i < out; ++i)
    for (Index j = 0; j < in; ++j) {
      const std::uint32_t word = packed[static_cast<std::size_t>(i * words + j / per_word)];
      const std::uint32_t shifted = word >> static_cast<unsigned>(j % per_word * result.bits);
      result.numbers.push_back(static_cast<std::int8_t>(four ? static_cast<int>(shifted & 15u) - 8
                                                             : static_cast<int>(shifted & 255u) - 128));
    }
  return result;
}

PackedMatrix Checkpoint::LayerReader::pack_groups(const Integers& integers, const float* scales, Index groups,
                                                  const NumbersOptions& options) const {
  const auto& [numbers, out, in, bits] = integers;
  const bool divides = groups <= in && in % groups == 0 && (groups == 1 || in / groups % group_columns == 0);
  if (!divides) {
    fail_at("weight_scale", "has ", groups, " groups for ", in, " columns; groups of a multiple of ", group_columns,
            " columns can be packed");
  }
  const Index group = in / groups, stored_groups = (in - 1) / group_columns + 1;
  check_order(in, group);
  std::vector<float16> stored;
  stored.reserve(static_cast<std::size_t>(out * stored_groups));
  for (Index i = 0; i < out; ++i)
    for (Index g = 0; g < stored_groups; ++g) stored.emplace_back(scales[i * groups + g * group_columns / group]);
  return PackedMatrix::from_numbers(View<const std::int8_t, 2>(numbers.data(), {out, in}).transposed(),
                                    View<const float16, 2>(stored.data(), {out, stored_groups}).transposed(),
                                    bits == 4 ? DType::int4_group32 : DType::int8_group32, options);
}

PackedMatrix Checkpoint::LayerReader::pack_integers(const Integers& integers, const NumbersOptions& options) const {
  check_symmetric();
  const Tensor loaded = checkpoint.load(name("weight_scale"));
  const std::vector<Index>& shape = at("weight_scale").shape;
  const Index count = static_cast<Index>(at("weight_scale").size) / (at("weight_scale").dtype == "F32" ? 4 : 2);
  const auto& [numbers, out, in, bits] = integers;
  const float* const scales = loaded.view().data;
  const bool is_one = count == 1 && shape.size() <= 2;
  const bool of_rows = shape == std::vector<Index>{out} || shape == std::vector<Index>{out, 1};
  const bool of_groups = shape.size() == 2 && shape[0] == out && shape[1] > 1;
  if (!is_one && !of_rows && !of_groups)
    fail_at("weight_scale", "has the shape ", listed(shape), ", [", out, ", groups] is expected");
  if (of_groups) return pack_groups(integers, scales, shape[1], options);
  const View<const float, 1> each(scales, {out}, {is_one ? 0 : 1});
  if (bits == 4) {
    std::vector<float> all_scales;
    for (Index i = 0; i < out; ++i) all_scales.push_back(each(i));
    return pack_groups(integers, all_scales.data(), 1, options);
  }
  if (in > 0) check_order(in, in);
  return PackedMatrix::from_numbers(View<const std::int8_t, 2>(numbers.data(), {out, in}).transposed(), each, options);
}

PackedMatrix Checkpoint::LayerReader::pack(const NumbersOptions& options) const {
  if (has("weight_packed")) return pack_integers(read_packed(), options);
  const StoredTensor& stored = at("weight");
  if (stored.dtype == "I8") return pack_integers(read_integers(), options);
  check_matrix("weight");
  const std::array<Index, 2> shape{stored.shape[0], stored.shape[1]};
  if (stored.dtype == "F16") {
    const std::vector<float16> w = read<float16>("weight");
    return PackedMatrix::from_numbers(View<const float16, 2>(w.data(), shape).transposed(), options);
  }
  if (stored.dtype == "BF16") {
    const std::vector<bfloat16> w = read<bfloat16>("weight");
    return PackedMatrix::from_numbers(View<const bfloat16, 2>(w.data(), shape).transposed(), options);
  }
  if (stored.dtype != "F32") fail_at("weight", "is of ", stored.dtype, ", only F32, F16, BF16 and I8 can be packed");
  const Tensor w = checkpoint.load(name("weight"));
  return PackedMatrix(View<const float, 2>(w.view().data, shape).transposed(), {.num_threads = options.num_threads});
}

PackedMatrix Checkpoint::pack(std::string_view prefix, const PackWeightOptions& options) const {
  const LayerReader layer{*this, contents("Checkpoint::pack"), std::string(prefix)};
  check_pack_options("Checkpoint::pack", options);
  const std::string weight = layer.name(layer.has("weight_packed") ? "weight_packed" : "weight");
  return packed_from(layer.all.at(weight).file->path(), subject_of(weight), [&] {
    return as_type_of(layer.pack({.clamp = options.clamp, .num_threads = options.num_threads}), options);
  });
}

bool Checkpoint::is_quantized(std::string_view prefix) const {
  return contains(std::string(prefix).append("weight_scale"));
}

}  // namespace headlane::models
