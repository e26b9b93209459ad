// Attention to few keys, of which a query sees all or those up to its position. Scores are computed
// transposed, with a row for each key and a lane for each query: keys are read where they are, and
// no lanes are exchanged for the maximum and the sum of a query. Operations and their order are
// those of block.hpp, and so are the bits.
#pragma once

#include "kernels/attention/merge.hpp"
#include "kernels/attention/prefetch_queue.hpp"
#include "kernels/gemm/pack.hpp"
#include "kernels/simd/exp.hpp"

namespace headlane::internal::kernels {
namespace {

/// Weights, a row for each key, as a left operand whose rows are queries.
struct WeightColumns {
  template <class Arch, int Rows>
  static constexpr int at_once = 1;  // by two, PanelTile takes 1.05 to 1.1 of the time (Zen 3)
  const float* data;
  [[nodiscard]] HEADLANE_INLINE float at(int i, int p) const { return data[p * panel_columns + i]; }
  HEADLANE_INLINE void next(int count) { data += count * panel_columns; }
  template <class Float>
  HEADLANE_INLINE void follow(const Float&) {}
};

/// Writes queries row … row + count-1, count <= panel_columns, to a panel, times scale.
template <class Arch>
__attribute__((noinline)) void pack_queries(const FewKeys& x, Index row, Index count) {
  const auto [data, rows, head_dim, row_step, column_step] = x.q;
  pack_mapped_panels<Arch>({data + row * row_step, head_dim, count, column_step, row_step}, Times{x.scale}, x.queries);
}

/// The scores of keys key … key + Rows-1, and the largest of each query so far. Queries below the
/// position of a key do not see it; `position` is the one of the first query.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void score_keys(const FewKeys& x, Index position, Index key, PrefetchQueue& queue,
                                Lanes<Arch> (&largest)[Vectors]) {
  using V = Lanes<Arch>;
  V acc[Rows][Vectors];
  clear<Arch, Rows, Vectors>(acc);
  const float* k = x.k.data + key * x.k.row_step;
  multiply_prefetching<Arch, Rows, Vectors>(x.k.columns, StridedRows<Arch, Rows>(k, x.k.row_step, k, 0),
                                            Panels{x.queries, panel_columns, 0}, queue, acc);
  if (key + Rows - 1 > position) {
    const V minus_inf = V::broadcast(-__builtin_inff());
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) acc[i][j] = acc[i][j].without_first(key + i - position - j * lanes, minus_inf);
  }
  float* to = x.scores + key * panel_columns;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) {
      acc[i][j].store(to + i * panel_columns + j * lanes);
      largest[j] = max(acc[i][j], largest[j]);
    }
}

/// Replaces scores by exp(score - largest) and finds their sums: first of keys that are 16 apart,
/// which come one after the other, then by the tree of Lanes::reduce_add().
template <class Arch, int Vectors>
HEADLANE_INLINE void exponentials_of_keys(const FewKeys& x, Index keys, const Lanes<Arch> (&largest)[Vectors],
                                          Lanes<Arch> (&sum)[Vectors]) {
  using V = Lanes<Arch>;
  constexpr int keys_at_once = group_size<Arch> > Vectors ? group_size<Arch> / Vectors : 1;
  constexpr int at_once = keys_at_once * Vectors;
  const V minus_inf = V::broadcast(-__builtin_inff());
  alignas(64) float sums[lanes][Vectors * lanes];
  V m[Vectors];
#pragma GCC unroll 4
  for (int j = 0; j < Vectors; ++j) m[j] = select_equal(largest[j], minus_inf, V::zero(), largest[j]);
  for (Index key = keys; key % keys_at_once != 0; ++key)  // keys that there are not
    for (int j = 0; j < Vectors; ++j) minus_inf.store(x.scores + key * panel_columns + j * lanes);
  for (int first = 0; first < lanes; first += keys_at_once) {
    V of_keys[at_once];
    for (V& s : of_keys) s = V::zero();
    for (Index key = first; key < keys; key += lanes) {
      float* scores = x.scores + key * panel_columns;
      V p[at_once];
#pragma GCC unroll 4
      for (int i = 0; i < at_once; ++i)
        p[i] = V::load(scores + i / Vectors * panel_columns + i % Vectors * lanes) - m[i % Vectors];
      exp_nonpositive(p);
#pragma GCC unroll 4
      for (int i = 0; i < at_once; ++i) {
        p[i].store(scores + i / Vectors * panel_columns + i % Vectors * lanes);
        of_keys[i] = of_keys[i] + p[i];
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < at_once; ++i) of_keys[i].store(sums[first + i / Vectors] + i % Vectors * lanes);
  }
#pragma GCC unroll 4
  for (int j = 0; j < Vectors; ++j) {
    V part[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) part[i] = V::load(sums[i] + j * lanes);
#pragma GCC unroll 4
    for (int half = lanes / 2; half > 0; half /= 2)
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) part[i] = part[i] + part[i + half];
    sum[j] = part[0];
  }
}

/// Number of keys that a row sees.
HEADLANE_INLINE Index keys_seen_by(const FewKeys& x, Index row) {
  const Index seen = x.position + row + 1;
  return seen < 0 ? 0 : (seen < x.k.rows ? seen : x.k.rows);
}

/// The weighted values of a row and 16 columns, of its first `keys` keys. Slow, for data that hold
/// NaN or infinity.
template <class Arch>
__attribute__((noinline)) void sum_of_values(const float* weights, const float* v, Index row_step, Index keys,
                                             float* sum) {
  using V = Lanes<Arch>;
  V acc = V::zero();
  for (Index key = 0; key < keys; ++key)
    acc = fma(V::broadcast(weights[key * panel_columns]), V::load(v + key * row_step), acc);
  acc.store(sum);
}

/// The output of rows row … row + Rows-1; weights and factors are theirs.
template <class Arch, int Rows>
HEADLANE_INLINE void multiply_few_values(const FewKeys& x, Index row, const float* weights, const float* factors,
                                         PrefetchQueue& queue) {
  constexpr int width = PanelTile<Arch>::vectors;
  const Index keys = keys_seen_by(x, row + Rows - 1);
  const bool masks = keys_seen_by(x, row) < keys;
  for (Index column = 0; column < x.output->value_dim; column += width * lanes) {
    Lanes<Arch> acc[Rows][width];
    clear<Arch, Rows, width>(acc);
    const float* v = x.v + column / panel_columns * x.v_panel_step + column % panel_columns;
    multiply_prefetching<Arch, Rows, width>(keys, WeightColumns{weights}, Panels{v, x.v_row_step, x.v_panel_step},
                                            queue, acc);
    if (masks)
      recompute_unless_finite<Arch, Rows, width>(acc, [&](int i, int j, float* to) {
        sum_of_values<Arch>(weights + i, v + j * lanes, x.v_row_step, keys_seen_by(x, row + i), to);
      });
    store_output<Arch, Rows, width>(*x.output, row, column, factors, acc);
  }
}

/// Attention of queries row … row + count-1, at most Vectors · 16.
template <class Arch, int Vectors>
HEADLANE_INLINE void attend_to_few_keys(const FewKeys& x, Index row, Index count, PrefetchQueue& queue) {
  using V = Lanes<Arch>;
  const Index seen = keys_seen_by(x, row + count - 1),
              least = x.k.rows < Tile<Arch>::rows ? x.k.rows : Tile<Arch>::rows;
  const Index keys = seen < least ? least : seen;
  pack_queries<Arch>(x, row, count);
  V largest[Vectors], sum[Vectors];
  for (V& m : largest) m = V::broadcast(-__builtin_inff());
  using KeyTile = std::conditional_t<Vectors == PanelTile<Arch>::vectors, PanelTile<Arch>, Tile<Arch>>;
  for_each_tall_tile<KeyTile>(keys, [&](Index key, auto rows) {
    score_keys<Arch, rows.value, Vectors>(x, x.position + row, key, queue, largest);
  });
  exponentials_of_keys<Arch, Vectors>(x, keys, largest, sum);
  alignas(64) float factor[Vectors * lanes];
  for (int j = 0; j < Vectors && j * lanes < count; ++j) {
    const Index first = j * lanes, rest = count - first;
    finish_rows<Arch>(*x.output, row + first, rest < lanes ? rest : lanes, largest[j], sum[j], factor + first);
  }
  for_each_tall_tile<PanelTile<Arch>>(count, [&](Index first, auto rows) {
    multiply_few_values<Arch, rows.value>(x, row + first, x.scores + first, factor + first, queue);
  });
}

template <class Arch>
void attention_few_keys(const FewKeys& x) noexcept {
  constexpr int vectors = PanelTile<Arch>::vectors, at_once = vectors * lanes;
  const auto tiles = [](Index n, Index size) { return (n + size - 1) / size; };
  const Index columns = tiles(x.output->value_dim, at_once);
  const Index of_keys = tiles(x.k.rows, PanelTile<Arch>::rows) * prefetch_steps<Arch>(x.k.columns),
              of_values = tiles(x.q.rows, PanelTile<Arch>::rows) * columns * prefetch_steps<Arch>(x.k.rows);
  const Index steps = tiles(x.q.rows, at_once) * of_keys + of_values;
  PrefetchQueue queue(x.prefetch, x.position < x.k.rows ? steps / 2 : steps);  // causal: about half as many
  const auto attend = [&](Index row, Index count) {
    if (vectors > 1 && count <= lanes) attend_to_few_keys<Arch, 1>(x, row, count, queue);
    else attend_to_few_keys<Arch, vectors>(x, row, count, queue);
  };
  // 40 queries are 24 and 16, in 3 vectors, not twice 20, which are 4.
  const Index rows = x.q.rows, of_one_vector = rows > lanes && tiles(rows, lanes) % vectors != 0 ? lanes : 0;
  for_each_part(rows - of_one_vector, at_once, attend);
  if (of_one_vector > 0) attend(rows - of_one_vector, of_one_vector);
}

}  // namespace
}  // namespace headlane::internal::kernels
