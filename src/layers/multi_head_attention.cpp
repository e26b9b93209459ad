// MultiHeadAttention: construction from a state dict, and back; forward() is in
// multi_head_forward.cpp.
#include "core/check.hpp"
#include "gemm/check.hpp"
#include "kernels/args/sizes.hpp"
#include "layers/attention_layer.hpp"
#include "layers/rows.hpp"
#include "layers/state_dict_reader.hpp"
#include "layers/state_dict_writer.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <utility>

namespace headlane {

using namespace internal;

namespace {

/// The columns of q, k and v in matrices [in, out] that the caller has packed, or `own` ones.
struct Projections {
  PackedMatrix::Columns q, k, v;
  std::deque<PackedMatrix> own = {};

  static PackedMatrix::Columns all_of(const PackedMatrix& matrix) { return {&matrix, 0, matrix.columns()}; }
  PackedMatrix::Columns pack(const View<const float, 2>& weight, DType type) {
    return all_of(own.emplace_back(weight.transposed(), PackOptions{.type = type}));
  }
  PackedMatrix::Columns read(const StateDictReader& tensors, const char* name, Index rows, Index columns, DType type) {
    if (const PackedMatrix* const given = tensors.packed(name, rows, columns)) return all_of(*given);
    return pack(tensors.matrix(name, rows, columns), type);
  }
};

/// The columns where k and v begin among `columns` of q, k and v.
std::pair<Index, Index> split(const StateDictReader& tensors, Index columns, Index heads, Index kv_heads) {
  const bool few = heads <= columns;  // so that the sum does not overflow
  const Index parts = few ? heads + 2 * kv_heads : 1;
  require(few && columns % parts == 0, tensors.layer(), ": ", tensors.name("in_proj_weight"), " has ", columns,
          " rows, not a multiple of ", heads, " + 2 · ", kv_heads, " heads");
  const Index k = columns / parts * heads;
  return {k, k + columns / parts * kv_heads};
}

/// From in_proj_weight or the three matrices. Checks their shapes; head_dim follows from them.
Projections read_projections(const StateDictReader& tensors, Index heads, Index kv_heads, DType type) {
  constexpr const char* all_name = "in_proj_weight";
  Projections result;
  if (const PackedMatrix* const all = tensors.packed(all_name, any_size, any_size)) {
    const auto [k, v] = split(tensors, all->columns(), heads, kv_heads);
    require(k % kernels::panel_columns == 0 && v % kernels::panel_columns == 0, tensors.layer(), ": ",
            tensors.name(all_name), " is a PackedMatrix, in which k and v begin at columns ", k, " and ", v,
            "; both must be multiples of 32");
    result.q = {all, 0, k}, result.k = {all, k, v}, result.v = {all, v, all->columns()};
    return result;
  }
  if (tensors.has(all_name)) {
    const View<const float, 2> all = tensors.matrix(all_name, any_size, any_size);
    const auto [k, v] = split(tensors, all.shape[0], heads, kv_heads);
    result.q = result.pack(all.slice(0, 0, k), type);
    result.k = result.pack(all.slice(0, k, v), type);
    result.v = result.pack(all.slice(0, v, all.shape[0]), type);
    return result;
  }
  result.q = result.read(tensors, "q_proj_weight", any_size, any_size, type);
  require(result.q.end % heads == 0, tensors.layer(), ": ", tensors.name("q_proj_weight"), " has ", result.q.end,
          " rows, not a multiple of ", heads, " heads");
  const Index rows = kv_heads * (result.q.end / heads);
  result.k = result.read(tensors, "k_proj_weight", rows, any_size, type);
  result.v = result.read(tensors, "v_proj_weight", rows, result.k.matrix->rows(), type);
  return result;
}

/// Columns side by side, of matrices of one type.
PackedMatrix joined(const StateDictReader& tensors, std::initializer_list<PackedMatrix::Columns> parts) {
  const DType first = parts.begin()->matrix->type();
  for (const auto& part : parts)
    require(part.matrix->type() == first, tensors.layer(), ": q, k and v are one matrix, but ", name_of(first), " and ",
            name_of(part.matrix->type()));
  return PackedMatrix::joined({parts.begin(), parts.size()});
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

  const Projections given = read_projections(tensors, heads_, kv_heads_, options.weights);
  const auto& [q, k, v, own] = given;
  const Index q_width = q.end - q.begin, kv_width = k.end - k.begin;
  head_dim_ = q_width / heads_;
  kv_dim_ = k.matrix->rows();
  require(head_dim_ >= 1 && head_dim_ <= kernels::block_size, tensors.layer(), ": head_dim is ", head_dim_,
          ", it must be 1 to ", kernels::block_size);
  const bool apart = kv_dim_ != q.matrix->rows();
  in_proj_ = apart ? joined(tensors, {q}) : joined(tensors, {q, k, v});
  if (apart) memory_proj_ = joined(tensors, {k, v});
  for (const PackedMatrix* weight : {&in_proj_, &memory_proj_})
    if (weight == &in_proj_ || apart)
      check_activations(Caller(tensors.layer()).operand("in_proj_weight", shape_of(*weight)), weight,
                        options.activations);
  in_bias_ = by_columns(tensors.optional_vector("in_proj_bias", q_width + 2 * kv_width),
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
