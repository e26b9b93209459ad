#include "support/attention_options.hpp"

#include <algorithm>
#include <cmath>

namespace headlane::test {

std::array<Index, 4> bytes_shape(std::array<Index, 4> scores) {
  scores[3] = (scores[3] + 7) / 8;
  return scores;
}

void fill_bits(const View<std::uint8_t, 4>& bits, const View<const bool, 4>& mask, Random& random) {
  for_each_position(bits.shape, [&](const auto& p) {
    unsigned byte = static_cast<unsigned>(random.integer(0, 255));
    for (Index j = 8 * p[3]; j < std::min(8 * p[3] + 8, mask.size(3)); ++j) {
      const unsigned bit = 1u << (j - 8 * p[3]);
      byte = mask(p[0], p[1], p[2], j) ? byte | bit : byte & ~bit;
    }
    bits(p[0], p[1], p[2], p[3]) = static_cast<std::uint8_t>(byte);
  });
}

Tensor<2> random_table(Index heads, Index buckets, Random& random, Index one_in, const Layout& layout) {
  Tensor<2> table({heads, buckets}, layout);
  for_each(table.view, [&](float& b) { b = random.integer(1, one_in) == 1 ? -infinity : random.normal(); });
  return table;
}

std::vector<Index> random_starts(Index sequences, Index length, Random& random) {
  std::vector<Index> starts;
  for (Index i = 0; i <= sequences; ++i) starts.push_back(random.integer(0, length));
  for (std::size_t i = 1; i < starts.size(); ++i)
    if (random.integer(0, 4) == 0) starts[i] = starts[i - 1];
  if (random.integer(0, 1) == 0) starts.front() = 0;
  if (random.integer(0, 1) == 0) starts.back() = length;
  std::sort(starts.begin(), starts.end());
  return starts;
}

Index longest_of(const std::vector<Index>& starts) {
  Index longest = 0;
  for (std::size_t i = 1; i < starts.size(); ++i) longest = std::max(longest, starts[i] - starts[i - 1]);
  return longest;
}

AttentionOptions RandomOptions::draw(Random& random, const Draw& how) {
  const auto maybe = [&] { return random.integer(1, how.one_in) == 1; };
  AttentionOptions o;
  if (maybe()) o.scale = 0.3f;
  if (maybe()) o.softcap = 0.5f + static_cast<float>(random.integer(0, 20));
  o.causal = maybe();
  if (maybe()) o.causal_offset = random.integer(-sizes_.q_length - 2, sizes_.kv_length + 2);
  if (maybe()) o.window_left = random.integer(0, sizes_.kv_length);
  if (maybe()) o.window_right = random.integer(0, sizes_.kv_length);
  if (how.sequences >= 0) draw_starts(o, random, how.sequences);
  draw_lengths(o, random, how);
  draw_masks(o, random, how.one_in);
  draw_biases(o, random, how.one_in);
  o.num_threads = static_cast<int>(random.integer(0, 5));
  return o;
}

void RandomOptions::draw_starts(AttentionOptions& o, Random& random, Index sequences) {
  query_starts_ = random_starts(sequences, sizes_.q_length, random);
  key_starts_ = random_starts(sequences, sizes_.kv_length, random);
  o.query_starts = {query_starts_.data(), {sequences + 1}};
  o.key_starts = {key_starts_.data(), {sequences + 1}};
}

void RandomOptions::draw_lengths(AttentionOptions& o, Random& random, const Draw& how) {
  const auto maybe = [&] { return random.integer(1, how.one_in) == 1; };
  const auto length = [](const std::vector<Index>& starts, std::size_t i, Index otherwise) {
    return starts.empty() ? otherwise : starts[i + 1] - starts[i];
  };
  const Index elements = how.sequences >= 0 ? how.sequences : sizes_.batch;
  for (std::size_t e = 0; e < static_cast<std::size_t>(elements); ++e) {
    const Index keys = how.key_lengths.empty() ? sizes_.kv_length : how.key_lengths[e];
    key_lengths_.push_back(random.integer(0, length(key_starts_, e, keys)));
    query_lengths_.push_back(random.integer(0, length(query_starts_, e, sizes_.q_length)));
    offsets_.push_back(random.integer(-sizes_.q_length - 2, sizes_.kv_length + 2));
  }
  // One more that is never read, so that no view is without data.
  for (auto* numbers : {&key_lengths_, &query_lengths_, &offsets_}) numbers->push_back(0);
  if (maybe()) o.key_lengths = {key_lengths_.data(), {elements}};
  if (maybe()) o.query_lengths = {query_lengths_.data(), {elements}};
  if (maybe()) o.causal_offsets = {offsets_.data(), {elements}};
}

void RandomOptions::draw_masks(AttentionOptions& o, Random& random, Index one_in) {
  const auto maybe = [&] { return random.integer(1, one_in) == 1; };
  const auto broadcast = [&] { return static_cast<unsigned>(random.integer(0, 15)); };
  AttentionSizes scores = sizes_;
  if (!key_starts_.empty()) scores.kv_length = longest_of(key_starts_);
  if (maybe()) {
    mask_ = random_mask(score_shape(scores, broadcast()), random, 4, random.pick(layouts()));
    o.mask = stretched<const bool>(mask_.view, score_shape(scores));
  }
  if (maybe()) {
    bits_ = MaskBits(bytes_shape(score_shape(scores, broadcast())), random.pick(layouts()));
    for_each(bits_.view, [&](std::uint8_t& byte) { byte = static_cast<std::uint8_t>(random.next() | random.next()); });
    o.mask_bits = stretched<const std::uint8_t>(bits_.view, bytes_shape(score_shape(scores)));
  }
  if (maybe()) {
    const Layout& layout = random.pick(layouts());
    bias_ = random_bias(score_shape(scores, broadcast()), random, 5, layout);
    bfloat_bias_ = HalfTensor<bfloat16, 4>(bias_.view, layout);
    half_bias_ = HalfTensor<float16, 4>(bias_.view, layout);
    const auto all = [&](const auto& view) { o.bias = stretched(view, score_shape(scores)); };
    const Index type = random.integer(0, 3);
    if (type == 0) all(bfloat_bias_.view);
    else if (type == 1) all(half_bias_.view);
    else all(bias_.view);
  }
}

void RandomOptions::draw_biases(AttentionOptions& o, Random& random, Index one_in) {
  const auto maybe = [&] { return random.integer(1, one_in) == 1; };
  for_each(slopes_.view, [&](float& x) { x = std::ldexp(1.0f, -static_cast<int>(random.integer(1, 8))); });
  fill_normal(sinks_.view, random);
  if (maybe()) o.alibi_slopes = slopes_.view;
  if (maybe()) o.sinks = sinks_.view;
  if (!maybe()) return;
  const Index buckets = random.pick(std::vector<Index>{2, 4, 12, 32});
  table_ = random_table(sizes_.q_heads, 2 * buckets, random, 9, random.pick(layouts()));
  o.relative_bias.table = table_.view;
  o.relative_bias.max_distance = buckets + random.integer(1, 200);
  o.relative_bias.bidirectional = maybe();
}

AttentionOptions of_element(AttentionOptions o, Index b, Index keys) {
  const auto element = [&](auto& view) {
    if (view) view = view.slice(0, b, b + 1);
  };
  const auto scores = [&](auto& view, Index size) {
    element(view);
    if (view) view = view.slice(3, 0, size);
  };
  element(o.lse);
  element(o.sum);
  element(o.key_lengths);
  element(o.query_lengths);
  element(o.causal_offsets);
  scores(o.mask, keys);
  scores(o.bias, keys);
  scores(o.mask_bits, (keys + 7) / 8);
  return o;
}

AttentionOptions of_keys(AttentionOptions o, Index begin, Index end) {
  const auto select = [](auto& view, Index from, Index to) {
    if (view) view = view.slice(3, from, to);
  };
  select(o.mask, begin, end);
  select(o.bias, begin, end);
  select(o.mask_bits, begin / 8, begin / 8 + (end - begin + 7) / 8);
  o.causal_offset -= begin;
  return o;
}

}  // namespace headlane::test
