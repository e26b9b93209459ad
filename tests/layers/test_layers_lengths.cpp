// Layers over sequences of different lengths: each has the bits of a call of its own, whether
// padded, concatenated, or in a cache that grows by its own length.
#include "support/layer_model.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

constexpr std::uint32_t signalling = 0x7fa00001u;

View<const Index, 1> view_of(const std::vector<Index>& v) { return {v.data(), {static_cast<Index>(v.size())}}; }

/// Sequences of different lengths, and the memory that each attends to; all else is padding, which
/// must not be read.
struct Batch {
  Batch(Index d_model, Index memory_width, Index count, Index max_length, Random& random)
      : x({count, max_length, d_model}), memory({count, max_length, memory_width}) {
    for (Tensor<3>* tensor : {&x, &memory}) {
      for_each(tensor->view, [](float& e) { e = std::bit_cast<float>(signalling); });
      std::vector<Index>& lengths = tensor == &x ? x_lengths : memory_lengths;
      for (Index b = 0; b < count; ++b) {
        lengths.push_back(random.integer(0, max_length));
        fill_normal(tensor->view.select(0, b).slice(0, 0, lengths.back()), random);
      }
    }
  }
  [[nodiscard]] View<const float, 3> x_of(Index b) const {
    return x.view.slice(0, b, b + 1).slice(1, 0, x_lengths[static_cast<std::size_t>(b)]);
  }
  [[nodiscard]] View<const float, 3> memory_of(Index b) const {
    return memory.view.slice(0, b, b + 1).slice(1, 0, memory_lengths[static_cast<std::size_t>(b)]);
  }

  Tensor<3> x, memory;
  std::vector<Index> x_lengths, memory_lengths;
};

/// The rows of all elements one behind the other, and where each starts.
Tensor<3> packed(const Tensor<3>& padded, const std::vector<Index>& lengths, std::vector<Index>& starts) {
  starts = {0};
  for (const Index length : lengths) starts.push_back(starts.back() + length);
  Tensor<3> result({1, starts.back(), padded.view.shape[2]});
  for (std::size_t b = 0; b < lengths.size(); ++b)
    copy<2>(padded.view.select(0, static_cast<Index>(b)).slice(0, 0, lengths[b]),
            result.view.select(0, 0).slice(0, starts[b], starts[b + 1]));
  return result;
}

/// Options in which an offset that is off by one shows.
struct Positions {
  Positions(Index heads, Random& random) : slopes({heads}) {
    fill_uniform(slopes.view, random);
    window = random.integer(0, 1) == 0 ? -1 : random.integer(2, 20);
  }
  [[nodiscard]] AttentionOptions causal() const {
    return {.causal = true, .window_left = window, .alibi_slopes = slopes.view};
  }
  Tensor<1> slopes;
  Index window;
};

// Copies positions begin[b] … end[b]-1 of each sequence b; the rest of the chunk is signalling NaN.
void fill_chunk(const Batch& batch, const Tensor<3>& x, const std::vector<Index>& begin,
                const std::vector<Index>& end) {
  for_each(x.view, [](float& e) { e = std::bit_cast<float>(signalling); });
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const auto b = static_cast<Index>(i);
    copy<2>(View<const float, 3>(batch.x.view).select(0, b).slice(0, begin[i], end[i]),
            x.view.select(0, b).slice(0, 0, end[i] - begin[i]));
  }
}

TEST_CASE("a cache grows by each sequence's own length; its rows have the bits of a call of their own") {
  Index compared = 0;
  for (const LayerSizes& s : layer_sizes()) {
    const RandomState state = random_layer(s, 11, true);
    const DecoderLayer decoder(state.dict, "", s.options());
    const MultiHeadAttention& self = decoder.self_attn();
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      Random random(seed);
      const Index count = random.integer(1, 5), max_length = random.integer(1, 45);
      const Batch batch(s.d_model, s.memory_width, count, max_length, random);
      const Positions positions(s.heads, random);
      KvCache of_self(s.kv_heads, s.head_dim, s.head_dim, {.page_size = 32}),
          of_decoder(s.kv_heads, s.head_dim, s.head_dim, {.page_size = 64}),
          projected(s.kv_heads, s.head_dim, s.head_dim);
      std::vector<Index> sequences;
      for (Index b = 0; b < count; ++b) {
        sequences.push_back(of_self.add());
        (void)of_decoder.add(), (void)projected.add();
      }
      decoder.multihead_attn().project_memory(batch.memory.view, projected, sequences,
                                              {.key_lengths = view_of(batch.memory_lengths)});
      std::vector<Tensor<3>> attended, decoded;
      for (Index b = 0; b < count; ++b) {
        attended.emplace_back(batch.x_of(b).shape);
        decoded.emplace_back(batch.x_of(b).shape);
        self.forward(batch.x_of(b), attended.back().view, positions.causal());
        decoder.forward(batch.x_of(b), batch.memory_of(b), decoded.back().view, positions.causal());
      }
      // In chunks of random lengths, 0 for some sequences, until all positions are computed.
      std::vector<Index> done(sequences.size(), 0), pieces(sequences.size()), keys(sequences.size());
      while (done != batch.x_lengths) {
        const Index width = random.integer(1, max_length);
        const Tensor<3> x({count, width, s.d_model}), y(x.view.shape), z(x.view.shape);
        for (std::size_t i = 0; i < done.size(); ++i) {
          pieces[i] = std::min(random.integer(0, width), batch.x_lengths[i] - done[i]);
          keys[i] = done[i] + pieces[i];
        }
        fill_chunk(batch, x, done, keys);
        AttentionOptions options = positions.causal();
        options.query_lengths = view_of(pieces);
        if (random.integer(0, 1) == 0) options.key_lengths = view_of(keys);
        self.forward(x.view, of_self, sequences, y.view, options);
        decoder.forward(x.view, of_decoder, sequences, projected, sequences, z.view, options,
                        {.query_lengths = view_of(pieces)});
        for (std::size_t i = 0; i < done.size(); ++i) {
          for (const KvCache* cache : {&of_self, &of_decoder}) CHECK(cache->length(sequences[i]) == keys[i]);
          const auto same = [&](const Tensor<3>& chunk, const Tensor<3>& all) {
            return different_bits(chunk.view.select(0, static_cast<Index>(i)).slice(0, 0, pieces[i]),
                                  all.view.select(0, 0).slice(0, done[i], keys[i])) == 0;
          };
          CHECK_MESSAGE(same(y, attended[i]), text_of(s), ", seed ", seed);
          CHECK_MESSAGE(same(z, decoded[i]), text_of(s), ", seed ", seed);
          compared += pieces[i];
        }
        done = keys;
      }
    }
  }
  CHECK(compared >= 1000);
}

TEST_CASE(
    "self- and cross-attention of padded and variable-length batches of any lengths have the bits of each sequence "
    "alone") {
  Index compared = 0;
  for (const LayerSizes& s : layer_sizes()) {
    const RandomState state = random_layer(s, 12, true);
    const DecoderLayer decoder(state.dict, "", s.options());
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      Random random(seed + 100);
      const Batch batch(s.d_model, s.memory_width, random.integer(1, 5), random.integer(1, 45), random);
      const Positions positions(s.heads, random);
      AttentionOptions options = positions.causal();
      options.causal = random.integer(0, 1) == 0;
      AttentionOptions self = options, cross;
      self.query_lengths = cross.query_lengths = view_of(batch.x_lengths);
      if (!options.causal || seed % 3 == 0)
        self.key_lengths = self.query_lengths;  // causal: later keys are hidden anyway
      cross.key_lengths = view_of(batch.memory_lengths);
      const Tensor<3> padded(batch.x.view.shape);
      decoder.forward(batch.x.view, batch.memory.view, padded.view, self, cross);

      std::vector<Index> starts, memory_starts;
      const Tensor<3> x = packed(batch.x, batch.x_lengths, starts),
                      memory = packed(batch.memory, batch.memory_lengths, memory_starts), varlen(x.view.shape);
      AttentionOptions self_starts = options;
      self_starts.query_starts = self_starts.key_starts = view_of(starts);
      decoder.forward(x.view, memory.view, varlen.view, self_starts,
                      {.query_starts = view_of(starts), .key_starts = view_of(memory_starts)});
      for (std::size_t i = 0; i < batch.x_lengths.size(); ++i) {
        const auto b = static_cast<Index>(i);
        const Tensor<3> alone(batch.x_of(b).shape);
        decoder.forward(batch.x_of(b), batch.memory_of(b), alone.view, options);
        CHECK_MESSAGE(
            different_bits(padded.view.select(0, b).slice(0, 0, batch.x_lengths[i]), alone.view.select(0, 0)) == 0,
            text_of(s), ", seed ", seed);
        CHECK_MESSAGE(
            different_bits(varlen.view.select(0, 0).slice(0, starts[i], starts[i + 1]), alone.view.select(0, 0)) == 0,
            text_of(s), " variable-length, seed ", seed);
        compared += batch.x_lengths[i];
      }
    }
  }
  CHECK(compared >= 1000);
}

}  // namespace
}  // namespace headlane::test
