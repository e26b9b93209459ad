// Embedding: rows of a table, or columns of a packed matrix if the output layer shares the weight.
#include <headlane/embedding.hpp>

#include "core/call_scope.hpp"
#include "gemm/check.hpp"
#include "layers/forward_check.hpp"
#include "layers/rows.hpp"
#include "layers/state_dict_reader.hpp"
#include "layers/state_dict_writer.hpp"

#include <algorithm>
#include <cstddef>

namespace headlane {

using namespace internal;

namespace {

void write(float x, float& y, const EmbeddingForwardOptions& o) { y = o.add ? y + x * o.scale : x * o.scale; }

}  // namespace

Embedding::Embedding(const StateDict& state, std::string_view prefix, const EmbeddingOptions& options)
    : options_(options) {
  const StateDictReader tensors("Embedding", state, prefix);
  require(options.max_length >= 0, "Embedding: max_length is ", options.max_length, ", the minimum is 0");
  require(options.tied || options.activations == DType::float32,
          "Embedding: activations are those of logits(), and the embedding is not tied");
  const View<const float, 2> table = tensors.matrix("weight", any_size, any_size);
  rows_ = table.shape[0];
  columns_ = table.shape[1];
  if (is_packed()) {
    packed_ = PackedMatrix(table.transposed(), {.type = options.weights});
    check_activations(Caller(tensors.layer()).operand("weight", shape_of(packed_)), &packed_, options.activations);
    return;
  }
  if (columns_ == 0) return;
  table_.reserve(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(columns_));
  for (Index i = 0; i < rows_; ++i)
    for (Index j = 0; j < columns_; ++j) table_.push_back(table(i, j));
}

OwnedStateDict Embedding::state_dict(std::string_view prefix) const {
  StateDictWriter tensors(prefix);
  if (is_packed()) tensors.add("weight", packed_);
  else tensors.add(OwnedStateDict{{tensors.name("weight"), {{rows_, columns_}, table_}}});
  return tensors.take();
}

void Embedding::forward(View<const Index, 2> ids, View<float, 3> y, const EmbeddingForwardOptions& options) const {
  const CallScope scope;
  constexpr Caller caller = "Embedding::forward";
  const Operand of_ids = caller.operand("ids", ids), of_y = caller.operand("y", y);
  check_operand(of_ids);
  check_output(of_y);
  check_no_overlap(of_y, of_ids);
  const Index limit = options_.max_length == 0 ? ids.shape[1] : options_.max_length;
  caller.require(options.truncate || ids.shape[1] <= limit, "ids has ", ids.shape[1],
                 " tokens in a sequence, max_length is ", limit, "; truncate keeps the first ones");
  const Index length = std::min(ids.shape[1], limit);
  check_same(of_ids, 0, "batch elements", of_y, 0, "batch elements");
  caller.require(y.shape[1] == length && y.shape[2] == columns_, "y is ", of_y, ", it must be ", length,
                 " rows a batch element, of ", columns_);
  if (length == 0) return;
  for (Index b = 0; b < ids.shape[0]; ++b)
    for (Index i = 0; i < length; ++i)
      caller.require(ids(b, i) >= 0 && ids(b, i) < rows_, "ids[", b, ", ", i, "] is ", ids(b, i),
                     ", num_embeddings is ", rows_);
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

void Embedding::logits(View<const float, 3> x, View<float, 3> y, int num_threads) const {
  const CallScope scope;
  constexpr Caller caller = "Embedding::logits";
  caller.require(options_.tied, "the embedding was not made with EmbeddingOptions::tied");
  check_forward(caller, x, columns_, y, rows_, false, num_threads);
  for_each_matrix(x, y, {}, [&](const auto& from, const auto& to, const auto&) {
    multiply(from, packed_, 0, to, {.activations = options_.activations, .num_threads = num_threads});
  });
}

}  // namespace headlane
