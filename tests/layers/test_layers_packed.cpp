// Layers of weights that are packed already: the bits of layers whose weights are packed as they
// are constructed, and errors.
#include "support/illegal.hpp"
#include "support/layer_model.hpp"
#include "support/stored_layers.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <string>

namespace headlane::test {
namespace {

constexpr DType types[] = {DType::float32, DType::bfloat16,     DType::float16,
                           DType::int8,    DType::int8_group32, DType::int4_group32};

/// A state dict whose matrices are packed, and what it refers to.
struct Packed {
  StateDict dict;
  std::deque<PackedMatrix> matrices;

  /// Those of `state`; in_proj_weight becomes three matrices if `apart`.
  Packed(const StateDict& state, DType type, Index heads, Index kv_heads, bool apart) {
    for (const auto& [name, tensor] : state) {
      if (tensor.rank != 2) {
        dict[name] = tensor;
        continue;
      }
      View<const float, 2> weight(tensor.data, {tensor.shape[0], tensor.shape[1]},
                                  {tensor.strides[0], tensor.strides[1]});
      const std::size_t at = name.find("in_proj_weight");
      if (!apart || at == std::string::npos) {
        add(name, weight, type);
        continue;
      }
      const Index head_dim = weight.shape[0] / (heads + 2 * kv_heads), k = heads * head_dim,
                  v = k + kv_heads * head_dim;
      add(name.substr(0, at) + "q_proj_weight", weight.slice(0, 0, k), type);
      add(name.substr(0, at) + "k_proj_weight", weight.slice(0, k, v), type);
      add(name.substr(0, at) + "v_proj_weight", weight.slice(0, v, weight.shape[0]), type);
    }
  }
  void add(const std::string& name, const View<const float, 2>& weight, DType type) {
    dict.packed[name] = &matrices.emplace_back(weight.transposed(), PackOptions{.type = type});
  }
};

TEST_CASE("layers: weights that are packed already give the same bits") {
  for (const LayerSizes& s : layer_sizes())
    for (const DType type : types) {
      const RandomState state = random_layer(s, 1, true);
      TransformerLayerOptions options = s.options(), ignored = options;
      options.weights = type;
      ignored.weights = type == DType::int8 ? DType::float32 : DType::int8;
      const Packed packed(state.dict, type, s.heads, s.kv_heads, true);
      Random random(2);
      const Tensor<3> x = random_tensor<3>({2, 15, s.d_model}, random),
                      memory = random_tensor<3>({2, 9, s.memory_width}, random);
      const auto same = [&](const char* what, Index width, const auto& make, const auto& forward) {
        const Tensor<3> expected =
            output(x, width, [&](auto in, auto out) { forward(make(state.dict, options), in, out); });
        const Tensor<3> actual =
            output(x, width, [&](auto in, auto out) { forward(make(packed.dict, ignored), in, out); });
        CHECK_MESSAGE(different_bits(actual.view, expected.view) == 0, what, ", ", text_of(s), ", ", name_of(type));
      };
      for_each_stored_layer(s, memory.view, same);
    }
}

TEST_CASE("MultiHeadAttention: in_proj_weight packed as one matrix, if its parts begin at panels") {
  const LayerSizes s{.heads = 4, .kv_heads = 2, .head_dim = 16};
  for (const DType type : types) {
    const RandomState state = random_layer(s, 1, true);
    TransformerLayerOptions options = s.options();
    options.weights = type;
    const Packed packed(state.dict, type, 0, 0, false);
    Random random(2);
    const Tensor<3> x = random_tensor<3>({2, 15, s.d_model}, random);
    const auto run = [&](const StateDict& dict) {
      const EncoderLayer layer(dict, "", options);
      return output(x, s.d_model, [&](auto in, auto out) { layer.forward(in, out); });
    };
    CHECK_MESSAGE(different_bits(run(packed.dict).view, run(state.dict).view) == 0, name_of(type));
  }
}

TEST_CASE("PackedMatrix::joined: columns of matrices of every type, and the columns between") {
  Random random(3);
  const Tensor<2> a = random_tensor<2>({600, 70}, random), b = random_tensor<2>({600, 33}, random);
  for (const DType type : types) {
    const PackedMatrix left(a.view, {.type = type}), right(b.view, {.type = type});
    const PackedMatrix::Columns parts[] = {{&left, 32, 70}, {&right, 0, 33}, {&left, 64, 64}, {&left, 0, 5}};
    const PackedMatrix joined = PackedMatrix::joined(parts);
    CHECK(joined.type() == type);
    CHECK(joined.rows() == 600);
    CHECK(joined.columns() == 64 + 64 + 5);
    const Tensor<2> all({600, 133}), of_left({600, 70}), of_right({600, 33});
    joined.unpack(all.view);
    left.unpack(of_left.view);
    right.unpack(of_right.view);
    CHECK(different_bits(all.view.slice(1, 0, 38), of_left.view.slice(1, 32, 70)) == 0);
    CHECK(different_bits(all.view.slice(1, 64, 97), of_right.view) == 0);
    CHECK(different_bits(all.view.slice(1, 128, 133), of_left.view.slice(1, 0, 5)) == 0);
  }
  const PackedMatrix::Columns nothing[] = {{nullptr, 0, 0}};
  const PackedMatrix empty, one(a.view), other(b.view, {.type = DType::int8}), few(b.view.slice(0, 0, 3));
  using Parts = std::vector<PackedMatrix::Columns>;
  const auto refused = [](const Parts& parts, const char* message) {
    CHECK_THROWS_WITH_AS((void)PackedMatrix::joined(parts), message, std::invalid_argument);
  };
  CHECK(PackedMatrix::joined(Parts{{&empty, 0, 0}}).columns() == 0);
  refused({}, "PackedMatrix::joined: there are no parts");
  refused({nothing[0]}, "PackedMatrix::joined: parts[0] has no matrix");
  refused({{&one, 0, 70}, {&few, 0, 33}}, "PackedMatrix::joined: parts[1] has 3 rows, parts[0] has 600");
  refused({{&one, 0, 70}, {&other, 0, 33}}, "PackedMatrix::joined: parts[1] is of int8, parts[0] of float32");
  for (const auto& [begin, end] : std::vector<std::pair<Index, Index>>{{-32, 5}, {33, 40}, {32, 31}, {0, 71}})
    CHECK_THROWS_AS((void)PackedMatrix::joined(Parts{{&one, begin, end}}), std::invalid_argument);
}

TEST_CASE("Embedding: a table that is packed already, tied or not") {
  Random random(5);
  const Tensor<2> table = random_tensor<2>({40, 24}, random);
  const std::vector<Index> ids{39, 0, 7};
  const View<const Index, 2> view(ids.data(), {1, 3});
  for (const DType type : types)
    for (const bool tied : {true, false}) {
      const PackedMatrix matrix(table.view.transposed(), {.type = type});
      StateDict packed;
      packed.packed["weight"] = &matrix;
      const Tensor<3> y({1, 3, 24}), expected({1, 3, 24});
      Embedding(packed, {}, {.tied = tied}).forward(view, y.view);
      Embedding({{"weight", table.view}}, {}, {.tied = tied, .weights = type}).forward(view, expected.view);
      CHECK_MESSAGE(different_bits(y.view, expected.view) == 0, name_of(type), tied ? ", tied" : "");
    }
}

TEST_CASE("layers: packed weights that do not fit are refused by name") {
  Random random(4);
  const Tensor<2> square = random_tensor<2>({40, 40}, random);
  const PackedMatrix matrix(square.view), other(square.view, {.type = DType::int8}), wide(square.view.slice(0, 0, 30));
  const View<const float, 2> tensor = square.view;
  const auto refused = [](const auto& make, const char* message) {
    CHECK_THROWS_WITH_AS(make(), message, std::invalid_argument);
  };
  const auto with = [](std::initializer_list<std::pair<const std::string, const PackedMatrix*>> packed) {
    StateDict dict;
    dict.packed = packed;
    return dict;
  };
  refused([&] { Linear(with({{"weight", nullptr}})); }, "Linear: weight is null");
  StateDict both = with({{"weight", &matrix}});
  both["weight"] = tensor;
  refused([&] { Linear{both}; }, "Linear: weight is a tensor and a PackedMatrix");
  refused([&] { Linear(with({{"weight", &matrix}, {"bias", &matrix}})); },
          "Linear: bias is a PackedMatrix, it must be a tensor");
  refused([&] { Linear(with({{"weight", &matrix}}), {}, DType::int8, DType::int8); },
          "Linear: weight is a PackedMatrix of float32; with activations int8 it must be a PackedMatrix of int8, "
          "int8_group32 or int4_group32");
  refused([&] { FeedForward(with({{"linear1.weight", &matrix}, {"linear2.weight", &wide}}), {}, {}); },
          "FeedForward: linear2.weight is a PackedMatrix [30, 40], it must be [40, 40]");
  refused([&] { MultiHeadAttention(with({{"in_proj_weight", &matrix}}), {}, {.heads = 8, .kv_heads = 1}); },
          "MultiHeadAttention: in_proj_weight is a PackedMatrix, in which k and v begin at columns 32 and 36; both "
          "must be multiples of 32");
  refused(
      [&] {
        MultiHeadAttention(with({{"q_proj_weight", &matrix}, {"k_proj_weight", &other}, {"v_proj_weight", &matrix}}),
                           {}, {.heads = 4});
      },
      "MultiHeadAttention: q, k and v are one matrix, but float32 and int8");
}

}  // namespace
}  // namespace headlane::test
