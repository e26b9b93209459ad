// mask_bits, tables of relative biases, starts, offsets, and the operands of variable-length
// sequences between guard pages.
#include "support/attention_forms.hpp"
#include "support/guard.hpp"

#include <cstdlib>

namespace headlane::test {
namespace {

// Numbers of any type at either end of a page.
template <class T>
struct GuardedNumbers {
  GuardedBuffer buffer{4096};
  T* place(Index count, Index gap, Place where) {
    const auto bytes = count * static_cast<Index>(sizeof(T));
    const Index floats = (bytes + 3) / 4, even = sizeof(T) == 8 ? gap / 2 * 2 : gap;
    auto* first = reinterpret_cast<char*>(buffer.place(floats, even, where));
    return reinterpret_cast<T*>(where == Place::start ? first : first + 4 * floats - bytes);
  }
  T* place(const std::vector<T>& from, Index gap, Place where) {
    T* to = place(static_cast<Index>(from.size()), gap, where);
    std::copy(from.begin(), from.end(), to);
    return to;
  }
};

// One row of bits shared by all rows, for every number of keys; byte strides 1, 2 and -1.
TEST_CASE("attention's mask bits between guard pages") {
  Counts counts;
  GuardedNumbers<std::uint8_t> guarded;
  everywhere([&](Index length, Index gap, Place where) {
    const AttentionSizes s{.q_heads = 2,
                           .kv_heads = 1 + gap % 2,
                           .q_length = 1 + gap / 2,
                           .kv_length = length,
                           .head_dim = 8,
                           .value_dim = 16};
    Random random(static_cast<std::uint64_t>(length));
    const std::array<Index, 4> shape{1, 1, 1, length}, bytes = bytes_shape(shape);
    const Index step = std::array<Index, 3>{1, 2, -1}[static_cast<std::size_t>(gap % 3)];
    const Index span = bytes[3] == 0 ? 0 : (bytes[3] - 1) * std::abs(step) + 1;
    std::uint8_t* first = guarded.place(span, gap, where);
    const View<std::uint8_t, 4> bits(step < 0 ? first + span - 1 : first, bytes, {0, 0, 0, step});
    const Mask mask = random_mask(shape, random, 3);
    fill_bits(bits, mask.view, random);
    const AttentionTensors by_bits(s, 7), by_mask(s, 7);
    AttentionOptions options;
    if (length != 0) options.mask_bits = stretched<const std::uint8_t>(bits, bytes_shape(score_shape(s)));
    by_bits.run(options);
    by_mask.run(with_mask({}, stretched<const bool>(mask.view, score_shape(s))));
    counts.add(different_bits(by_bits.out.view, by_mask.out.view) == 0, true,
               text_of_case("mask bits", length, gap, where));
  });
  counts.finish("attention, mask bits");
}

// A row of bits for each query: the last byte is the last one of the page.
TEST_CASE("attention's mask bits of each row between guard pages") {
  Counts counts;
  GuardedNumbers<std::uint8_t> guarded;
  everywhere([&](Index length, Index gap, Place where) {
    if (length == 0 || length > 140) return;
    const AttentionSizes s{
        .q_heads = 2, .kv_heads = 1, .q_length = 3 + gap, .kv_length = length, .head_dim = 8, .value_dim = 16};
    Random random(static_cast<std::uint64_t>(length));
    const std::array<Index, 4> bytes = bytes_shape(score_shape(s));
    const View<std::uint8_t, 4> bits(guarded.place(bytes[1] * bytes[2] * bytes[3], gap, where), bytes);
    const Mask mask = random_mask(score_shape(s), random, 3);
    fill_bits(bits, mask.view, random);
    const AttentionTensors by_bits(s, 7), by_mask(s, 7);
    AttentionOptions options;
    options.mask_bits = bits;
    by_bits.run(options);
    by_mask.run(with_mask({}, mask.view));
    counts.add(different_bits(by_bits.out.view, by_mask.out.view) == 0, true,
               text_of_case("mask bits of each row", length, gap, where));
  });
  counts.finish("attention, mask bits of each row", 500);
}

TEST_CASE("attention's table of relative biases, offsets and starts between guard pages") {
  Counts counts;
  Guarded<2> table;
  GuardedNumbers<Index> query_starts, key_starts, offsets;
  everywhere([&](Index length, Index gap, Place where) {
    if (length < 4) return;
    const bool both = gap % 2 == 0;
    // Every number of buckets; three sequences, one of them without keys.
    const Index buckets = both ? length / 2 * 2 : length;
    const AttentionSizes s{
        .q_heads = 2, .kv_heads = 1, .q_length = 4 + gap, .kv_length = 40 + length, .head_dim = 8, .value_dim = 16};
    Random random(static_cast<std::uint64_t>(length));
    const Tensor<2> values = random_table(2, buckets, random, 9);
    table.place(values.view, layout_of(length, gap, 1), gap, where);
    const std::vector<Index> queries{0, 1, 3 + gap, 4 + gap}, keys{0, 0, length, length + 40}, at{3, length - 2, 30};
    const AttentionTensors guarded(s, 7), t(s, 7);
    AttentionOptions options;
    options.causal = gap % 4 < 2;
    options.relative_bias = {.table = values.view, .max_distance = buckets, .bidirectional = both};
    options.query_starts = {queries.data(), {4}};
    options.key_starts = {keys.data(), {4}};
    options.causal_offsets = {at.data(), {3}};
    t.run(options);
    options.relative_bias.table = table.view;
    options.query_starts.data = query_starts.place(queries, gap, where);
    options.key_starts.data = key_starts.place(keys, gap, where);
    options.causal_offsets.data = offsets.place(at, gap, where);
    guarded.run(options);
    counts.add(different_bits(guarded.out.view, t.out.view) == 0, true, text_of_case("table", length, gap, where));
  });
  counts.finish("attention, table and starts");
}

// The last sequence ends where the page does: no tile reads beyond it.
TEST_CASE("variable-length sequences between guard pages") {
  Counts counts;
  Guarded<4> q, k, v, out;
  Guarded<3> lse;
  everywhere([&](Index length, Index gap, Place where) {
    // One long sequence and one of three rows or keys; every other time one row each, as in
    // decoding.
    const bool decode = gap % 2 == 1;
    const std::vector<Index> queries = decode ? std::vector<Index>{0, 1, 2} : std::vector<Index>{0, 3, 3 + length % 40},
                             keys = gap % 4 < 2 ? std::vector<Index>{0, 3, 3 + length}
                                                : std::vector<Index>{0, length, length + 3};
    const AttentionSizes s{.q_heads = 2,
                           .kv_heads = gap % 3 == 0 ? 2 : 1,
                           .q_length = queries.back(),
                           .kv_length = keys.back(),
                           .head_dim = 8,
                           .value_dim = 16};
    const AttentionTensors t(s, static_cast<std::uint64_t>(length));
    q.place(t.q.view, layout_of(length, gap, 1), gap, where);
    k.place(t.k.view, layout_of(length, gap, 2), gap, where);
    v.place(t.v.view, layout_of(length, gap, 3), gap, where);
    out.place(t.out.view, layout_of(length, gap, 4), gap, where);
    lse.place(t.lse.view, layout_of(length, gap, 5), gap, where);
    AttentionOptions options;
    options.query_starts = {queries.data(), {3}};
    options.key_starts = {keys.data(), {3}};
    options.causal = gap % 8 < 4;
    options.causal_offset = length / 2;
    t.run(options);
    options.lse = lse.view;
    attention(q.view, k.view, v.view, out.view, options);
    const bool right = different_bits(out.view, t.out.view) == 0 && different_bits(lse.view, t.lse.view) == 0;
    counts.add(right, out.buffer.surroundings_untouched() && lse.buffer.surroundings_untouched(),
               text_of_case("variable-length", length, gap, where));
  });
  counts.finish("attention, variable-length");
}

}  // namespace
}  // namespace headlane::test
