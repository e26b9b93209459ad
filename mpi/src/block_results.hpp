// Partial results of single blocks of 512 keys, the parts from which merge() makes the bits of
// attention() over all keys.
#pragma once

#include "part_options.hpp"
#include "partial_result.hpp"

#include <headlane/mpi/sequence_cut.hpp>

namespace headlane::mpi::internal {

/// The number of blocks of a piece of keys.
Index blocks_of(const SequencePiece& piece);

/// The blocks of a piece that a rank has in tensors: one call of attention() with a batch element
/// for each whole block, one for a last block that is shorter.
///
/// q [1, q_heads, rows, head_dim], k and v [1, kv_heads, keys of the piece, …]; options are those
/// of the batch element for the whole sequence; to: one partial result for each block.
void compute_blocks(const View<const float, 4>& q, const View<const float, 4>& k, const View<const float, 4>& v,
                    const AttentionOptions& options, const Rows& rows, const SequencePiece& piece,
                    const PartialResult& to);

/// Options for a batch of `count` blocks of `size` keys, from those of PartOptions for all of their
/// keys: the blocks become batch elements. Neither copied nor moved: views refer to the members.
class BlockOptions {
 public:
  BlockOptions(const AttentionOptions& of_keys, Index count, Index size);
  BlockOptions(const BlockOptions&) = delete;
  BlockOptions& operator=(const BlockOptions&) = delete;

  AttentionOptions options;

 private:
  std::vector<Index> offsets_, key_lengths_;
};

}  // namespace headlane::mpi::internal
