// Calls of attention, and how they are divided.
#pragma once

#include <headlane/index.hpp>

#include <span>

namespace headlane::test {

enum class PlanLayout {
  contiguous,      // [batch, head, sequence, dim]
  heads_adjacent,  // [batch, sequence, head, dim]
  strided_values,  // as contiguous, the columns of v 2 elements apart
};

enum class PlanOption { none, causal, causal_decoding, causal_offsets, window, relative_bias, variable_length, cache };

struct PlanCase {
  Index batch, q_heads, kv_heads, queries, keys, head_dim, value_dim;
  struct How {
    int threads = 1;
    Index tile_rows = 12;
    PlanOption option = PlanOption::none;
    PlanLayout layout = PlanLayout::contiguous;
  } how;
  const char* plan;
};

namespace plan_table {

using enum PlanOption;
using enum PlanLayout;

// Columns: batch, q_heads, kv_heads, queries, keys, head_dim, value_dim, how. Then the plan, as
// test_attention_plan.cpp writes it.
// clang-format off
inline constexpr PlanCase all[]{
  {1, 8, 8, 512, 512, 64, 64, {.threads = 1},
   "by_head threads 1 tasks 8 rows 96 x 6 keys 512 in 1 / 1 packed 32768 + 32768 x 1 prefetch bytes 536640"},
  {1, 8, 8, 512, 512, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 8 rows 96 x 6 keys 512 in 1 / 1 packed 32768 + 32768 x 1 prefetch bytes 1073216"},
  {1, 8, 8, 512, 512, 64, 64, {.threads = 3},
   "by_rows threads 3 tasks 48 rows 96 x 6 keys 512 in 1 / 1 packed 32768 + 32768 x 8 bytes 2920512"},
  {1, 8, 8, 512, 512, 64, 64, {.threads = 8},
   "by_head threads 8 tasks 8 rows 96 x 6 keys 512 in 1 / 1 packed 32768 + 32768 x 1 prefetch bytes 4292672"},
  {1, 8, 8, 512, 512, 64, 64, {.threads = 64},
   "by_rows threads 64 tasks 176 rows 24 x 22 keys 512 in 1 / 1 packed 32768 + 32768 x 8 bytes 8650816"},
  {1, 8, 8, 64, 64, 64, 64, {.threads = 1},
   "by_head threads 1 tasks 8 rows 64 x 1 keys 64 in 1 / 1 packed 4096 + 0 x 1 few keys bytes 221248"},
  {1, 8, 8, 64, 64, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 8 rows 64 x 1 keys 64 in 1 / 1 packed 4096 + 0 x 1 few keys bytes 442432"},
  {1, 8, 8, 16, 16, 64, 64, {.threads = 1},
   "by_head threads 1 tasks 8 rows 16 x 1 keys 16 in 1 / 1 packed 2048 + 0 x 1 few keys bytes 102464"},
  {1, 8, 8, 16, 16, 64, 64, {.threads = 2},
   "by_head threads 1 tasks 8 rows 16 x 1 keys 16 in 1 / 1 packed 2048 + 0 x 1 few keys bytes 102464"},
  {1, 8, 8, 2048, 2048, 64, 64, {.threads = 1},
   "by_head threads 1 tasks 8 rows 96 x 22 keys 2048 in 4 / 1 packed 32768 + 32768 x 1 bytes 1323072"},
  {1, 8, 8, 2048, 2048, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 8 rows 96 x 22 keys 2048 in 4 / 1 packed 32768 + 32768 x 1 bytes 2646080"},
  {1, 8, 8, 4096, 4096, 64, 64, {.threads = 2, .option = causal},
   "by_rows threads 2 tasks 344 rows 96 x 43 keys 4096 in 8 / 1 packed 32768 + 32768 x 8 bytes 17326144"},
  {1, 8, 8, 4096, 4096, 64, 64, {.threads = 5, .option = causal},
   "by_rows threads 5 tasks 344 rows 96 x 43 keys 4096 in 8 / 1 packed 32768 + 32768 x 8 bytes 18149440"},
  {1, 8, 8, 512, 512, 64, 64, {.threads = 2, .tile_rows = 6},
   "by_head threads 2 tasks 8 rows 96 x 6 keys 512 in 1 / 1 packed 32768 + 32768 x 1 prefetch bytes 1073216"},
  {1, 8, 8, 512, 512, 64, 64, {.threads = 2, .layout = heads_adjacent},
   "by_head threads 2 tasks 8 rows 96 x 6 keys 512 in 1 / 1 packed 32768 + 32768 x 1 prefetch bytes 1073216"},
  {64, 8, 8, 32, 32, 64, 64, {.threads = 1},
   "by_head threads 1 tasks 512 rows 32 x 1 keys 32 in 1 / 1 packed 2048 + 0 x 1 few keys prefetch bytes 139328"},
  {64, 8, 8, 32, 32, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 512 rows 32 x 1 keys 32 in 1 / 1 packed 2048 + 0 x 1 few keys prefetch bytes 278592"},
  {32, 8, 8, 128, 128, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 256 rows 96 x 2 keys 128 in 1 / 1 packed 8192 + 0 x 1 few keys prefetch bytes 630848"},
  {64, 8, 8, 32, 64, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 512 rows 32 x 1 keys 64 in 1 / 1 packed 4096 + 0 x 1 few keys prefetch bytes 294976"},
  {1, 4, 4, 1, 4096, 64, 64, {.threads = 2},
   "in_place threads 2 tasks 4 rows 1 x 1 keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 131136"},
  {1, 3, 3, 1, 4096, 64, 64, {.threads = 3},
   "in_place threads 3 tasks 3 rows 1 x 1 keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 196672"},
  {1, 8, 8, 1, 4096, 64, 64, {.threads = 1},
   "in_place threads 1 tasks 8 rows 1 x 1 keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 65600"},
  {1, 8, 8, 1, 4096, 64, 64, {.threads = 2},
   "in_place threads 2 tasks 8 rows 1 x 1 keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 131136"},
  {1, 8, 8, 1, 4096, 64, 64, {.threads = 5},
   "in_place threads 5 tasks 24 rows 1 x 1 keys 4096 in 8 / 3 packed 0 + 0 x 1 bytes 348224"},
  {8, 8, 8, 1, 1024, 64, 64, {.threads = 2},
   "in_place threads 2 tasks 64 rows 1 x 1 keys 1024 in 2 / 1 packed 0 + 0 x 1 bytes 131136"},
  {1, 32, 8, 1, 4096, 64, 64, {.threads = 1},
   "in_place threads 1 tasks 8 rows 4 x 1 of heads keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 73792"},
  {1, 32, 8, 1, 4096, 64, 64, {.threads = 2},
   "in_place threads 2 tasks 8 rows 4 x 1 of heads keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 147520"},
  {1, 32, 8, 1, 4096, 64, 64, {.threads = 3},
   "in_place threads 3 tasks 16 rows 4 x 1 of heads keys 4096 in 8 / 2 packed 0 + 0 x 1 bytes 290880"},
  {1, 32, 2, 1, 4096, 64, 64, {.threads = 2},
   "in_place threads 2 tasks 2 rows 16 x 1 of heads keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 204864"},
  {1, 8, 8, 12, 4096, 64, 64, {.threads = 2},
   "in_place threads 2 tasks 8 rows 12 x 1 keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 180288"},
  {1, 8, 8, 13, 4096, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 8 rows 13 x 1 keys 4096 in 8 / 1 packed 32768 + 0 x 1 bytes 409664"},
  {1, 8, 8, 7, 4096, 64, 64, {.threads = 2, .tile_rows = 6},
   "by_head threads 2 tasks 8 rows 7 x 1 keys 4096 in 8 / 1 packed 32768 + 0 x 1 bytes 385088"},
  {1, 1, 1, 1, 100000, 128, 128, {.threads = 1},
   "in_place threads 1 tasks 1 rows 1 x 1 keys 100000 in 196 / 1 packed 0 + 0 x 1 bytes 81984"},
  {1, 1, 1, 1, 100000, 128, 128, {.threads = 2},
   "in_place threads 2 tasks 8 rows 1 x 1 keys 100000 in 196 / 8 packed 0 + 0 x 1 bytes 266304"},
  {1, 1, 1, 1, 100000, 128, 128, {.threads = 7},
   "in_place threads 7 tasks 28 rows 1 x 1 keys 100000 in 196 / 28 packed 0 + 0 x 1 bytes 675904"},
  {1, 130, 1, 1, 1300, 16, 16, {.threads = 1},
   "by_head threads 1 tasks 1 rows 96 x 2 of heads keys 1300 in 3 / 1 packed 8192 + 0 x 1 bytes 360512"},
  {1, 130, 1, 1, 1300, 16, 16, {.threads = 2},
   "by_rows threads 2 tasks 2 rows 96 x 2 of heads keys 1300 in 3 / 1 packed 8192 + 0 x 1 bytes 622656"},
  {1, 20, 1, 1, 1300, 16, 16, {.threads = 2},
   "by_rows threads 2 tasks 1 rows 20 x 1 of heads keys 1300 in 3 / 1 packed 8192 + 0 x 1 bytes 278592"},
  {2, 4, 2, 130, 300, 16, 32, {.threads = 1},
   "by_head threads 1 tasks 4 rows 96 x 2 keys 300 in 1 / 1 packed 5120 + 10240 x 1 bytes 323648"},
  {2, 4, 2, 130, 300, 16, 32, {.threads = 2},
   "by_head threads 2 tasks 4 rows 96 x 2 keys 300 in 1 / 1 packed 5120 + 10240 x 1 bytes 647232"},
  {2, 4, 2, 130, 300, 16, 32, {.threads = 3},
   "by_rows threads 3 tasks 16 rows 96 x 2 keys 300 in 1 / 1 packed 5120 + 10240 x 4 bytes 1032256"},
  {1, 2, 2, 30, 1300, 16, 16, {.threads = 2},
   "by_head threads 2 tasks 2 rows 30 x 1 keys 1300 in 3 / 1 packed 8192 + 0 x 1 bytes 286784"},
  {2, 4, 2, 30, 600, 20, 24, {.threads = 1},
   "by_head threads 1 tasks 4 rows 30 x 1 keys 600 in 2 / 1 packed 10240 + 16384 x 1 bytes 323648"},
  {2, 4, 2, 30, 600, 20, 24, {.threads = 2},
   "by_head threads 2 tasks 4 rows 30 x 1 keys 600 in 2 / 1 packed 10240 + 16384 x 1 bytes 647232"},
  {2, 6, 2, 1, 600, 20, 24, {.threads = 2},
   "by_head threads 2 tasks 4 rows 3 x 1 of heads keys 600 in 2 / 1 packed 10240 + 16384 x 1 bytes 319552"},
  {1, 4, 4, 3000, 70000, 512, 512, {.threads = 2},
   "by_rows threads 2 tasks 128 rows 96 x 32 keys 70000 in 137 / 1 packed 262144 + 262144 x 1 bytes 288202816"},
  {1, 16, 16, 600, 5000, 256, 256, {.threads = 3},
   "by_rows threads 3 tasks 112 rows 96 x 7 keys 5000 in 10 / 1 packed 131072 + 131072 x 3 bytes 32501824"},
  {3, 6, 2, 100, 700, 512, 1, {.threads = 1},
   "by_head threads 1 tasks 6 rows 96 x 2 keys 700 in 2 / 1 packed 262144 + 16384 x 1 bytes 2490432"},
  {3, 6, 2, 100, 700, 512, 1, {.threads = 4},
   "by_rows threads 4 tasks 36 rows 96 x 2 keys 700 in 2 / 1 packed 262144 + 16384 x 6 bytes 14417984"},
  {1, 8, 8, 2048, 2048, 64, 64, {.threads = 2, .option = window},
   "by_head threads 2 tasks 8 rows 96 x 22 keys 2048 in 4 / 1 packed 32768 + 0 x 1 bytes 1597504"},
  {1, 8, 8, 24, 2048, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 8 rows 24 x 1 keys 2048 in 4 / 1 packed 32768 + 0 x 1 bytes 467008"},
  {1, 8, 8, 25, 2048, 64, 64, {.threads = 2, .layout = heads_adjacent},
   "by_head threads 2 tasks 8 rows 25 x 1 keys 2048 in 4 / 1 packed 32768 + 32768 x 1 bytes 729152"},
  {1, 8, 8, 24, 2048, 64, 64, {.threads = 2, .layout = heads_adjacent},
   "by_head threads 2 tasks 8 rows 24 x 1 keys 2048 in 4 / 1 packed 32768 + 0 x 1 bytes 467008"},
  {1, 8, 8, 257, 2048, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 8 rows 96 x 3 keys 2048 in 4 / 1 packed 32768 + 32768 x 1 bytes 2646080"},
  {1, 8, 8, 256, 2048, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 8 rows 96 x 3 keys 2048 in 4 / 1 packed 32768 + 0 x 1 bytes 1597504"},
  {1, 8, 8, 1, 512, 64, 64, {.threads = 2, .option = causal},
   "in_place threads 2 tasks 8 rows 1 x 1 keys 1 in 1 / 1 packed 0 + 0 x 1 bytes 131136"},
  {1, 8, 8, 3, 2000, 64, 64, {.threads = 2, .option = causal_decoding},
   "in_place threads 2 tasks 8 rows 3 x 1 keys 2000 in 4 / 1 packed 0 + 0 x 1 bytes 139328"},
  {2, 8, 8, 300, 2000, 64, 64, {.threads = 2, .option = causal_decoding},
   "by_head threads 2 tasks 16 rows 96 x 4 keys 2000 in 4 / 1 packed 32768 + 32768 x 1 bytes 2646080"},
  {2, 8, 8, 100, 2000, 64, 64, {.threads = 2, .option = causal_offsets},
   "by_head threads 2 tasks 16 rows 96 x 2 keys 2000 in 4 / 1 packed 32768 + 0 x 1 bytes 1597504"},
  {2, 8, 8, 100, 2000, 64, 64, {.threads = 1, .option = relative_bias},
   "by_head threads 1 tasks 16 rows 96 x 2 keys 2000 in 4 / 1 packed 32768 + 0 x 1 bytes 802880"},
  {2, 8, 8, 100, 2000, 64, 64, {.threads = 2, .option = relative_bias},
   "by_head threads 2 tasks 16 rows 96 x 2 keys 2000 in 4 / 1 packed 32768 + 0 x 1 bytes 1605696"},
  {1, 32, 8, 1, 4096, 64, 64, {.threads = 2, .option = relative_bias},
   "in_place threads 2 tasks 8 rows 4 x 1 of heads keys 4096 in 8 / 1 packed 0 + 0 x 1 bytes 163904"},
  {1, 8, 8, 300, 900, 64, 64, {.threads = 1, .option = variable_length},
   "by_head threads 1 tasks 24 rows 96 x 3 keys 450 in 1 / 1 packed 30720 + 0 x 1 prefetch bytes 397376"},
  {1, 8, 8, 300, 900, 64, 64, {.threads = 2, .option = variable_length},
   "by_head threads 2 tasks 24 rows 96 x 3 keys 450 in 1 / 1 packed 30720 + 0 x 1 prefetch bytes 794688"},
  {1, 8, 2, 3, 900, 64, 64, {.threads = 2, .option = variable_length},
   "by_head threads 2 tasks 6 rows 2 x 1 keys 450 in 1 / 1 packed 30720 + 0 x 1 prefetch bytes 352320"},
  {1, 8, 2, 300, 900, 64, 64, {.threads = 2, .option = relative_bias, .layout = heads_adjacent},
   "by_head threads 2 tasks 2 rows 96 x 4 keys 900 in 2 / 1 packed 32768 + 32768 x 1 bytes 1605696"},
  {2, 8, 2, 1, 1300, 64, 64, {.threads = 1, .option = cache},
   "in_place threads 1 tasks 4 rows 4 x 1 of heads keys 1300 in 3 / 1 packed 0 + 0 x 1 bytes 57408"},
  {2, 8, 2, 1, 1300, 64, 64, {.threads = 2, .option = cache},
   "in_place threads 2 tasks 4 rows 4 x 1 of heads keys 1300 in 3 / 1 packed 0 + 0 x 1 bytes 114752"},
  {2, 8, 2, 1, 1300, 64, 64, {.threads = 5, .option = cache},
   "in_place threads 5 tasks 12 rows 4 x 1 of heads keys 1300 in 3 / 3 packed 0 + 0 x 1 bytes 303168"},
  {1, 8, 8, 200, 300, 64, 64, {.threads = 2, .option = cache},
   "in_place threads 2 tasks 24 rows 96 x 3 keys 300 in 1 / 1 packed 0 + 0 x 1 bytes 548928"},
  {1, 1, 1, 1, 5000, 128, 128, {.threads = 2, .option = cache},
   "in_place threads 2 tasks 8 rows 1 x 1 keys 5000 in 10 / 8 packed 0 + 0 x 1 bytes 106560"},
  {2, 8, 8, 1, 100, 64, 64, {.threads = 2, .layout = strided_values},
   "by_head threads 2 tasks 16 rows 1 x 1 keys 100 in 1 / 1 packed 8192 + 8192 x 1 bytes 229440"},
  {2, 8, 8, 40, 100, 64, 64, {.threads = 2, .layout = strided_values},
   "by_head threads 2 tasks 16 rows 40 x 1 keys 100 in 1 / 1 packed 8192 + 8192 x 1 few keys bytes 426048"},
  {1, 8, 8, 100, 0, 64, 64, {.threads = 1},
   "by_head threads 1 tasks 8 rows 96 x 2 keys 0 in 0 / 1 packed 0 + 0 x 1 bytes 274496"},
  {1, 8, 8, 1, 0, 64, 64, {.threads = 1},
   "by_head threads 1 tasks 8 rows 1 x 1 keys 0 in 0 / 1 packed 0 + 0 x 1 bytes 49216"},
  {5, 1, 1, 1, 1, 1, 1, {.threads = 3},
   "by_head threads 1 tasks 5 rows 1 x 1 keys 1 in 1 / 1 packed 32 + 1024 x 1 bytes 57408"},
  {3, 12, 12, 70, 70, 64, 64, {.threads = 2},
   "by_head threads 2 tasks 36 rows 70 x 1 keys 70 in 1 / 1 packed 6144 + 0 x 1 few keys prefetch bytes 491584"},
  {3, 12, 12, 70, 70, 64, 64, {.threads = 4},
   "by_head threads 4 tasks 36 rows 70 x 1 keys 70 in 1 / 1 packed 6144 + 0 x 1 few keys prefetch bytes 983104"},
};
// clang-format on

}  // namespace plan_table

/// Calls of attention, and their plans.
inline std::span<const PlanCase> plan_cases() { return plan_table::all; }

}  // namespace headlane::test
