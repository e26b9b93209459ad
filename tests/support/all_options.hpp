// Random options of attention, all that combine, with what they point to; and the same for one batch element alone.
#pragma once

#include "support/mask_case.hpp"

#include <cmath>
#include <span>

namespace headlane::test {

inline std::string text_of_options(const AttentionSizes& s, const AttentionOptions& o) {
  std::ostringstream text;
  text << text_of(s, o) << ", offset " << o.causal_offset << ", window " << o.window_left << "/" << o.window_right
       << ", softcap " << o.softcap << ", threads " << o.num_threads;
  const auto say = [&](const void* data, const char* name) { text << (data == nullptr ? "" : name); };
  say(o.key_lengths.data, ", key lengths");
  say(o.query_lengths.data, ", query lengths");
  say(o.causal_offsets.data, ", offsets");
  say(o.alibi_slopes.data, ", ALiBi");
  say(o.sinks.data, ", sinks");
  say(o.mask.data, ", mask");
  say(o.mask_bits.data, ", mask bits");
  say(o.bias.data, ", bias");
  say(o.relative_bias.table.data, ", relative bias");
  return text.str();
}

class AllOptions {
 public:
  explicit AllOptions(const AttentionSizes& s)
      : slopes_({s.q_heads}), sinks_({s.q_heads}), table_({s.q_heads, 32}), mask_({1, 1, 1, 1}), bias_({1, 1, 1, 1}) {}

  /// Each option is given in one of `one_in` cases. `lengths`: of the keys of each batch element, if they differ.
  AttentionOptions random(const AttentionSizes& s, Random& random, Index one_in, std::span<const Index> lengths = {}) {
    AttentionOptions o;
    const auto maybe = [&] { return random.integer(1, one_in) == 1; };
    o.causal = maybe();
    if (maybe()) o.scale = 0.3f;
    if (maybe()) o.causal_offset = random.integer(-s.q_length - 2, s.kv_length / 2 + 2);
    if (maybe()) o.window_left = random.integer(0, s.kv_length);
    if (maybe()) o.window_right = random.integer(0, s.kv_length);
    if (maybe()) o.softcap = 0.5f + static_cast<float>(random.integer(0, 20));
    for (Index b = 0; b < s.batch; ++b) {
      key_lengths_.push_back(random.integer(0, lengths.empty() ? s.kv_length : lengths[static_cast<std::size_t>(b)]));
      query_lengths_.push_back(random.integer(0, s.q_length));
      offsets_.push_back(random.integer(-3, s.kv_length / 2 + 2));
    }
    if (maybe()) o.key_lengths = {key_lengths_.data(), {s.batch}};
    if (maybe()) o.query_lengths = {query_lengths_.data(), {s.batch}};
    if (maybe()) o.causal_offsets = {offsets_.data(), {s.batch}};
    for_each(slopes_.view, [&](float& x) { x = std::ldexp(1.0f, -static_cast<int>(random.integer(1, 8))); });
    fill_normal(sinks_.view, random);
    fill_normal(table_.view, random);
    if (maybe()) o.alibi_slopes = slopes_.view;
    if (maybe()) o.sinks = sinks_.view;
    if (maybe()) {
      table_.view(0, random.integer(0, 31)) = -infinity;
      o.relative_bias = {table_.view, random.integer(17, 300), maybe()};
    }
    const auto broadcast = [&] { return score_shape(s, static_cast<unsigned>(random.integer(0, 15))); };
    if (maybe()) {
      mask_ = random_mask(broadcast(), random, 4, random.pick(layouts()));
      o.mask = stretched<const bool>(mask_.view, score_shape(s));
    }
    if (maybe()) {
      bias_ = random_bias(broadcast(), random, 5, random.pick(layouts()));
      o.bias = stretched<const float>(bias_.view, score_shape(s));
    }
    if (maybe()) {
      const Index bytes = (s.kv_length + 7) / 8;
      bits_.resize(static_cast<std::size_t>(s.batch * s.q_length * bytes));
      for (std::uint8_t& byte : bits_) byte = static_cast<std::uint8_t>(random.next() | random.next());
      o.mask_bits = {
          bits_.data(), {s.batch, s.q_heads, s.q_length, bytes}, {s.q_length * bytes, 0, bytes, 1}};  // heads alike
    }
    o.num_threads = static_cast<int>(random.integer(0, 5));
    return o;
  }

 private:
  std::vector<Index> key_lengths_, query_lengths_, offsets_;
  std::vector<std::uint8_t> bits_;
  Tensor<1> slopes_, sinks_;
  Tensor<2> table_;
  Mask mask_;
  Tensor<4> bias_;
};

/// What concerns batch element b, of whose axis of keys only `keys` are there. Every view that is given is cut alike.
inline AttentionOptions of_element(AttentionOptions o, Index b, Index keys) {
  const auto element = [&](auto& view) {
    if (view.data != nullptr) view = view.slice(0, b, b + 1);
  };
  const auto scores = [&](auto& view, Index size) {
    element(view);
    if (view.data != nullptr) view = view.slice(3, 0, size);
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

/// The same for the keys begin … end-1 alone, where begin is a multiple of 8. Lengths of keys are not cut.
inline AttentionOptions of_keys(AttentionOptions o, Index begin, Index end) {
  const auto cut = [](auto& view, Index from, Index to) {
    if (view.data != nullptr) view = view.slice(3, from, to);
  };
  cut(o.mask, begin, end);
  cut(o.bias, begin, end);
  cut(o.mask_bits, begin / 8, begin / 8 + (end - begin + 7) / 8);
  o.causal_offset -= begin;
  return o;
}

}  // namespace headlane::test
