// Each entry of the kernel table by itself, without the drivers; attention's are in
// test_attention_kernels.cpp.
#include "bits/packed.hpp"
#include "support/softmax_case.hpp"

#include <doctest/doctest.h>

namespace headlane::test {

using namespace internal;
namespace {

using namespace internal::kernels;

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

std::string where(const char* kernel, Index rows, Index columns, const Layout& layout) {
  return std::string(kernel) + " " + text_of(std::array<Index, 2>{rows, columns}) + ", " + layout.name + ", isa " +
         active().name;
}

TEST_CASE("the table's sizes fit together") {
  CHECK(active().tile_rows > 0);
  CHECK(packed_row_stride >= block_size);
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
          for (Index c = round_up(columns, lanes); c < packed_row_stride; ++c)
            stray += is_sentinel(packed.at(r, c)) ? 0 : 1;
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

struct BlockCase {
  Index m, n, k;
  GemmOptions options;
  Index padding;  ///< of the rows of c, which also begin that far from a cache line
  std::uint64_t seed;
};

// How the kernel finds b.
enum class Right { panels, prefetched_panels, columns };

void check_gemm_block(const BlockCase& s, Right right) {
  const auto& [m, n, k, options, padding, seed] = s;
  Random random(seed);
  const bool by_columns = right == Right::columns;
  const Layout transposed{.name = "transposed", .order = Order::columns};
  const Tensor<2> a = random_tensor<2>({m, k}, random),
                  b = random_tensor<2>({k, n}, random, by_columns ? transposed : Layout{});
  const Tensor<2> c = random_tensor<2>({m, n}, random, {.name = "padded", .padding = padding, .misalignment = padding});
  if (options.beta == 0) for_each(c.view, [](float& x) { x = nan; });
  const GemmReference expected = gemm_reference(a.view, b.view, c.view, options);
  const PackedRows rows(a.view);
  const PackedPanels panels(b.view);
  const float* packed_rows = rows.memory.view.data;
  active().gemm_block({.m = m,
                       .n = n,
                       .k = k,
                       .a = packed_rows,
                       .a_row_step = packed_row_stride,
                       .ahead = packed_rows,
                       .ahead_row_step = packed_row_stride,
                       .ahead_rows = m,
                       .b = by_columns ? b.view.data : panels.memory.view.data,
                       .b_type = DType::float32,
                       .b_scales = nullptr,
                       .b_sums = nullptr,
                       .b_row_step = by_columns ? 1 : panel_columns,
                       .b_panel_step = by_columns ? panel_columns * b.view.stride(1) : panels.panel_step(),
                       .b_column_step = by_columns ? b.view.stride(1) : 0,
                       .prefetches = right == Right::prefetched_panels,
                       .quantised = nullptr,
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

void check_gemm_block(const BlockCase& s) {
  check_gemm_block(s, Right::panels);
  if (s.m < 2 * kernels::strip_rows) check_gemm_block(s, Right::prefetched_panels);
  if (s.m <= active().rows_by_columns) check_gemm_block(s, Right::columns);
}

TEST_CASE("gemm_block: every number of rows and columns around a tile") {
  const Index columns = 2 * panel_columns + 1;
  for (Index m = 1; m <= 2 * active().tile_rows + 1; ++m)
    check_gemm_block(
        {.m = m, .n = columns, .k = 9, .options = {.alpha = 1.3f, .beta = 0.7f}, .padding = 3, .seed = 11});
  for (Index n = 1; n <= columns + lanes; ++n)
    for (const Index m : {Index{3}, active().tile_rows + 1})
      check_gemm_block({.m = m, .n = n, .k = 7, .options = {.alpha = 0.7f}, .padding = 1, .seed = 12});
  for (const Index k : {1, 2, 3, 15, 64, 127, 128, 129, 256, 257, 511, 512})
    for (const Index m : {2, 5})
      check_gemm_block({.m = m, .n = 33, .k = k, .options = {.alpha = -1, .beta = 1.3f}, .padding = 0, .seed = 13});
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

void softmax_rows(const View<const float, 2>& x, const View<float, 2>& y, const SoftmaxOptions& options = {}) {
  active().softmax_rows({.x = x.data,
                         .y = y.data,
                         .x_step = x.stride(0),
                         .y_step = y.stride(0),
                         .rows = x.size(0),
                         .n = x.size(1),
                         .scale = options.scale,
                         .log = options.log});
}

TEST_CASE("softmax_rows: one row, every length, in place and not") {
  for (const bool log : {false, true}) {
    for (const Index n : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 500, 1023, 5000}) {
      Random random(21);
      const Tensor<2> x = random_tensor<2>({1, n}, random, {.name = "misaligned", .misalignment = 5}), y({1, n});
      const SoftmaxOptions options{.scale = 3, .log = log};
      const auto kind = n == 1 ? Comparison::Kind::special : Comparison::Kind::data;
      check_rows(
          Comparison("softmax_rows", text_of(x.view.shape), 21, kind), elements(x.view), x, y,
          [&](const View<float, 2>& from, const View<float, 2>& to) { softmax_rows(from, to, options); },
          expected_softmax(options));
    }
  }
}

TEST_CASE("softmax_rows: several rows have the bits of each alone, and only they are written") {
  for (const Index rows : {2, 3, 7}) {
    for (const Index n : {1, 15, 33, 64, 200}) {
      Random random(22);
      const Layout apart{.name = "apart", .padding = 5};
      const Tensor<2> x = random_tensor<2>({rows, n}, random, apart), y({rows, n}, apart), alone({1, n});
      softmax_rows(x.view, y.view);
      CHECK(y.surroundings_untouched());
      for (Index i = 0; i < rows; ++i) {
        softmax_rows(x.view.slice(0, i, i + 1), alone.view);
        CHECK(different_bits(y.view.slice(0, i, i + 1), alone.view) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace headlane::test
