// mask_bits, relative_bias and causal_offsets against equivalent calls without them, bit by bit.
#include "support/attention_forms.hpp"
#include "support/bit_comparison.hpp"
#include "support/reference_attention.hpp"

namespace headlane::test {
namespace {

constexpr std::uint64_t seed = 17;

// Forms with several numbers of threads; `f(form, options, text)`.
template <class F>
void for_each_form(F f) {
  for (const Form& form : forms()) {
    for (const int threads : {1, 3}) {
      AttentionOptions options;
      options.num_threads = threads;
      f(form, options,
        form.name + std::string(", ") + text_of(form.sizes, options) + ", threads " + std::to_string(threads));
    }
  }
}

// Random, with rows to which no key is visible, only one, none of the first block, none of the last
// keys, or all.
Mask uneven_mask(const std::array<Index, 4>& shape, Random& random) {
  Mask mask = random_mask(shape, random, 3);
  for_each_position(shape, [&](const auto& p) {
    bool& visible = mask.view(p[0], p[1], p[2], p[3]);
    const Index kind = (p[0] + 2 * p[1] + p[2]) % 7;
    if (kind == 0) visible = false;
    if (kind == 1) visible = p[3] == shape[3] - 1;
    if (kind == 2) visible = visible && p[3] >= 515;
    if (kind == 3) visible = visible && p[3] < shape[3] - 21;
    if (kind == 4) visible = true;
  });
  return mask;
}

TEST_CASE("attention: mask_bits are bit-identical to an equivalent mask") {
  const ExpectComparisons expected(std::ssize(forms()) * 2 * 6 * (slow_isa() ? 1 : 4) * 2);
  for_each_form([](const Form& form, AttentionOptions options, const std::string& text) {
    Random random(seed);
    const AttentionSizes& s = form.sizes;
    const FormTensors by_mask(form, s, seed), by_bits(form, s, seed);
    for (const unsigned broadcast : {0u, 1u, 2u, 4u, 7u, 8u}) {
      const Mask mask = uneven_mask(score_shape(s, broadcast), random);
      const View<const bool, 4> flags = stretched<const bool>(mask.view, score_shape(s));
      options.mask_bits = {};
      options.mask = flags;
      by_mask.run(options);
      for (const Layout& layout : {layouts()[0], layouts()[1], layouts()[4], layouts()[5]}) {
        // Broadcast along keys: all bits of the byte are equal.
        const MaskBits bits(bytes_shape(score_shape(s, broadcast)), layout);
        if (broadcast == 8) {
          for_each_position(bits.view.shape, [&](const auto& p) {
            bits.view(p[0], p[1], p[2], 0) = mask.view(p[0], p[1], p[2], 0) ? 255 : 0;
          });
        } else {
          fill_bits(bits.view, mask.view, random);
        }
        options.mask = {};
        options.mask_bits = stretched<const std::uint8_t>(bits.view, bytes_shape(score_shape(s)));
        by_bits.run(options);
        check_bits(by_bits, by_mask, text + ", broadcast " + std::to_string(broadcast) + ", " + layout.name, seed);
        if (slow_isa()) break;
      }
    }
  });
}

struct Relative {
  Index buckets, max_distance;
  bool bidirectional;
};

TEST_CASE("attention: a relative bias is bit-identical to an equivalent bias") {
  const ExpectComparisons expected(std::ssize(forms()) * 2 * (slow_isa() ? 2 : 7) * 4 * 2);
  for_each_form([](const Form& form, AttentionOptions options, const std::string& text) {
    Random random(seed);
    const AttentionSizes& s = form.sizes;
    const FormTensors by_bias(form, s, seed), by_table(form, s, seed);
    int number = 0;
    for (const Relative& r :
         {Relative{.buckets = 32, .max_distance = 128, .bidirectional = true},
          {.buckets = 32, .max_distance = 128, .bidirectional = false},
          {.buckets = 6, .max_distance = 700, .bidirectional = true},
          {.buckets = 3, .max_distance = 50, .bidirectional = false},
          {.buckets = 64, .max_distance = 17, .bidirectional = true},
          {.buckets = 2, .max_distance = 1200, .bidirectional = false},
          {.buckets = 32, .max_distance = std::numeric_limits<Index>::max(), .bidirectional = true}}) {
      if (slow_isa() && number > 1) break;
      options.causal = ++number % 2 == 0;
      const Layout layout = layouts()[static_cast<std::size_t>(number)];
      const Tensor<2> table = random_table(s.q_heads, r.buckets, random, 6, layout);
      // The first query among the keys, before them, far behind them, and before the first key.
      for (const Index offset : {s.kv_length - s.q_length, Index{0}, s.kv_length + 300, Index{-7}}) {
        options.causal_offset = offset;
        const Tensor<4> bias(score_shape(s, 1));
        for_each_position(bias.view.shape, [&](const auto& p) {
          const Index distance = p[3] - p[2] - offset;
          bias.view(0, p[1], p[2], p[3]) =
              table.view(p[1], t5_reference(distance, r.buckets, r.max_distance, r.bidirectional));
        });
        options.relative_bias = {};
        options.bias = stretched<const float>(bias.view, score_shape(s));
        by_bias.run(options);
        options.bias = {};
        options.relative_bias = {.table = table.view, .max_distance = r.max_distance, .bidirectional = r.bidirectional};
        by_table.run(options);
        check_bits(by_table, by_bias, text + ", " + text_of(s, options), seed);
      }
    }
  });
}

TEST_CASE("attention: causal_offsets are bit-identical to a call for each batch element") {
  for_each_form([](const Form& form, AttentionOptions options, const std::string& text) {
    Random random(seed);
    AttentionSizes s = form.sizes;
    s.batch = 3;
    const std::vector<Index> offsets{s.kv_length - s.q_length, 5, -s.q_length - 1};
    const Tensor<2> table = random_table(s.q_heads, 32, random, 9);
    const Tensor<1> slopes = random_tensor<1>({s.q_heads}, random);
    const FormTensors together(form, s, seed), alone(form, s, seed);
    for (const int kind : {0, 1, 2, 3}) {
      options.causal = kind < 2;
      options.relative_bias.table = kind == 1 ? table.view : View<const float, 2>{};
      options.alibi_slopes = kind == 2 ? slopes.view : View<const float, 1>{};
      options.window_left = kind == 3 ? 40 : -1;
      options.window_right = kind == 3 ? 13 : -1;
      options.causal_offset = 12345;  // not used
      for (const bool backwards : {false, true}) {
        options.causal_offsets = {offsets.data() + (backwards ? 2 : 0), {3}, {backwards ? -1 : 1}};
        together.run(options);
        for (Index b = 0; b < 3; ++b) {
          AttentionOptions one = options;
          one.causal_offsets = {};
          one.causal_offset = options.causal_offsets(b);
          one.lse = alone.lse.view.slice(0, b, b + 1);
          attention(alone.q.view.slice(0, b, b + 1), alone.k.view.slice(0, b, b + 1), alone.v.view.slice(0, b, b + 1),
                    alone.out.view.slice(0, b, b + 1), one);
        }
        check_bits(together, alone, text + ", kind " + std::to_string(kind), seed);
      }
    }
    // One broadcast offset; and extreme ones, with no key visible or all.
    options = {};
    options.causal = true;
    options.causal_offset = 7;
    alone.run(options);
    options.causal_offset = 0;
    const Index seven = 7, least = std::numeric_limits<Index>::min(), most = std::numeric_limits<Index>::max();
    options.causal_offsets = {&seven, {3}, {0}};
    together.run(options);
    check_bits(together, alone, text + ", broadcast offset", seed);
    options.causal_offsets = {&least, {3}, {0}};
    together.run(options);
    for_each(together.lse.view, [](float x) { CHECK(x == -infinity); });
    options.causal_offsets = {&most, {3}, {0}};
    together.run(options);
    alone.run();
    check_bits(together, alone, text + ", offset beyond all", seed);
  });
}

TEST_CASE("attention: a row by itself, whose keys are prefetched, has the bits of many rows") {
  const std::array<Index, 4> rows{1, 5, 13, 64}, keys{1, 5, 2100, 64};  // 5 MiB
  Random random(seed);
  const Tensor<4> q = random_tensor<4>(rows, random), k = random_tensor<4>(keys, random),
                  v = random_tensor<4>(keys, random), many = random_tensor<4>(rows, random),
                  one = random_tensor<4>(rows, random);
  BitComparison bits;
  for (const Index length : {511, 1024, 1025, 2100}) {
    const View<float, 4> of_k = k.view.slice(2, 0, length), of_v = v.view.slice(2, 0, length);
    attention(q.view, of_k, of_v, many.view);
    for (const int threads : {1, 3}) {
      for (const Index row : {0, 7, 12})
        attention(q.view.slice(2, row, row + 1), of_k, of_v, one.view.slice(2, row, row + 1), {.num_threads = threads});
      for (const Index row : {0, 7, 12})
        bits.add(one.view.slice(2, row, row + 1), many.view.slice(2, row, row + 1),
                 "row " + std::to_string(row) + " of " + std::to_string(length) + " keys");
    }
  }
  bits.finish("rows by themselves", 24);
}

TEST_CASE("attention: query heads of a group, whose keys are prefetched, have the bits of each alone") {
  const std::array<Index, 4> keys{1, 2, 2100, 128};  // 4 MiB
  Random random(seed);
  const Tensor<4> k = random_tensor<4>(keys, random), v = random_tensor<4>(keys, random);
  BitComparison bits;
  for (const Index group : {2, 3, 4, 5, 6, 7, 8, 9, 12, 16}) {
    const std::array<Index, 4> heads{1, 2 * group, 1, 128};
    const Tensor<4> q = random_tensor<4>(heads, random), together = random_tensor<4>(heads, random);
    const Tensor<4> alone = random_tensor<4>({1, 1, 1, 128}, random);
    for (const AttentionOptions& options : {AttentionOptions{}, AttentionOptions{.softcap = 2, .num_threads = 2}}) {
      attention(q.view, k.view, v.view, together.view, options);
      for (const Index head : {Index{0}, group - 1, group}) {
        const Index of = head / group;
        attention(q.view.slice(1, head, head + 1), k.view.slice(1, of, of + 1), v.view.slice(1, of, of + 1), alone.view,
                  options);
        bits.add(together.view.slice(1, head, head + 1), alone.view,
                 "head " + std::to_string(head) + " of groups of " + std::to_string(group));
      }
    }
  }
  bits.finish("heads of a group", 60);
}

TEST_CASE("enough was compared") {
  MESSAGE(comparisons_by_bits(), " comparisons by bits");
  CHECK(comparisons_by_bits() > (slow_isa() ? 700 : 3000));
}

}  // namespace
}  // namespace headlane::test
