// Where a block of keys and values is when its turn comes: packed, or where it stands.
#pragma once

#include "attention/plan.hpp"
#include "attention/visible_keys.hpp"

namespace headlane::internal {

/// Packs block `block` of a kv head of an element; `to`: key_block floats for keys and then value_block for values, `values` apart.
struct PackedBlock {
  float *keys, *values;
};
void pack_block(const AttentionProblem& p, const AttentionCut& cut, const Element& e, Index kv_head, Index block,
                const PackedBlock& to);

/// Among all packed blocks of a kv head.
inline PackedBlock packed_block(const AttentionCut& cut, float* all, Index block) {
  return {all + block * cut.key_block, all + cut.blocks * cut.key_block + block * cut.value_block};
}

/// A block of keys for the kernel, with the pointers that it looks at.
struct BlockOfKeys {
  static constexpr Index most_pages = kernels::block_size / kernels::panel_columns;
  const float *k[most_pages], *v[most_pages];
  kernels::KeyBlock block;
};

/// Packed at `packed`, or where it stands; `turned` is scratch for keys that are read in rows.
void find_packed(const AttentionProblem& p, const AttentionCut& cut, const Rows& rows, Index block,
                 const PackedBlock& packed, BlockOfKeys& found);
void find_in_place(const AttentionProblem& p, const Rows& rows, Index block, float* turned, BlockOfKeys& found);

}  // namespace headlane::internal
