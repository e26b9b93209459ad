// attention_block and attention_finish of the kernel table, without the driver.
#include "bits/packed.hpp"
#include "support/reference_attention.hpp"
#include "support/tolerance.hpp"

#include <doctest/doctest.h>

#include <utility>

namespace headlane::test {
namespace {

struct Strip {
  Index rows, keys, head_dim, value_dim;
  std::vector<Index> visible = {};  ///< number of keys visible to each row; empty: all
};

// Computes a strip of queries over keys in blocks, as the driver does.
struct StripCall {
  StripCall(Strip s_, std::uint64_t seed_) : s(std::move(s_)), seed(seed_) { run(); }

  void run() const {
    const AttentionState state{state_out.view.data, out_step, max.view.data, sum.view.data};
    const PackedRows rows(q.view, 0.5f);
    for (Index first = 0; first < s.keys; first += block_size) {
      const Index count = std::min(block_size, s.keys - first);
      const PackedPanels keys(k.view.slice(0, first, first + count).transposed());
      const PackedPanels values(v.view.slice(0, first, first + count));
      std::vector<Index> ends(static_cast<std::size_t>(s.rows), count);
      for (std::size_t i = 0; i < s.visible.size(); ++i) ends[i] = std::clamp<Index>(s.visible[i] - first, 0, count);
      const std::vector<Index> begins(static_cast<std::size_t>(s.rows), 0);
      const void *const k_page = keys.memory.view.data, *const v_page = values.memory.view.data;
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
      block.key_begin = begins.data();
      block.key_end = ends.data();
      block.uniform = s.visible.empty();
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
  }

  void compare_with_oracle() const {
    Comparison comparison("attention_block", text_of(std::array<Index, 4>{s.rows, s.keys, s.head_dim, s.value_dim}),
                          seed);
    for (Index i = 0; i < s.rows; ++i) {
      const Index visible = s.visible.empty() ? s.keys : s.visible[static_cast<std::size_t>(i)];
      const auto view = [&](const Tensor<2>& t, Index begin, Index end) {
        const View<float, 2> part = t.view.slice(0, begin, end);
        return View<const float, 4>(part.data, {1, 1, part.size(0), part.size(1)});
      };
      AttentionOptions options;
      options.scale = 0.5f;
      const AttentionReference expected =
          attention_reference(view(q, i, i + 1), view(k, 0, visible), view(v, 0, visible), options);
      const double relative =
          attention_relative_bound(s.head_dim, s.keys, expected.rows[0].max_sum, expected.rows[0].max_score);
      for (Index d = 0; d < s.value_dim; ++d) {
        const auto at = static_cast<std::size_t>(d);
        comparison.add({i, d}, out.view(i, d), expected.out[at], relative * expected.weighted[at]);
      }
      const double bound =
          lse_bound(s.head_dim, s.keys, expected.rows[0].max_sum, expected.rows[0].max_score, expected.rows[0].lse);
      comparison.add({i, -1}, lse.view(i), expected.rows[0].lse, visible == 0 ? 0 : bound);
    }
    comparison.finish();
    CHECK(out.surroundings_untouched());
    CHECK(lse.surroundings_untouched());
    CHECK(state_out.surroundings_untouched());
  }

  Strip s;
  std::uint64_t seed;
  Random random{seed};
  Tensor<2> q = random_tensor<2>({s.rows, s.head_dim}, random), k = random_tensor<2>({s.keys, s.head_dim}, random),
            v = random_tensor<2>({s.keys, s.value_dim}, random), out{{s.rows, s.value_dim}};
  Tensor<1> lse{{s.rows}}, max{{s.rows}}, sum{{s.rows}}, scores{{max_tile_rows * packed_row_stride}};
  Index out_step = round_up(s.value_dim, panel_columns);
  Tensor<1> state_out{{s.rows * out_step}};
};

void check_strip(const Strip& s, std::uint64_t seed) { StripCall(s, seed).compare_with_oracle(); }

TEST_CASE("attention_block and attention_finish: rows, keys, dims, and the keys visible to each row") {
  const Index strip = 2 * active().tile_rows + 1;
  for (Index rows = 1; rows <= strip; ++rows)
    check_strip({.rows = rows, .keys = 40, .head_dim = 16, .value_dim = 18}, 31);
  for (const Index keys : {1, 2, 15, 16, 17, 31, 33, 65, 127, 511, 512, 513, 1100}) {
    check_strip({.rows = strip, .keys = keys, .head_dim = 24, .value_dim = 32}, 32);
    std::vector<Index> visible;
    for (Index i = 0; i < strip; ++i) visible.push_back((i + 1) * keys / strip);
    check_strip({.rows = strip, .keys = keys, .head_dim = 24, .value_dim = 17, .visible = visible}, 33);
  }
  for (const Index dim : {1, 7, 16, 17, 33, 64, 65, 129, 256}) {
    check_strip({.rows = strip, .keys = 37, .head_dim = dim, .value_dim = 20}, 34);
    check_strip({.rows = strip, .keys = 37, .head_dim = 12, .value_dim = dim}, 35);
  }
}

}  // namespace
}  // namespace headlane::test
