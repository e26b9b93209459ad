// Embedding: rows of a table, or columns of a packed matrix if the output layer shares the weight.
#include <headlane/embedding.hpp>

#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "gemm/check.hpp"
#include "layers/forward_check.hpp"
#include "layers/half.hpp"
#include "layers/rows.hpp"
#include "layers/state_dict_reader.hpp"
#include "layers/state_dict_writer.hpp"
#include "layers/team_output.hpp"
#include "layers/tensor_names.hpp"
#include "layers/together.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace headlane {

using namespace internal;

namespace {

void write(float x, float& y, const EmbeddingForwardOptions& o) { y = o.add ? y + x * o.scale : x * o.scale; }

}  // namespace

Embedding::Embedding(const StateDict& state, std::string_view prefix, const EmbeddingOptions& options)
    : options_(options) {
  make_together(
      options.team, "Embedding", [&] { read(state, prefix); },
      [&](Description& text) {
        text.add("tied", options.tied).add("max_length", options.max_length).add("weights", options.weights);
        text.add("activations", options.activations).add_tensors(state, prefix, "", embedding_tensors);
      });
}

void Embedding::read(const StateDict& state, std::string_view prefix) {
  const EmbeddingOptions options = options_;
  const StateDictReader tensors("Embedding", state, prefix);
  require(options.max_length >= 0, "Embedding: max_length is ", options.max_length, ", the minimum is 0");
  require(options.tied || options.activations == DType::float32,
          "Embedding: activations are those of logits(), and the embedding is not tied");
  const PackedMatrix* const given = tensors.packed("weight", any_size, any_size);
  if (given != nullptr) options_.weights = given->type();
  if (!is_packed()) {
    read_table(tensors);
    return;
  }
  OwnWeight own = tensors.weight("weight", any_size, any_size, options.weights, options.team);
  packed_ = std::move(own.matrix);
  rows_ = std::move(own.shares);
  columns_ = packed_.rows();
  check_activations(Caller(tensors.layer()).operand("weight", shape_of(packed_)), &packed_, options.activations);
}

void Embedding::read_table(const StateDictReader& tensors) {
  if (tensors.packed("weight", any_size, any_size) != nullptr) {  // of float32
    const auto [own, shares] = tensors.weight("weight", any_size, any_size, DType::float32, options_.team);
    rows_ = shares;
    columns_ = own.rows();
    table_.resize(static_cast<std::size_t>(own.columns() * own.rows()));
    own.unpack(View<float, 2>(table_.data(), {own.columns(), own.rows()}).transposed());
    return;
  }
  const View<const float, 2> table = tensors.own_rows("weight", any_size, any_size, options_.team, rows_);
  columns_ = table.shape[1];
  if (columns_ == 0) return;
  table_.reserve(static_cast<std::size_t>(table.shape[0]) * static_cast<std::size_t>(columns_));
  for (Index i = 0; i < table.shape[0]; ++i)
    for (Index j = 0; j < columns_; ++j) table_.push_back(table(i, j));
}

OwnedStateDict Embedding::state_dict(std::string_view prefix) const {
  require_whole("Embedding::state_dict", rows_);
  StateDictWriter tensors(prefix);
  if (is_packed()) tensors.add("weight", packed_);
  else tensors.add(OwnedStateDict{{tensors.name("weight"), {{rows_.count(), columns_}, table_}}});
  return tensors.take();
}

namespace {

constexpr Caller forward_caller = "Embedding::forward", logits_caller = "Embedding::logits";

/// The number of tokens of each sequence that are not dropped.
Index checked_length(const Embedding& layer, const View<const Index, 2>& ids, const Operand& y, Index max_length,
                     const EmbeddingForwardOptions& options) {
  const Caller caller = y.caller;
  const Operand of_ids = caller.operand("ids", ids);
  check_operand(of_ids);
  check_output(y);
  check_no_overlap(y, of_ids);
  const Index limit = max_length == 0 ? ids.shape[1] : max_length;
  caller.require(options.truncate || ids.shape[1] <= limit, "ids has ", ids.shape[1],
                 " tokens in a sequence, max_length is ", limit, "; truncate keeps the first ones");
  const Index length = std::min(ids.shape[1], limit);
  check_same(of_ids, 0, "batch elements", y, 0, "batch elements");
  caller.require(y.shape[1] == length && y.shape[2] == layer.embedding_dim(), "y is ", y, ", it must be ", length,
                 " rows a batch element, of ", layer.embedding_dim());
  if (length == 0) return 0;
  for (Index b = 0; b < ids.shape[0]; ++b)
    for (Index i = 0; i < length; ++i)
      caller.require(ids(b, i) >= 0 && ids(b, i) < layer.num_embeddings(), "ids[", b, ", ", i, "] is ", ids(b, i),
                     ", num_embeddings is ", layer.num_embeddings());
  return length;
}

}  // namespace

Index Embedding::checked_together(const View<const Index, 2>& ids, const Operand& y, DType type,
                                  const EmbeddingForwardOptions& options) const {
  Index length = 0;
  check_together(
      rows_.team(), forward_caller, [&] { length = checked_length(*this, ids, y, options_.max_length, options); },
      [&](Description& text) {
        text.add_ids("ids", ids.slice(1, 0, length)).add("y of", type).add("scale", options.scale);
        text.add("add", options.add);
      });
  return length;
}

void Embedding::forward(View<const Index, 2> ids, View<float, 3> y, const EmbeddingForwardOptions& options) const {
  const CallScope scope;
  const Index length = checked_together(ids, forward_caller.operand("y", y), DType::float32, options);
  if (length == 0) return;
  const ComparedScope compared(rows_.team());
  if (rows_.divided()) return forward_together(ids.slice(1, 0, length), y, options);
  const PackedColumns packed = packed_columns(packed_);
  for (Index b = 0; b < ids.shape[0]; ++b)
    for (Index i = 0; i < length; ++i) {
      const Index id = ids(b, i);
      if (is_packed()) {
        for_column(packed, id, [&](Index j, float x) { write(x, y(b, i, j), options); });
      } else {
        const float* const row = table_.data() + id * columns_;
        for (Index j = 0; j < columns_; ++j) write(row[j], y(b, i, j), options);
      }
    }
}

void Embedding::look_up(Index id, float* to) const {
  const Index own = id - rows_.begin();
  if (is_packed()) for_column(packed_columns(packed_), own, [&](Index j, float x) { to[j] = x; });
  else std::copy_n(table_.data() + own * columns_, columns_, to);
}

// The vectors of a rank are staged side by side, in the order of the ids; then each is copied to
// where its id is.
void Embedding::forward_together(const View<const Index, 2>& ids, const View<float, 3>& y,
                                 const EmbeddingForwardOptions& options) const {
  const auto [batch, length] = ids.shape;
  const std::span<const Index> firsts = rows_.begins();
  const Index ranks = std::ssize(firsts) - 1;
  if (is_empty(y)) return;
  float* const staging = scratch_rows(Purpose::team, batch, length, columns_).data;
  auto* const begins = scratch_array<Index>(Purpose::team_begins, 2 * ranks + 1);
  Index* const next = begins + ranks + 1;  // of each rank
  std::fill_n(begins, ranks + 1, Index{0});
  const auto for_each_id = [&](const auto& f) {
    for (Index b = 0; b < batch; ++b)
      for (Index i = 0; i < length; ++i)
        f(b, i, std::upper_bound(firsts.begin(), firsts.end(), ids(b, i)) - firsts.begin() - 1);
  };
  for_each_id([&](Index, Index, Index rank) { begins[rank + 1] += columns_; });
  for (Index r = 0; r < ranks; ++r) begins[r + 1] += begins[r];
  float* own = staging + begins[rows_.rank()];
  for_each_id([&](Index b, Index i, Index rank) {
    if (rank != rows_.rank()) return;
    look_up(ids(b, i), own);
    own += columns_;
  });
  rows_.team()->all_gather(staging, {begins, static_cast<std::size_t>(ranks + 1)});
  std::copy_n(begins, ranks, next);
  for_each_id([&](Index b, Index i, Index rank) {
    for (Index j = 0; j < columns_; ++j) write(staging[next[rank] + j], y(b, i, j), options);
    next[rank] += columns_;
  });
}

void Embedding::forward_halves(const View<const Index, 2>& ids, const View<std::uint16_t, 3>& y, DType type,
                               const EmbeddingForwardOptions& options) const {
  const CallScope scope;
  checked_together(ids, forward_caller.operand("y", y), type, options);
  if (is_empty(y)) return;
  const ComparedScope compared(rows_.team());
  const AnyView<const std::uint16_t> before(y);
  HalfCopies copies(active(), 1);
  copies.reserve(before);
  copies.allocate();
  const View<float, 3> wide = as_view<3>(options.add ? copies.add({before, type}) : copies.room(before));
  forward(ids, wide, options);
  copies.round(AnyView<const float>(wide), {y, type});
}

void Embedding::forward(View<const Index, 2> ids, View<bfloat16, 3> y, const EmbeddingForwardOptions& options) const {
  forward_halves(ids, bits_of(y), DType::bfloat16, options);
}
void Embedding::forward(View<const Index, 2> ids, View<float16, 3> y, const EmbeddingForwardOptions& options) const {
  forward_halves(ids, bits_of(y), DType::float16, options);
}

void Embedding::check_logits(const Operand& x, const Operand& y, DType type, int num_threads) const {
  check_together(
      rows_.team(), x.caller,
      [&] {
        x.caller.require(options_.tied, "the embedding was not made with EmbeddingOptions::tied");
        check_forward(x, columns_, y, num_embeddings(), false, num_threads);
      },
      [&](Description& text) { text.add_rows("x", x, type).add_rows("y", y, type); });
}

void Embedding::logits(View<const float, 3> x, View<float, 3> y, int num_threads) const {
  const CallScope scope;
  check_logits(logits_caller.operand("x", x), logits_caller.operand("y", y), DType::float32, num_threads);
  const ComparedScope compared(rows_.team());
  const TeamOutput out(rows_, 1, y);
  for_each_matrix(x, out.own(), {}, [&](const auto& from, const auto& to, const auto&) {
    multiply(from, packed_, 0, to, {.activations = options_.activations, .num_threads = num_threads});
  });
  out.gather(num_threads);
}

void Embedding::logits_halves(const HalfRows& rows, int num_threads) const {
  const CallScope scope;
  const ForwardOperands operands = rows.operands(logits_caller);
  check_logits(operands.x, operands.y, rows.type, num_threads);
  const ComparedScope compared(rows_.team());
  const WideRows wide(rows, num_threads);
  logits(wide.x, wide.y, num_threads);
  wide.round();
}

void Embedding::logits(View<const bfloat16, 3> x, View<bfloat16, 3> y, int num_threads) const {
  logits_halves(half_rows(x, y), num_threads);
}
void Embedding::logits(View<const float16, 3> x, View<float16, 3> y, int num_threads) const {
  logits_halves(half_rows(x, y), num_threads);
}

}  // namespace headlane
