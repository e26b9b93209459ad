// Random options of attention, and options for a part of a problem.
//
//   RandomOptions  draws options, and owns what their views point to
//   of_element     the options of one batch element
//   of_keys        the options of a range of keys
//   random_starts, random_table, fill_bits  the contents of single options
#pragma once

#include "support/half_tensor.hpp"
#include "support/mask_case.hpp"

#include <span>

namespace headlane::test {

/// Shape of mask_bits for scores of this shape: a bit for each key.
std::array<Index, 4> bytes_shape(std::array<Index, 4> scores);

/// Sets the bits of the keys that the mask shows; bits behind the last key are random.
void fill_bits(const View<std::uint8_t, 4>& bits, const View<const bool, 4>& mask, Random& random);

/// A table of relative biases, one in `one_in` of them -inf.
Tensor<2> random_table(Index heads, Index buckets, Random& random, Index one_in, const Layout& layout = {});

/// The starts of variable-length sequences: `sequences` + 1 numbers from 0 to `length` that do not
/// decrease, some of them equal, with rows of no sequence at either end.
std::vector<Index> random_starts(Index sequences, Index length, Random& random);

/// The length of the longest sequence.
Index longest_of(const std::vector<Index>& starts);

class RandomOptions {
 public:
  struct Draw {
    Index one_in = 3;                         ///< probability of each option
    Index sequences = -1;                     ///< if not -1: variable-length sequences in one batch element
    std::span<const Index> key_lengths = {};  ///< number of keys of each batch element, if they differ
  };

  explicit RandomOptions(const AttentionSizes& s) : sizes_(s), slopes_({s.q_heads}), sinks_({s.q_heads}) {}

  AttentionOptions draw(Random& random, const Draw& how);
  AttentionOptions draw(Random& random) { return draw(random, Draw()); }

 private:
  void draw_starts(AttentionOptions& o, Random& random, Index sequences);
  void draw_lengths(AttentionOptions& o, Random& random, const Draw& how);
  void draw_masks(AttentionOptions& o, Random& random, Index one_in);
  void draw_biases(AttentionOptions& o, Random& random, Index one_in);

  AttentionSizes sizes_;
  std::vector<Index> query_starts_, key_starts_, key_lengths_, query_lengths_, offsets_;
  Tensor<1> slopes_, sinks_;
  Mask mask_{{1, 1, 1, 1}};
  MaskBits bits_{{1, 1, 1, 1}};
  Tensor<4> bias_{{1, 1, 1, 1}};
  HalfTensor<bfloat16, 4> bfloat_bias_{{1, 1, 1, 1}};
  HalfTensor<float16, 4> half_bias_{{1, 1, 1, 1}};
  Tensor<2> table_{{1, 1}};
};

/// Options for batch element b alone, of which only the first `keys` keys exist.
AttentionOptions of_element(AttentionOptions o, Index b, Index keys);

/// Options for the keys begin … end-1 alone, where begin is a multiple of 8; key_lengths stay.
AttentionOptions of_keys(AttentionOptions o, Index begin, Index end);

}  // namespace headlane::test
