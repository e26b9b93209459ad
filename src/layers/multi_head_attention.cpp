// MultiHeadAttention: construction from a state dict, and back; forward() is in
// multi_head_forward.cpp.
#include "core/check.hpp"
#include "core/round.hpp"
#include "gemm/check.hpp"
#include "kernels/args/sizes.hpp"
#include "layers/attention_layer.hpp"
#include "layers/rows.hpp"
#include "layers/state_dict_reader.hpp"
#include "layers/state_dict_writer.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

namespace headlane {

using namespace internal;

namespace {

/// Stacks weights [rows, width] so that each begins at a column of the product that is a multiple
/// of 32.
class Stack {
 public:
  explicit Stack(Index width) : width_(width) {}

  void add(const View<const float, 2>& weight) {
    const Index first = round_up(rows_, kernels::panel_columns);
    Index size = 0;
    if (__builtin_mul_overflow(first + weight.shape[0], width_, &size)) throw std::bad_alloc();
    elements_.resize(static_cast<std::size_t>(size));
    rows_ = first + weight.shape[0];
    if (width_ == 0) return;
    for (Index i = 0; i < weight.shape[0]; ++i)
      for (Index j = 0; j < width_; ++j) elements_[static_cast<std::size_t>((first + i) * width_ + j)] = weight(i, j);
  }
  [[nodiscard]] PackedMatrix packed(DType type) const {
    return PackedMatrix(View<const float, 2>(elements_.data(), {rows_, width_}).transposed(), {.type = type});
  }

 private:
  Index width_, rows_ = 0;
  std::vector<float> elements_;
};

struct Projections {
  View<const float, 2> q, k, v;
};

/// From in_proj_weight or the three matrices. Checks their shapes; head_dim follows from them.
Projections read_projections(const StateDictReader& tensors, Index heads, Index kv_heads) {
  if (tensors.has("in_proj_weight")) {
    const View<const float, 2> all = tensors.matrix("in_proj_weight", any_size, any_size);
    const bool few = heads <= all.shape[0];  // so that the sum does not overflow
    const Index parts = few ? heads + 2 * kv_heads : 1;
    require(few && all.shape[0] % parts == 0, tensors.layer(), ": ", tensors.name("in_proj_weight"), " has ",
            all.shape[0], " rows, not a multiple of ", heads, " + 2 · ", kv_heads, " heads");
    const Index head_dim = all.shape[0] / parts, k = heads * head_dim, v = k + kv_heads * head_dim;
    return {all.slice(0, 0, k), all.slice(0, k, v), all.slice(0, v, all.shape[0])};
  }
  Projections separate;
  separate.q = tensors.matrix("q_proj_weight", any_size, any_size);
  require(separate.q.shape[0] % heads == 0, tensors.layer(), ": ", tensors.name("q_proj_weight"), " has ",
          separate.q.shape[0], " rows, not a multiple of ", heads, " heads");
  const Index rows = kv_heads * (separate.q.shape[0] / heads);
  separate.k = tensors.matrix("k_proj_weight", rows, any_size);
  separate.v = tensors.matrix("v_proj_weight", rows, separate.k.shape[1]);
  return separate;
}

/// A bias of q, k and v as one of the columns of the product.
std::vector<float> by_columns(const std::vector<float>& bias, const ProjectionColumns& c) {
  if (bias.empty()) return {};
  std::vector<float> result(static_cast<std::size_t>(c.end));
  std::copy_n(bias.begin(), c.q_width, result.begin());
  std::copy_n(bias.begin() + c.q_width, c.kv_width, result.begin() + c.k);
  std::copy_n(bias.begin() + c.q_width + c.kv_width, c.kv_width, result.begin() + c.v);
  return result;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const StateDict& state, std::string_view prefix,
                                       const MultiHeadAttentionOptions& options)
    : heads_(options.heads),
      kv_heads_(options.kv_heads == 0 ? options.heads : options.kv_heads),
      scale_(options.scale) {
  const StateDictReader tensors("MultiHeadAttention", state, prefix);
  require(heads_ > 0, tensors.layer(), ": heads is ", heads_, ", the minimum is 1");
  require(kv_heads_ > 0 && heads_ % kv_heads_ == 0, tensors.layer(), ": kv_heads is ", kv_heads_,
          ", which does not divide heads, ", heads_);
  for (const char* name : {"bias_k", "bias_v"})
    require(!tensors.has(name), tensors.layer(), ": ", tensors.name(name), " is not supported");

  const auto [q, k, v] = read_projections(tensors, heads_, kv_heads_);
  head_dim_ = q.shape[0] / heads_;
  kv_dim_ = k.shape[1];
  require(head_dim_ >= 1 && head_dim_ <= kernels::block_size, tensors.layer(), ": head_dim is ", head_dim_,
          ", it must be 1 to ", kernels::block_size);
  const bool apart = kv_dim_ != q.shape[1];
  Stack of_x(q.shape[1]), of_memory(kv_dim_);
  Stack& keys = apart ? of_memory : of_x;
  of_x.add(q), keys.add(k), keys.add(v);
  in_proj_ = of_x.packed(options.weights);
  if (apart) memory_proj_ = of_memory.packed(options.weights);
  for (const PackedMatrix* weight : {&in_proj_, &memory_proj_})
    if (weight == &in_proj_ || apart)
      check_activations(Caller(tensors.layer()).operand("in_proj_weight", shape_of(*weight)), weight,
                        options.activations);
  in_bias_ = by_columns(tensors.optional_vector("in_proj_bias", q.shape[0] + k.shape[0] + v.shape[0]),
                        projection_columns(heads_, kv_heads_, head_dim_));
  out_proj_ = Linear(state, tensors.name("out_proj."), options.weights, options.activations);
  require(out_proj_.in_features() == heads_ * head_dim_, tensors.layer(), ": ", tensors.name("out_proj.weight"),
          " has ", out_proj_.in_features(), " columns, the heads have ", heads_ * head_dim_, " elements");
}

View<const float, 1> MultiHeadAttention::in_proj_bias() const { return view_of(in_bias_); }

OwnedStateDict MultiHeadAttention::state_dict(std::string_view prefix) const {
  StateDictWriter tensors(prefix);
  const ProjectionColumns c = projection_columns(*this);
  if (kv_dim() == x_width(*this)) {
    tensors.append("in_proj_weight", in_proj_, 0, c.q_width);
    tensors.append("in_proj_weight", in_proj_, c.k, c.kv_width);
    tensors.append("in_proj_weight", in_proj_, c.v, c.kv_width);
  } else {
    tensors.append("q_proj_weight", in_proj_, 0, c.q_width);
    tensors.append("k_proj_weight", memory_proj_, 0, c.kv_width);
    tensors.append("v_proj_weight", memory_proj_, c.v - c.k, c.kv_width);
  }
  if (!in_bias_.empty()) {
    std::vector<float> bias;
    for (const auto& [first, count] : {std::pair(Index{0}, c.q_width), {c.k, c.kv_width}, {c.v, c.kv_width}})
      bias.insert(bias.end(), in_bias_.begin() + first, in_bias_.begin() + first + count);
    tensors.add("in_proj_bias", bias);
  }
  tensors.add(out_proj_.state_dict(tensors.name("out_proj.")));
  return tensors.take();
}

}  // namespace headlane
