// attention: windows. NaN outside a row's window does not reach it, at either end of a tile;
// unbounded windows; windows that show only the first or the last key of a block.
#include "support/attention_case.hpp"
#include "support/mask_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace headlane::test {
namespace {

constexpr Index rows = 21;

struct Window {
  Index left, right, offset;
  [[nodiscard]] AttentionOptions options() const {
    AttentionOptions o;
    o.causal_offset = offset;
    o.window_left = left;
    o.window_right = right;
    return o;
  }
  [[nodiscard]] bool is_visible(Index row, Index key) const {
    const Index distance = key - row - offset;
    return (left < 0 || distance >= -left) && (right < 0 || distance <= right);
  }
};

TEST_CASE("attention: a NaN in a key or value reaches only the rows whose window contains it") {
  Index reached = 0, spared = 0;
  for (const Index kv_length : {40, 530, 1100})
    for (const Window& window : {Window{.left = 0, .right = -1, .offset = 5},
                                 {.left = 3, .right = -1, .offset = 9},
                                 {.left = 30, .right = -1, .offset = kv_length - 25},
                                 {.left = -1, .right = 0, .offset = 2},
                                 {.left = -1, .right = 7, .offset = kv_length - 30},
                                 {.left = 2, .right = 0, .offset = kv_length - 24},
                                 {.left = 5, .right = 5, .offset = kv_length - 20},
                                 {.left = -1, .right = -1, .offset = 0},
                                 {.left = 0, .right = -1, .offset = kv_length - 30}})
      for (const Index bad : {Index{0}, Index{5}, Index{17}, kv_length - 19, kv_length - 2})
        for (const bool in_keys : {false, true}) {
          const AttentionTensors clean(
              {.q_heads = 2, .kv_heads = 1, .q_length = rows, .kv_length = kv_length, .head_dim = 20, .value_dim = 24},
              1),
              dirty({.q_heads = 2,
                     .kv_heads = 1,
                     .q_length = rows,
                     .kv_length = kv_length,
                     .head_dim = 20,
                     .value_dim = 24},
                    1);
          clean.run(window.options());
          (in_keys ? dirty.k : dirty.v).view(0, 0, bad, 3) = nan;
          dirty.run(window.options());
          Index wrong = 0;
          for_each_position(dirty.out.view.shape, [&](const auto& p) {
            const float x = dirty.out.view(0, p[1], p[2], p[3]), y = clean.out.view(0, p[1], p[2], p[3]);
            const bool reaches_it = window.is_visible(p[2], bad) && (in_keys || p[3] == 3);
            ++(reaches_it ? reached : spared);
            wrong += (reaches_it ? std::isnan(x) : bits_of(x) == bits_of(y)) ? 0 : 1;
          });
          CHECK_MESSAGE(wrong == 0, "isa ", isa(), ", keys ", kv_length, ", window ", window.left, "/", window.right,
                        " at ", window.offset, ", bad ", bad, in_keys ? " key" : " value");
        }
  CHECK(reached > 1000);
  CHECK(spared > 1000);
}

TEST_CASE("attention: the widest windows are unbounded") {
  constexpr Index most = std::numeric_limits<Index>::max(), least = std::numeric_limits<Index>::min();
  Index compared = 0;
  for (const Index offset :
       {Index{0}, Index{7}, Index{-7}, Index{-600}, Index{1} << 40, -(Index{1} << 40), most, least}) {
    for (const Index wide :
         {Index{1} << 41, (Index{1} << 42) - 1, Index{1} << 42, (Index{1} << 42) + 1, Index{1} << 62, most - 1, most})
      for (const bool right : {false, true}) {
        const AttentionTensors bounded({.q_length = rows, .kv_length = 600, .head_dim = 20, .value_dim = 24}, 2),
            unbounded({.q_length = rows, .kv_length = 600, .head_dim = 20, .value_dim = 24}, 2);
        AttentionOptions options;
        options.causal_offset = offset;
        unbounded.run(options);
        (right ? options.window_right : options.window_left) = wide;
        bounded.run(options);
        CHECK_MESSAGE(different_bits(bounded.out.view, unbounded.out.view) == 0, "isa ", isa(), ", offset ", offset,
                      ", ", wide);
        CHECK(different_bits(bounded.lse.view, unbounded.lse.view) == 0);
        ++compared;
      }
  }
  CHECK(compared == 8 * 7 * 2);
}

// Keys are packed in blocks of 512. Another call between the two overwrites the packed keys.
TEST_CASE("attention: windows that begin or end at a block of keys") {
  Index compared = 0;
  for (const int threads : {1, 3})
    for (const Index edge : {Index{0}, Index{1}, Index{31}, Index{32}, Index{510}, Index{511}, Index{512}, Index{513},
                             Index{1023}, Index{1024}})
      for (const bool right : {false, true})
        for (const Index width : {0, 1, 40}) {
          const AttentionSizes s{.q_heads = 2, .q_length = rows, .kv_length = 1100, .head_dim = 20, .value_dim = 24};
          const AttentionTensors by_window(s, 3), by_mask(s, 3), other(s, 4);
          // The first row begins, or the last one ends, at the edge.
          Window w{width, -1, edge + width};
          if (right) w = {-1, width, edge - width - rows + 1};
          const Mask mask({1, 1, rows, 1100});
          for_each_position(mask.view.shape,
                            [&](const auto& p) { mask.view(0, 0, p[2], p[3]) = w.is_visible(p[2], p[3]); });
          AttentionOptions options;
          options.num_threads = threads;
          options.mask = {mask.view.data, {1, 2, rows, 1100}, {0, 0, mask.view.strides[2], mask.view.strides[3]}};
          by_mask.run(options);
          other.run();
          options = w.options();
          options.num_threads = threads;
          by_window.run(options);
          CHECK_MESSAGE(different_bits(by_window.out.view, by_mask.out.view) == 0, "isa ", isa(), ", edge ", edge,
                        right ? ", end" : ", begin", ", width ", width, ", threads ", threads);
          CHECK(different_bits(by_window.lse.view, by_mask.lse.view) == 0);
          ++compared;
        }
  CHECK(compared == 2 * 10 * 2 * 3);
}

}  // namespace
}  // namespace headlane::test
