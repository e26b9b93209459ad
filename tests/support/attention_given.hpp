// Everything that views of attention's options point to, with random contents: all options alone and together, also of ragged batches.
#pragma once

#include "support/mask_case.hpp"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace headlane::test {

inline std::string text_of_options(const AttentionSizes& s, const AttentionOptions& o) {
  std::ostringstream text;
  text << text_of(s, o) << ", offset " << o.causal_offset << ", window " << o.window_left << "/" << o.window_right
       << ", softcap " << o.softcap << ", threads " << o.num_threads;
  if (o.key_lengths.data != nullptr) text << ", key lengths";
  if (o.query_lengths.data != nullptr) text << ", query lengths";
  if (o.alibi_slopes.data != nullptr) text << ", ALiBi";
  if (o.sinks.data != nullptr) text << ", sinks";
  if (o.mask.data != nullptr) text << ", mask";
  if (o.mask_bits.data != nullptr) text << ", mask bits of stride " << o.mask_bits.strides[3];
  if (o.bias.data != nullptr) text << ", bias";
  if (o.causal_offsets.data != nullptr) text << ", offsets";
  if (const RelativeBias& r = o.relative_bias; r.table.data != nullptr)
    text << ", " << r.table.size(1) << " buckets to " << r.max_distance << (r.bidirectional ? " both ways" : "");
  for (const auto& starts : {o.query_starts, o.key_starts}) {
    for (Index i = 0; starts.data != nullptr && i < starts.size(0); ++i)
      text << (i == 0 ? ", starts " : " ") << starts(i);
  }
  if (o.workspace.data() != nullptr) text << ", workspace";
  return text.str();
}

/// Bits with the strides of `model`, whose last axis counts bytes.
class Bits {
 public:
  explicit Bits(const std::array<Index, 4>& shape, const Layout& layout = {}) : model_(shape, layout) {
    Index low = 0, high = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const Index reach = std::max<Index>(shape[axis] - 1, 0) * model_.view.strides[axis];
      (reach < 0 ? low : high) += reach;
    }
    bytes_.resize(static_cast<std::size_t>(high - low + 1));
    view = {bytes_.data() - low, shape, model_.view.strides};
  }

  View<std::uint8_t, 4> view;

 private:
  Tensor<4> model_;  // for its strides
  std::vector<std::uint8_t> bytes_;
};

inline std::array<Index, 4> bytes_shape(std::array<Index, 4> scores) {
  scores[3] = (scores[3] + 7) / 8;
  return scores;
}

/// Bits for the keys of a mask; those behind the last key are set or not, nobody looks.
inline void fill_bits(const View<std::uint8_t, 4>& bits, const View<const bool, 4>& mask, Random& random) {
  for_each_position(bits.shape, [&](const auto& p) {
    unsigned byte = static_cast<unsigned>(random.integer(0, 255));
    for (Index j = 8 * p[3]; j < std::min(8 * p[3] + 8, mask.size(3)); ++j) {
      const unsigned bit = 1u << (j - 8 * p[3]);
      byte = mask(p[0], p[1], p[2], j) ? byte | bit : byte & ~bit;
    }
    bits(p[0], p[1], p[2], p[3]) = static_cast<std::uint8_t>(byte);
  });
}

/// A table of relative biases, one in `one_in` -inf.
inline Tensor<2> random_table(Index heads, Index buckets, Random& random, Index one_in, const Layout& layout = {}) {
  Tensor<2> table({heads, buckets}, layout);
  for_each(table.view, [&](float& b) { b = random.integer(1, one_in) == 1 ? -infinity : random.normal(); });
  return table;
}

/// `sequences` + 1 numbers from 0 to `length` that do not decrease, some of them equal, with gaps before and behind.
inline std::vector<Index> random_starts(Index sequences, Index length, Random& random) {
  std::vector<Index> starts;
  for (Index i = 0; i <= sequences; ++i) starts.push_back(random.integer(0, length));
  for (std::size_t i = 1; i < starts.size(); ++i)
    if (random.integer(0, 4) == 0) starts[i] = starts[i - 1];
  if (random.integer(0, 1) == 0) starts.front() = 0;
  if (random.integer(0, 1) == 0) starts.back() = length;
  std::sort(starts.begin(), starts.end());
  return starts;
}

inline Index longest_of(const std::vector<Index>& starts) {
  Index longest = 0;
  for (std::size_t i = 1; i < starts.size(); ++i) longest = std::max(longest, starts[i] - starts[i - 1]);
  return longest;
}

struct Given {
  std::vector<Index> query_starts, key_starts, key_lengths, query_lengths, offsets;
  Tensor<1> slopes, sinks;
  std::unique_ptr<Mask> mask;
  std::unique_ptr<Bits> bits;
  std::unique_ptr<Tensor<4>> bias;
  std::unique_ptr<Tensor<2>> table;

  explicit Given(const AttentionSizes& s) : slopes({s.q_heads}), sinks({s.q_heads}) {}

  /// With `sequences` not -1 (and one batch element) a ragged batch.
  AttentionOptions random(const AttentionSizes& s, Random& random, Index sequences = -1) {
    AttentionOptions o;
    const auto maybe = [&] { return random.integer(0, 2) == 0; };
    AttentionSizes scores = s;
    Index elements = s.batch;
    if (sequences >= 0) {
      elements = sequences;
      query_starts = random_starts(sequences, s.q_length, random);
      key_starts = random_starts(sequences, s.kv_length, random);
      scores.kv_length = longest_of(key_starts);
      o.query_starts = {query_starts.data(), {sequences + 1}};
      o.key_starts = {key_starts.data(), {sequences + 1}};
    }
    o.causal = maybe();
    if (maybe()) o.causal_offset = random.integer(-s.q_length - 2, s.kv_length + 2);
    if (maybe()) o.window_left = random.integer(0, s.kv_length);
    if (maybe()) o.window_right = random.integer(0, s.kv_length);
    if (maybe()) o.softcap = 0.5f + static_cast<float>(random.integer(0, 20));
    const auto length = [](const std::vector<Index>& starts, Index i, Index otherwise) {
      const auto at = static_cast<std::size_t>(i);
      return starts.empty() ? otherwise : starts[at + 1] - starts[at];
    };
    for (Index e = 0; e < elements; ++e) {
      key_lengths.push_back(random.integer(0, length(key_starts, e, s.kv_length)));
      query_lengths.push_back(random.integer(0, length(query_starts, e, s.q_length)));
      offsets.push_back(random.integer(-s.q_length - 2, s.kv_length + 2));
    }
    offsets.push_back(0);  // never read, and no vector is without data
    key_lengths.push_back(0);
    query_lengths.push_back(0);
    if (maybe()) o.key_lengths = {key_lengths.data(), {elements}};
    if (maybe()) o.query_lengths = {query_lengths.data(), {elements}};
    if (maybe()) o.causal_offsets = {offsets.data(), {elements}};
    for (Index h = 0; h < s.q_heads; ++h) {
      slopes.view(h) = std::ldexp(1.0f, -static_cast<int>(random.integer(1, 8)));
      sinks.view(h) = random.normal();
    }
    if (maybe()) o.alibi_slopes = slopes.view;
    if (maybe()) o.sinks = sinks.view;
    const auto broadcast = [&] { return static_cast<unsigned>(random.integer(0, 15)); };
    if (maybe()) {
      mask = std::make_unique<Mask>(random_mask(score_shape(scores, broadcast()), random, 4, random.pick(layouts())));
      o.mask = stretched<const bool>(mask->view, score_shape(scores));
    }
    if (maybe()) {
      bits = std::make_unique<Bits>(bytes_shape(score_shape(scores, broadcast())), random.pick(layouts()));
      for_each(bits->view,
               [&](std::uint8_t& byte) { byte = static_cast<std::uint8_t>(random.next() | random.next()); });
      o.mask_bits = stretched<const std::uint8_t>(bits->view, bytes_shape(score_shape(scores)));
    }
    if (maybe()) {
      bias =
          std::make_unique<Tensor<4>>(random_bias(score_shape(scores, broadcast()), random, 5, random.pick(layouts())));
      o.bias = stretched<const float>(bias->view, score_shape(scores));
    }
    if (maybe()) {
      o.relative_bias.bidirectional = maybe();
      const Index buckets = random.pick(std::vector<Index>{2, 4, 12, 32});
      table = std::make_unique<Tensor<2>>(random_table(s.q_heads, 2 * buckets, random, 9, random.pick(layouts())));
      o.relative_bias.table = table->view;
      o.relative_bias.max_distance = buckets + random.integer(1, 200);
    }
    return o;
  }
};

}  // namespace headlane::test
