// Attention over a cut sequence, beside attention() over the whole one.
//
//   LocalRows     the rows of a tensor that a rank has
//   random_cut    a cut on the grid, with empty ranks and ranks that have several pieces
//   check_ranks   one call: throws on a rank whose rows have other bits than those of one process
#pragma once

#include "support/attention_options.hpp"
#include "support/bit_comparison.hpp"

#include <headlane/mpi/attention.hpp>

#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace headlane::test {

/// The positions of a rank, in the order in which it has them.
inline std::vector<Index> positions_of(const mpi::SequenceCut& cut, int rank) {
  std::vector<Index> positions;
  for (const mpi::SequencePiece& piece : cut.pieces())
    for (Index i = piece.begin; piece.rank == rank && i < piece.end; ++i) positions.push_back(i);
  return positions;
}

/// The rows of a tensor [batch, heads, positions, …] that a rank has, in a dense copy; without rows
/// there is no data either, as in an empty std::vector.
template <class T>
class LocalRows {
 public:
  LocalRows(const View<const T, 4>& from, const std::vector<Index>& positions) {
    view.shape = from.shape;
    view.shape[2] = static_cast<Index>(positions.size());
    const auto count = static_cast<std::size_t>(view.shape[0] * view.shape[1] * view.shape[2] * view.shape[3]);
    if (count > 0) memory_ = std::make_unique<T[]>(count);
    const View<T, 4> to(memory_.get(), view.shape);
    for_each_position(to.shape, [&](const auto& at) {
      to(at[0], at[1], at[2], at[3]) = from(at[0], at[1], positions[static_cast<std::size_t>(at[2])], at[3]);
    });
    view = to;
  }

  View<const T, 4> view;

 private:
  std::unique_ptr<T[]> memory_;
};

inline mpi::SequenceCut random_cut(Index length, int ranks, Random& random) {
  const Index kind = random.integer(0, 3);
  if (kind == 0) return mpi::SequenceCut::contiguous(length, ranks);
  if (kind == 1) return mpi::SequenceCut::cyclic(length, ranks);
  std::vector<mpi::SequencePiece> pieces;
  for (Index at = 0; at < length;) {
    const Index end = std::min(length, at + 512 * random.integer(1, 3));
    pieces.push_back({.rank = static_cast<int>(random.integer(0, ranks - 1)), .begin = at, .end = end});
    at = end;
  }
  return {ranks, pieces};
}

/// Options whose masks and biases are rows of this rank. Keeps what they refer to.
class LocalOptions {
 public:
  LocalOptions(const AttentionOptions& whole, const std::vector<Index>& positions) : options(whole) {
    if (whole.mask) options.mask = (mask_ = std::make_unique<LocalRows<bool>>(whole.mask, positions))->view;
    if (whole.mask_bits)
      options.mask_bits = (bits_ = std::make_unique<LocalRows<std::uint8_t>>(whole.mask_bits, positions))->view;
    if (!whole.bias) return;
    whole.bias.visit([&](const auto& view) {
      for_each_position(view.shape, [](const auto&) {});
      using T = std::remove_cvref_t<decltype(view(0, 0, 0, 0))>;
      auto rows = std::make_shared<LocalRows<T>>(view, positions);
      options.bias = rows->view;
      bias_ = rows;
      return 0;
    });
  }

  AttentionOptions options;

 private:
  std::unique_ptr<LocalRows<bool>> mask_;
  std::unique_ptr<LocalRows<std::uint8_t>> bits_;
  std::shared_ptr<void> bias_;
};

/// A problem, and what attention() returns for it in one process.
struct SequenceProblem {
  SequenceProblem(const AttentionSizes& s, std::uint64_t seed, const AttentionOptions& given)
      : tensors(s, seed), options(given), text(text_of(s, given) + ", seed " + std::to_string(seed)) {
    tensors.run(options);
  }

  AttentionTensors tensors;
  AttentionOptions options;
  std::string text;
};

/// Throws if this rank's rows of the results differ from those of one process.
inline void check_ranks(mpi::Transport& transport, const SequenceProblem& p, const mpi::AttentionCut& cut,
                        int num_threads) {
  const AttentionTensors& t = p.tensors;
  std::vector<Index> rows;
  if (cut.queries) rows = positions_of(*cut.queries, transport.rank());
  else
    for (Index i = 0; i < t.q.view.size(2); ++i) rows.push_back(i);
  const std::vector<Index> keys = positions_of(cut.keys, transport.rank());
  const LocalRows<float> q(t.q.view, rows), k(t.k.view, keys), v(t.v.view, keys), expected(t.out.view, rows);
  LocalOptions local(p.options, rows);
  const Tensor<4> out(expected.view.shape);
  const Tensor<3> lse({expected.view.size(0), expected.view.size(1), expected.view.size(2)});
  local.options.lse = lse.view;
  if (rows.empty()) local.options.lse.data = nullptr;
  local.options.num_threads = num_threads;
  mpi::attention(transport, q.view, k.view, v.view, out.view, cut, local.options);
  const auto where = [&](const char* what) {
    return std::string(what) + ", rank " + std::to_string(transport.rank()) + " of " +
           std::to_string(transport.size()) + (cut.queries ? ", cut queries, " : ", all queries, ") + p.text + ": ";
  };
  if (const std::string d = first_difference(out.view, expected.view); !d.empty())
    throw std::runtime_error(where("out") + d);
  for (Index b = 0; b < lse.view.size(0); ++b)
    for (Index h = 0; h < lse.view.size(1); ++h)
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (bits_of(lse.view(b, h, static_cast<Index>(i))) != bits_of(t.lse.view(b, h, rows[i])))
          throw std::runtime_error(where("lse") + "row " + std::to_string(rows[i]));
  if (!out.surroundings_untouched()) throw std::runtime_error(where("out") + "surroundings written");
}

}  // namespace headlane::test
