// Arguments of attention's kernels: where keys and values are, which of them rows see, and where
// results go. Steps are strides, in elements.
#pragma once

#include "kernels/args/gemm.hpp"

#include <headlane/dtype.hpp>
#include <headlane/index.hpp>

namespace headlane::internal::kernels {

/// The running result of some query rows: the state of online softmax between blocks of keys.
struct AttentionState {
  float* out;  ///< [rows, out_step], the sum of p·v, not yet divided; out_step a multiple of panel_columns
  Index out_step;
  float* max;  ///< [rows] largest score so far; -inf before the first visible key
  float* sum;  ///< [rows] Σ exp(score - max)
};

/// A value for each score: element [row, key] is data[row · row_step + key · key_step]. Null: not
/// given.
template <class T>
struct PerScore {
  const T* data;
  Index row_step, key_step;
};

/// Keys of a row-major block that are transposed into panels at a time: 16 KiB for a head_dim of
/// 64, which stay in the L1 beside the keys that are read. Decoding 512 keys from the L3 (Zen 5):
/// 71 GB/s; 32 at a time 63, 128 at a time 65.
inline constexpr Index transposed_keys = 64;

/// The most rows for which a kernel reads keys and values of another type than float32: it widens
/// them in registers, for each tile of rows. For more, blocks are widened into panels first.
/// 8 × 1024 keys with 8 and 16 query heads to a kv head: 11.3 and 5.6 GB/s of bfloat16, by panels
/// 5.4 and 3.4; 4.9 and 2.5 of int8, by panels 4.1 and 1.9; of 512 keys in the L2 5.1 and 2.4, by
/// panels 4.7 and 2.7 (Zen 4, AVX-512).
inline constexpr Index max_widening_rows = 16;
static_assert(max_widening_rows >= max_tile_rows);  // tiles of any height do

/// A block of keys and values, in pages of `page` keys each, a multiple of panel_columns.
struct KeyBlock {
  Index page;
  const void* const* k;  ///< of each page: packed panels [panel][head_dim][panel_columns], or rows
  Index k_row_step;      ///< 0: panels; otherwise the row stride of row-major keys, in one page
  float* transposed;     ///< for row-major keys: scratch [transposed_keys · head_dim]
  const void* const* v;  ///< of each page: panels as GemmBlock::b
  Index v_row_step, v_panel_step;
  DType type = DType::float32;  ///< of both; if it is another one, panels have k_columns, and values are rows
  Index k_columns = 0;
  const float *const *k_scales = nullptr, *const *v_scales = nullptr;  ///< int8, of each page: a scale for each key
  const void* const* next = nullptr;          ///< for each page: keys that will be read later, to be prefetched
  const float* const* next_scales = nullptr;  ///< int8: theirs
  bool prefetches = false;  ///< float32: tiles prefetch the values beside keys, and `next` beside values
};

/// Rows of panel_columns elements of another type than float32, to be widened into a panel.
struct StoredRows {
  const void* data;
  DType type;
  Index rows, row_step;
  const float *column_scales, *row_scales;  ///< int8: one of them; otherwise null
  float* to;
};

/// Where the divided result goes.
struct AttentionOutput {
  Index rows, value_dim;
  float* out;
  Index row_step, column_step;
  float* lse;  ///< null: not wanted
  Index lse_step;
  float* sum;  ///< null, or receives the sum: then nothing is divided, and lse receives the largest score
  Index sum_step;
  const float* sinks;  ///< null, or [rows]: one more score, without a value
};

/// Rows that a later block will read, which a kernel prefetches into the L2 along the way.
struct Prefetch {
  const float* data;
  Index rows, row_step, row_lines;  ///< the number of rows, and of cache lines in a row
};

/// Some query rows against one block of keys (at most block_size).
struct AttentionBlock {
  Index rows, head_dim, value_dim;
  const float* q;  ///< packed rows, scaled, packed_row_stride apart
  KeyBlock keys;
  const Index* key_begin;        ///< [rows] keys of the block before this one are masked
  const Index* key_end;          ///< [rows] keys from this one on are masked; 0: no visible key
  bool uniform;                  ///< both are the same for all rows
  PerScore<bool> mask;           ///< false masks further keys
  PerScore<unsigned char> bits;  ///< so does a 0 in bit key % 8 of byte key / 8, key_step apart
  PerScore<float> bias;          ///< added to the scores; -inf masks the key
  PerScore<float> relative;      ///< added before bias, likewise; key_step 1
  float softcap;                 ///< 0: none
  const float* slopes;           ///< null, or [rows]: adds slope · (key + distance - row · row_distance)
  Index distance, row_distance;
  float* scores;  ///< scratch [max_tile_rows, packed_row_stride]
  bool is_first;  ///< there is no state yet: the block initialises it
  AttentionState state;
  const AttentionOutput* output;  ///< for the only block: where the result goes, column_step 1; or null
  Prefetch prefetch[3];
};

/// The most keys that attention_few_keys takes: the scores of 32 queries, 16 KiB, stay in the L1.
inline constexpr Index max_few_keys = 128;
static_assert(max_few_keys * panel_columns <= max_tile_rows * packed_row_stride);  // in the memory of scores

/// Some query rows against few keys without masks and biases: of both at least half of
/// KernelTable::tile_rows.
struct FewKeys {
  Source q;  ///< [rows, head_dim]
  float scale;
  Source k;        ///< [keys, head_dim], column_step 1
  Index position;  ///< of row 0: row i sees keys 0 … position + i
  const float* v;  ///< panels as GemmBlock::b
  Index v_row_step, v_panel_step;
  float* queries;                 ///< scratch [head_dim, panel_columns]
  float* scores;                  ///< scratch [max_few_keys, panel_columns]
  const AttentionOutput* output;  ///< value_dim a multiple of panel_columns, column_step 1
  Prefetch prefetch[3];
};

/// Turns scores of some rows with one block of keys into probabilities: exp(score - max) · factor,
/// 0 for masked keys.
struct AttentionWeights {
  const float *max, *factor;  ///< [rows]
  float* weights;             ///< null, or element [row, key] is weights[row · row_step + key]
  Index row_step;
  float* key_sums;  ///< null, or [keys of the block]: the probabilities are added to it, row after row
};

}  // namespace headlane::internal::kernels
