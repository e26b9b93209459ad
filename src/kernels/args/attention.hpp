// What attention's kernels take: where keys and values stand, what rows see of them, and where results go.
#pragma once

#include <headlane/index.hpp>

namespace headlane::internal::kernels {

/// The running result of some query rows: what online softmax carries from one block of keys to the next.
struct AttentionState {
  float* out;  ///< [rows, out_step], the sum of p·v, not yet divided; out_step a multiple of panel_columns
  Index out_step;
  float* max;  ///< [rows] largest score so far; -inf while no key was seen
  float* sum;  ///< [rows] Σ exp(score - max)
};

/// Something given for each score: element [row, key] stands at data[row · row_step + key · key_step]. Null data: not given.
template <class T>
struct PerScore {
  const T* data;
  Index row_step, key_step;
};

/// Keys that a row-major block of keys has turned into panels at a time.
inline constexpr Index turned_keys = 128;

/// Where a block of keys and values stands: in pages of `page` keys each, a multiple of panel_columns.
struct KeyBlock {
  Index page;
  const float* const* k;  ///< of each page: packed panels [panel][head_dim][panel_columns], or rows
  Index k_row_step;       ///< 0: panels; otherwise rows of stride 1, this far apart, in one page
  float* turned;          ///< of rows: scratch [turned_keys · head_dim]
  const float* const* v;  ///< of each page: panels as GemmBlock::b
  Index v_row_step, v_panel_step;
};

/// Where the divided result goes.
struct AttentionOutput {
  Index rows, value_dim;
  float* out;
  Index row_step, column_step;
  float* lse;  ///< may be null
  Index lse_step;
  float* sum;  ///< null, or where the sum goes: then nothing is divided, and lse gets the largest score
  Index sum_step;
  const float* sinks;  ///< null, or [rows]: one more score, without a value
};

/// Rows that a later block will read: some of them are fetched into the L2 with each query row.
struct Fetch {
  const float* data;
  Index rows, row_step, row_lines;  ///< so many rows of so many cache lines
  Index per_query;                  ///< rows to fetch with a query row
};

/// Some query rows against one block of keys (at most block_size).
struct AttentionBlock {
  Index rows, head_dim, value_dim;
  const float* q;  ///< packed rows, already scaled, row_stride apart
  KeyBlock keys;
  const Index* hidden;           ///< [rows] each row sees none of the block's keys before this one
  const Index* seen;             ///< [rows] nor from this one on; 0 if it sees none at all
  bool alike;                    ///< both are the same for all rows
  PerScore<bool> mask;           ///< of those between, it sees the ones that are true here
  PerScore<unsigned char> bits;  ///< and those whose bit key % 8 is set in byte key / 8, key_step apart
  PerScore<float> bias;          ///< added to the scores; a key with -inf is not seen
  PerScore<float> relative;      ///< added before bias, likewise; key_step 1
  float softcap;                 ///< 0: none
  const float* slopes;  ///< null, or [rows]: slope · (key + distance - row · row_distance) is added to the scores
  Index distance, row_distance;
  float* scores;  ///< scratch [max_tile_rows, row_stride]
  bool fresh;     ///< the state is not yet initialised: this is the first block
  AttentionState state;
  const AttentionOutput* output;  ///< null, or where the result goes at once, for this is the only block; column_step 1
  Fetch fetch[3];
};

/// Some rows of a result over other keys, as AttentionState.
struct AttentionPartRows {
  Index rows, value_dim;
  const float* out;
  Index out_step;
  const float *max, *sum;
};

/// Scores of some rows with one block of keys become weights: exp(score - max) · factor, 0 for keys that a row does not see.
struct AttentionWeights {
  const float *max, *factor;  ///< [rows]
  float* weights;             ///< null, or element [row, key] at row · row_step + key
  Index row_step;
  float* key_sums;  ///< null, or [keys of the block]: the weights are added to it, row after row
};

}  // namespace headlane::internal::kernels
