// MultiHeadAttention: construction from a state dict, and back; forward() is in
// multi_head_forward.cpp.
#include "core/check.hpp"
#include "gemm/check.hpp"
#include "kernels/args/sizes.hpp"
#include "layers/attention_layer.hpp"
#include "layers/rows.hpp"
#include "layers/state_dict_reader.hpp"
#include "layers/state_dict_writer.hpp"
#include "layers/tensor_names.hpp"
#include "layers/together.hpp"

#include <headlane/limits.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <utility>

namespace headlane {

using namespace internal;

namespace {

/// The columns of q, k and v of this rank, in matrices [in, out] that the caller has packed, or
/// `made` ones.
class Projections {
 public:
  Projections(const StateDictReader& tensors, Index heads, const Shares& shares, DType type)
      : tensors_(tensors), heads_(heads), shares_(shares), type_(type) {}

  /// From in_proj_weight or the three matrices. Checks their shapes; head_dim follows from them.
  void read();

  PackedMatrix::Columns q, k, v;
  Index q_width = 0, kv_width = 0;  // of all heads

 private:
  /// Rows first … first + width-1 of a weight belong to all heads: where those of this rank begin
  /// and end.
  [[nodiscard]] std::pair<Index, Index> own(Index first, Index width) const;
  PackedMatrix::Columns pack(const View<const float, 2>& rows) {
    const PackedMatrix& packed = made_.emplace_back(rows.transposed(), PackOptions{.type = type_});
    return {&packed, 0, packed.columns()};
  }
  PackedMatrix::Columns columns(const PackedMatrix& given, Index first, Index width);
  PackedMatrix::Columns columns(const View<const float, 2>& given, Index first, Index width) {
    const auto [begin, end] = own(first, width);
    return pack(given.slice(0, begin, end));
  }
  /// Of the one matrix, or of those of q, k and v.
  void read_one(Index rows);
  void read_three();
  /// Columns of a matrix of its own, whose rows are `rows` on all ranks, or any number.
  PackedMatrix::Columns read(const char* name, Index rows, Index columns, Index& width);

  const StateDictReader& tensors_;
  Index heads_;
  const Shares& shares_;
  DType type_;
  std::deque<PackedMatrix> made_;
};

constexpr const char* one_name = "in_proj_weight";

/// The columns where k and v begin among `columns` of q, k and v.
std::pair<Index, Index> split(const StateDictReader& tensors, Index columns, Index heads, Index kv_heads) {
  const bool few = heads <= columns;  // so that the sum does not overflow
  const Index parts = few ? heads + 2 * kv_heads : 1;
  require(few && columns % parts == 0, tensors.layer(), ": ", tensors.name("in_proj_weight"), " has ", columns,
          " rows, not a multiple of ", heads, " + 2 · ", kv_heads, " heads");
  const Index k = columns / parts * heads;
  return {k, k + columns / parts * kv_heads};
}

std::pair<Index, Index> Projections::own(Index first, Index width) const {
  const Index of_head = width / shares_.count();
  return {first + shares_.begin() * of_head, first + shares_.end() * of_head};
}

PackedMatrix::Columns Projections::columns(const PackedMatrix& given, Index first, Index width) {
  const auto [begin, end] = own(first, width);
  if (begin % kernels::panel_columns == 0) return {&given, begin, end};
  const PackedMatrix& copy = made_.emplace_back(columns_of(given, begin, end));
  return {&copy, 0, copy.columns()};
}

void Projections::read_one(Index rows) {
  const auto [at_k, at_v] = split(tensors_, rows, heads_, shares_.count());
  q_width = at_k, kv_width = at_v - at_k;
  if (const PackedMatrix* const all = tensors_.packed(one_name, any_size, any_size)) {
    require(at_k % kernels::panel_columns == 0 && at_v % kernels::panel_columns == 0, tensors_.layer(), ": ",
            tensors_.name(one_name), " is a PackedMatrix, in which k and v begin at columns ", at_k, " and ", at_v,
            "; both must be multiples of 32");
    q = columns(*all, 0, q_width), k = columns(*all, at_k, kv_width), v = columns(*all, at_v, kv_width);
    return;
  }
  const View<const float, 2> all = tensors_.matrix(one_name, any_size, any_size);
  if (tensors_.rows_of_team(one_name) == nullptr) {
    q = columns(all, 0, q_width), k = columns(all, at_k, kv_width), v = columns(all, at_v, kv_width);
    return;
  }
  const Index q_rows = q_width / shares_.count() * shares_.own(), kv_rows = kv_width / shares_.count() * shares_.own();
  tensors_.require_share(one_name, all.shape[0], q_rows + 2 * kv_rows);
  q = pack(all.slice(0, 0, q_rows));
  k = pack(all.slice(0, q_rows, q_rows + kv_rows));
  v = pack(all.slice(0, q_rows + kv_rows, all.shape[0]));
}

PackedMatrix::Columns Projections::read(const char* name, Index rows, Index columns, Index& width) {
  const auto check_width = [&](Index all) {
    require(rows == any_size || all == rows, tensors_.layer(), ": ", tensors_.name(name), " has ", all,
            " rows, it must have ", rows);
    require(all % heads_ == 0 || rows != any_size, tensors_.layer(), ": ", tensors_.name(name), " has ", all,
            " rows, not a multiple of ", heads_, " heads");
    width = all;
  };
  if (const PackedMatrix* const given = tensors_.packed(name, rows, columns)) {
    check_width(given->columns());
    return this->columns(*given, 0, width);
  }
  const Index* const of_team = tensors_.rows_of_team(name);
  const View<const float, 2> given = tensors_.matrix(name, of_team == nullptr ? rows : any_size, columns);
  check_width(of_team == nullptr ? given.shape[0] : *of_team);
  if (of_team == nullptr) return this->columns(given, 0, width);
  const auto [begin, end] = own(0, width);
  tensors_.require_share(name, given.shape[0], end - begin);
  return pack(given);
}

void Projections::read_three() {
  q = read("q_proj_weight", any_size, any_size, q_width);
  const Index rows = shares_.count() * (q_width / heads_);
  k = read("k_proj_weight", rows, any_size, kv_width);
  v = read("v_proj_weight", rows, k.matrix->rows(), kv_width);
}

void Projections::read() {
  if (!tensors_.has(one_name)) return read_three();
  if (const Index* const of_team = tensors_.rows_of_team(one_name)) return read_one(*of_team);
  const PackedMatrix* const packed = tensors_.packed(one_name, any_size, any_size);
  read_one(packed != nullptr ? packed->columns() : tensors_.matrix(one_name, any_size, any_size).shape[0]);
}

/// Columns side by side, of matrices of one type.
PackedMatrix joined(const StateDictReader& tensors, std::initializer_list<PackedMatrix::Columns> parts) {
  const DType first = parts.begin()->matrix->type();
  for (const auto& part : parts)
    require(part.matrix->type() == first, tensors.layer(), ": q, k and v are one matrix, but ", name_of(first), " and ",
            name_of(part.matrix->type()));
  return PackedMatrix::joined({parts.begin(), parts.size()});
}

/// A bias of q, k and v of all heads as one of the columns of the product of this rank.
std::vector<float> by_columns(const std::vector<float>& bias, const ProjectionColumns& c, const Projections& all,
                              const Shares& shares) {
  if (bias.empty()) return {};
  std::vector<float> result(static_cast<std::size_t>(c.end));
  const Index q = shares.begin() * (all.q_width / shares.count()),
              kv = shares.begin() * (all.kv_width / shares.count());
  const auto copy = [&](Index from, Index width, Index to) {
    std::copy_n(bias.begin() + from, width, result.begin() + to);
  };
  copy(q, c.q_width, 0);
  copy(all.q_width + kv, c.kv_width, c.k);
  copy(all.q_width + all.kv_width + kv, c.kv_width, c.v);
  return result;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const StateDict& state, std::string_view prefix,
                                       const MultiHeadAttentionOptions& options)
    : heads_(options.heads), scale_(options.scale) {
  make_together(
      options.team, "MultiHeadAttention", [&] { read(state, prefix, options); },
      [&](Description& text) {
        describe(text, options);
        text.add_tensors(state, prefix, "", attention_tensors);
      });
}

void MultiHeadAttention::read(const StateDict& state, std::string_view prefix,
                              const MultiHeadAttentionOptions& options) {
  const StateDictReader tensors("MultiHeadAttention", state, prefix);
  const Index kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  require(heads_ > 0, tensors.layer(), ": heads is ", heads_, ", the minimum is 1");
  require(kv_heads > 0 && heads_ % kv_heads == 0, tensors.layer(), ": kv_heads is ", kv_heads,
          ", which does not divide heads, ", heads_);
  for (const char* name : {"bias_k", "bias_v"})
    require(!tensors.has(name), tensors.layer(), ": ", tensors.name(name), " is not supported");

  shares_ = Shares(options.team, kv_heads, 1);
  Projections given(tensors, heads_, shares_, options.weights);
  given.read();
  head_dim_ = given.q_width / heads_;
  kv_dim_ = given.k.matrix->rows();
  require(head_dim_ >= 1 && head_dim_ <= max_head_dim, tensors.layer(), ": head_dim is ", head_dim_,
          ", it must be 1 to ", max_head_dim);
  const bool apart = kv_dim_ != given.q.matrix->rows();
  in_proj_ = apart ? joined(tensors, {given.q}) : joined(tensors, {given.q, given.k, given.v});
  if (apart) memory_proj_ = joined(tensors, {given.k, given.v});
  for (const PackedMatrix* weight : {&in_proj_, &memory_proj_})
    if (weight == &in_proj_ || apart)
      check_activations(Caller(tensors.layer()).operand("in_proj_weight", shape_of(*weight)), weight,
                        options.activations);
  in_bias_ = by_columns(tensors.optional_vector("in_proj_bias", given.q_width + 2 * given.kv_width),
                        projection_columns(*this), given, shares_);
  out_proj_ = Linear(state, tensors.name("out_proj."), options.weights, options.activations, options.team);
  require(out_proj_.in_features() == heads_ * head_dim_, tensors.layer(), ": ", tensors.name("out_proj.weight"),
          " has ", out_proj_.in_features(), " columns, the heads have ", heads_ * head_dim_, " elements");
}

View<const float, 1> MultiHeadAttention::in_proj_bias() const { return view_of(in_bias_); }

OwnedStateDict MultiHeadAttention::state_dict(std::string_view prefix) const {
  require_whole("MultiHeadAttention::state_dict", shares_);
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
