// Where the kernel reads a block of keys and values: packed, or in place.
#pragma once

#include "attention/plan.hpp"
#include "attention/visible_keys.hpp"

namespace headlane::internal {

/// One packed block.
struct PackedBlock {
  float *keys, *values;
};

/// Block `block` among all packed blocks of a kv head, which begin at `all`.
inline PackedBlock packed_block(const KeyBlocks& blocks, float* all, Index block) {
  return {all + block * blocks.key_floats, all + blocks.count * blocks.key_floats + block * blocks.value_floats};
}

/// Number of keys of a block that an element has.
Index keys_of_block(const KeyBlocks& blocks, const Element& e, Index block);

/// Packs the values of a block of a kv head of an element, unless they are read in place.
void pack_values(const AttentionProblem& p, const KeyBlocks& blocks, const Element& e, Index kv_head, Index block,
                 const PackedBlock& to);
/// Packs its keys and values.
void pack_block(const AttentionProblem& p, const KeyBlocks& blocks, const Element& e, Index kv_head, Index block,
                const PackedBlock& to);

/// A block of keys for the kernel, and storage for the pointers in it.
struct BlockOfKeys {
  static constexpr Index max_pages = kernels::block_size / kernels::panel_columns;
  const void *k[max_pages], *v[max_pages], *next[max_pages];
  const float *k_scales[max_pages], *v_scales[max_pages], *next_scales[max_pages];
  kernels::KeyBlock block;
};

/// A block whose keys are packed; its values are, unless they are read in place.
void find_packed(const AttentionProblem& p, const KeyBlocks& blocks, const QueryRows& rows, Index block,
                 const PackedBlock& packed, BlockOfKeys& found);
/// A block that is read in place; `unpacked` is scratch memory for keys in rows, for a block that
/// is widened, or for both.
void find_in_place(const AttentionProblem& p, const TaskPlan& plan, const QueryRows& rows, Index block, float* unpacked,
                   BlockOfKeys& found);

/// Floats of that memory for tasks of so many rows.
Index unpacked_floats(const AttentionProblem& p, Index rows);

}  // namespace headlane::internal
