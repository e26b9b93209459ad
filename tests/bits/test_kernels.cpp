// Each entry of the kernel table by itself, without the drivers.
#include "core/dispatch.hpp"
#include "kernels/table.hpp"
#include "support/tolerance.hpp"

#include <doctest/doctest.h>

namespace headlane::test {

using namespace internal;
namespace {

using namespace internal::kernels;

// A source that is as long as it says: dense, transposed, padded, inner stride 2, reversed.
const std::vector<Layout>& source_layouts() {
  static const std::vector<Layout> all{{},
                                       {"transposed", Order::columns},
                                       {.name = "padded", .padding = 3},
                                       {.name = "padded transposed", .order = Order::columns, .padding = 5},
                                       {.name = "inner stride 2", .step = 2},
                                       {.name = "reversed", .reversed = true},
                                       {.name = "reversed transposed", .order = Order::columns, .reversed = true}};
  return all;
}

Source source_of(const View<float, 2>& v) { return {v.data, v.size(0), v.size(1), v.stride(0), v.stride(1)}; }

Index round_up(Index n, Index to) { return (n + to - 1) / to * to; }

// Packed rows, aligned; what is not written stays a sentinel.
struct PackedRows {
  explicit PackedRows(const View<float, 2>& source, float scale = 1)
      : rows(source.size(0)), memory({std::max<Index>(rows, 1) * row_stride}) {
    active().pack_rows(source_of(source), scale, memory.view.data);
  }
  [[nodiscard]] float at(Index r, Index c) const { return memory.view.data[r * row_stride + c]; }
  Index rows;
  Tensor<1> memory;
};

struct PackedPanels {
  explicit PackedPanels(const View<float, 2>& source)
      : rows(source.size(0)), memory({std::max<Index>(rows * round_up(source.size(1), panel_columns), 1)}) {
    active().pack_panels(source_of(source), memory.view.data);
  }
  [[nodiscard]] float at(Index r, Index c) const {
    const Index width = panel_columns;
    return memory.view.data[c / width * width * rows + r * width + c % width];
  }
  [[nodiscard]] Index panel_step() const { return rows * panel_columns; }
  Index rows;
  Tensor<1> memory;
};

std::string where(const char* kernel, Index rows, Index columns, const Layout& layout) {
  return std::string(kernel) + " " + text_of(std::array<Index, 2>{rows, columns}) + ", " + layout.name + ", isa " +
         active().name;
}

TEST_CASE("the table's sizes fit together") {
  CHECK(active().tile_rows > 0);
  CHECK(row_stride >= block_size);
}

TEST_CASE("pack_rows: every element times scale, nothing outside the rows") {
  Random random(1);
  for (const Layout& layout : source_layouts()) {
    for (const Index rows : {1, 2, 3, 5, 12, 15, 16, 17, 33}) {
      for (const Index columns : {1, 2, 7, 15, 16, 17, 31, 33, 65, 511, 512}) {
        const Tensor<2> source = random_tensor<2>({rows, columns}, random, layout);
        const PackedRows packed(source.view, 0.7f);
        Index wrong = 0, stray = 0;
        for (Index r = 0; r < rows; ++r) {
          for (Index c = 0; c < columns; ++c) wrong += packed.at(r, c) == 0.7f * source.view(r, c) ? 0 : 1;
          // Up to the next multiple of 16 it may write what it likes.
          for (Index c = round_up(columns, lanes); c < row_stride; ++c) stray += is_sentinel(packed.at(r, c)) ? 0 : 1;
        }
        CHECK_MESSAGE(wrong == 0, where("pack_rows", rows, columns, layout));
        CHECK_MESSAGE(stray == 0, where("pack_rows", rows, columns, layout));
        CHECK_MESSAGE(packed.memory.surroundings_untouched(), where("pack_rows", rows, columns, layout));
      }
    }
  }
}

TEST_CASE("pack_panels: every element, zeros up to a multiple of 16 columns, nothing beyond") {
  Random random(2);
  for (const Layout& layout : source_layouts()) {
    for (const Index rows : {1, 2, 3, 7, 16, 17, 33, 64, 512}) {
      for (const Index columns : {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 100}) {
        const Tensor<2> source = random_tensor<2>({rows, columns}, random, layout);
        const PackedPanels packed(source.view);
        Index wrong = 0;
        for (Index r = 0; r < rows; ++r) {
          for (Index c = 0; c < round_up(columns, panel_columns); ++c) {
            const float beyond = c < round_up(columns, lanes) ? 0.0f : std::bit_cast<float>(sentinel_bits);
            const float expected = c < columns ? source.view(r, c) : beyond;
            wrong += bits_of(packed.at(r, c)) == bits_of(expected) ? 0 : 1;
          }
        }
        CHECK_MESSAGE(wrong == 0, where("pack_panels", rows, columns, layout));
        CHECK_MESSAGE(packed.memory.surroundings_untouched(), where("pack_panels", rows, columns, layout));
      }
    }
  }
}

void check_gemm_block(Index m, Index n, Index k, const GemmOptions& options, Index padding, std::uint64_t seed) {
  Random random(seed);
  const Tensor<2> a = random_tensor<2>({m, k}, random), b = random_tensor<2>({k, n}, random);
  const Tensor<2> c = random_tensor<2>({m, n}, random, {.name = "padded", .padding = padding, .misalignment = padding});
  if (options.beta == 0) for_each(c.view, [](float& x) { x = nan; });
  const GemmReference expected = gemm_reference(a.view, b.view, c.view, options);
  const PackedRows rows(a.view);
  const PackedPanels panels(b.view);
  const float* packed_rows = rows.memory.view.data;
  const float* packed_panels = panels.memory.view.data;
  active().gemm_block({.m = m,
                       .n = n,
                       .k = k,
                       .a = packed_rows,
                       .a_row_step = row_stride,
                       .b = packed_panels,
                       .b_row_step = panel_columns,
                       .b_panel_step = panels.panel_step(),
                       .keep = nullptr,
                       .c = c.view.data,
                       .c_row_step = c.view.stride(0),
                       .alpha = options.alpha,
                       .beta = options.beta,
                       .epilogue = nullptr});
  Comparison comparison("gemm_block", text_of(std::array<Index, 3>{m, n, k}), seed);
  std::size_t at = 0;
  for_each_position(c.view.shape, [&](const auto& p) {
    comparison.add({p[0], p[1]}, c.view(p[0], p[1]), expected.value[at], gemm_bound(k, expected.magnitude[at]));
    ++at;
  });
  comparison.finish();
  CHECK(c.surroundings_untouched());
}

TEST_CASE("gemm_block: every number of rows and columns around a tile") {
  const Index columns = 2 * panel_columns + 1;
  for (Index m = 1; m <= 2 * active().tile_rows + 1; ++m) check_gemm_block(m, columns, 9, {1.3f, 0.7f}, 3, 11);
  for (Index n = 1; n <= columns + lanes; ++n) check_gemm_block(active().tile_rows + 1, n, 7, {0.7f, 0}, 1, 12);
  for (const Index k : {1, 2, 3, 15, 64, 511, 512}) check_gemm_block(5, 33, k, {-1, 1.3f}, 0, 13);
}

TEST_CASE("copy_rows: every element, from any layout to any other, nothing else") {
  Random random(6);
  for (const Layout& from : source_layouts()) {
    for (const Layout& to : source_layouts()) {
      for (const Index rows : {1, 2, 3, 4, 7, 15, 16, 17, 33}) {
        for (const Index columns : {1, 2, 5, 15, 16, 17, 31, 32, 50}) {
          const Tensor<2> source = random_tensor<2>({rows, columns}, random, from), copied({rows, columns}, to);
          active().copy_rows(source_of(source.view), copied.view.data, copied.view.stride(0), copied.view.stride(1));
          CHECK_MESSAGE(different_bits(source.view, copied.view) == 0, where("copy_rows", rows, columns, from), " to ",
                        to.name);
          CHECK_MESSAGE(copied.surroundings_untouched(), where("copy_rows", rows, columns, from), " to ", to.name);
        }
      }
    }
  }
}

TEST_CASE("softmax_rows: one row, every length, in place and not") {
  for (const bool log : {false, true}) {
    for (const Index n : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 500, 1023, 5000}) {
      Random random(21);
      const Tensor<1> x = random_tensor<1>({n}, random, {.name = "misaligned", .misalignment = 5}), y({n});
      const SoftmaxOptions options{3.0f, log};
      const SoftmaxReference expected = softmax_reference(elements(x.view), options);
      active().softmax_rows({x.view.data, y.view.data, 0, 0, 1, n, options.scale, log});
      const auto kind = n == 1 ? Comparison::Kind::special : Comparison::Kind::data;
      Comparison comparison("softmax_rows", text_of(std::array<Index, 1>{n}), 21, kind);
      for (Index j = 0; j < n; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const double bound = log ? log_softmax_bound(n, expected.distance[at], expected.value[at])
                                 : softmax_bound(n, expected.distance[at], expected.value[at]);
        comparison.add({j}, y.view(j), expected.value[at], bound);
      }
      comparison.finish();
      CHECK(y.surroundings_untouched());
      active().softmax_rows({x.view.data, x.view.data, 0, 0, 1, n, options.scale, log});
      CHECK(different_bits(x.view, y.view) == 0);
      CHECK(x.surroundings_untouched());
    }
  }
}

TEST_CASE("softmax_rows: several rows have the bits of each alone, and only they are written") {
  for (const Index rows : {2, 3, 7}) {
    for (const Index n : {1, 15, 33, 64, 200}) {
      Random random(22);
      const Layout apart{.name = "apart", .padding = 5};
      const Tensor<2> x = random_tensor<2>({rows, n}, random, apart), y({rows, n}, apart), alone({1, n});
      active().softmax_rows({x.view.data, y.view.data, x.view.stride(0), y.view.stride(0), rows, n, 1.0f, false});
      CHECK(y.surroundings_untouched());
      for (Index i = 0; i < rows; ++i) {
        active().softmax_rows({&x.view(i, 0), alone.view.data, 0, 0, 1, n, 1.0f, false});
        CHECK(different_bits(y.view.slice(0, i, i + 1), alone.view) == 0);
      }
    }
  }
}

struct Strip {
  Index rows, keys, head_dim, value_dim;
  std::vector<Index> seen;  // per row; empty: all
};

// Runs a strip of queries against keys in blocks, as the driver does, and compares with the oracle.
void check_strip(const Strip& s, std::uint64_t seed) {
  Random random(seed);
  const Tensor<2> q = random_tensor<2>({s.rows, s.head_dim}, random),
                  k = random_tensor<2>({s.keys, s.head_dim}, random);
  const Tensor<2> v = random_tensor<2>({s.keys, s.value_dim}, random), out({s.rows, s.value_dim});
  const Tensor<1> lse({s.rows}), max({s.rows}), sum({s.rows}), scores({max_tile_rows * row_stride});
  const Index out_step = round_up(s.value_dim, panel_columns);
  const Tensor<1> state_out({s.rows * out_step});
  const AttentionState state{state_out.view.data, out_step, max.view.data, sum.view.data};
  const PackedRows rows(q.view, 0.5f);
  for (Index first = 0; first < s.keys; first += block_size) {
    const Index count = std::min(block_size, s.keys - first);
    const PackedPanels keys(k.view.slice(0, first, first + count).transposed());
    const PackedPanels values(v.view.slice(0, first, first + count));
    std::vector<Index> seen(static_cast<std::size_t>(s.rows), count);
    for (std::size_t i = 0; i < s.seen.size(); ++i) seen[i] = std::clamp<Index>(s.seen[i] - first, 0, count);
    const std::vector<Index> hidden(static_cast<std::size_t>(s.rows), 0);
    const float *const k_page = keys.memory.view.data, *const v_page = values.memory.view.data;
    AttentionBlock block{};
    block.rows = s.rows;
    block.head_dim = s.head_dim;
    block.value_dim = s.value_dim;
    block.q = rows.memory.view.data;
    block.keys = {.page = block_size,
                  .k = &k_page,
                  .k_row_step = 0,
                  .transposed = nullptr,
                  .v = &v_page,
                  .v_row_step = panel_columns,
                  .v_panel_step = values.panel_step()};
    block.key_begin = hidden.data();
    block.key_end = seen.data();
    block.uniform = s.seen.empty();
    block.scores = scores.view.data;
    block.is_first = first == 0;
    block.state = state;
    active().attention_block(block);
  }
  AttentionOutput output{};
  output.rows = s.rows;
  output.value_dim = s.value_dim;
  output.out = out.view.data;
  output.row_step = out.view.stride(0);
  output.column_step = output.lse_step = 1;
  output.lse = lse.view.data;
  active().attention_finish(state, output);

  Comparison comparison("attention_block", text_of(std::array<Index, 4>{s.rows, s.keys, s.head_dim, s.value_dim}),
                        seed);
  for (Index i = 0; i < s.rows; ++i) {
    const Index seen = s.seen.empty() ? s.keys : s.seen[static_cast<std::size_t>(i)];
    const auto view = [&](const Tensor<2>& t, Index begin, Index end) {
      const View<float, 2> part = t.view.slice(0, begin, end);
      return View<const float, 4>(part.data, {1, 1, part.size(0), part.size(1)});
    };
    AttentionOptions options;
    options.scale = 0.5f;
    const AttentionReference expected =
        attention_reference(view(q, i, i + 1), view(k, 0, seen), view(v, 0, seen), options);
    const double relative = attention_relative_bound(s.head_dim, s.keys, expected.max_sum[0], expected.max_score[0]);
    for (Index d = 0; d < s.value_dim; ++d) {
      const auto at = static_cast<std::size_t>(d);
      comparison.add({i, d}, out.view(i, d), expected.out[at], relative * expected.weighted[at]);
    }
    const double bound = lse_bound(s.head_dim, s.keys, expected.max_sum[0], expected.max_score[0], expected.lse[0]);
    comparison.add({i, -1}, lse.view(i), expected.lse[0], seen == 0 ? 0 : bound);
  }
  comparison.finish();
  CHECK(out.surroundings_untouched());
  CHECK(lse.surroundings_untouched());
  CHECK(state_out.surroundings_untouched());
}

TEST_CASE("attention_block and attention_finish: rows, keys, dims, and what each row sees") {
  const Index strip = 2 * active().tile_rows + 1;
  for (Index rows = 1; rows <= strip; ++rows) check_strip({rows, 40, 16, 18, {}}, 31);
  for (const Index keys : {1, 2, 15, 16, 17, 31, 33, 65, 127, 511, 512, 513, 1100}) {
    check_strip({strip, keys, 24, 32, {}}, 32);
    std::vector<Index> seen;
    for (Index i = 0; i < strip; ++i) seen.push_back((i + 1) * keys / strip);
    check_strip({strip, keys, 24, 17, seen}, 33);
  }
  for (const Index dim : {1, 7, 16, 17, 33, 64, 65, 129, 256}) {
    check_strip({strip, 37, dim, 20, {}}, 34);
    check_strip({strip, 37, 12, dim, {}}, 35);
  }
}

}  // namespace
}  // namespace headlane::test
