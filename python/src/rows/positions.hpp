// Rotary positions and factors of positions, both of which are read from tables.
#pragma once

#include "rows/operation.hpp"

#include <algorithm>
#include <array>

namespace headlane::python {

/// The indices of one of `half` pairs: of its numbers in a head, of their results, and of their
/// entries in a table.
template <RotaryPairs pairs>
struct Pair {
  static constexpr bool is_backwards = pairs == RotaryPairs::halves_backwards;
  static constexpr bool from_halves = pairs == RotaryPairs::halves || is_backwards;
  static constexpr bool to_halves = from_halves || pairs == RotaryPairs::neighbours_to_halves;
  static constexpr bool has_own_numbers = from_halves || pairs == RotaryPairs::neighbours;

  Pair(Index pair, Index half)
      : from(places(pair, half, from_halves)),
        to(places(pair, half, to_halves)),
        of_table(has_own_numbers ? from : std::array{pair, pair}) {}

  static std::array<Index, 2> places(Index pair, Index half, bool in_halves) {
    return in_halves ? std::array{pair, half + pair} : std::array{2 * pair, 2 * pair + 1};
  }

  std::array<Index, 2> from, to, of_table;
};

/// y = x, but the first numbers of each head are turned, with the roundings of PyTorch's two
/// products and their sum: products are rounded to `Product`, the sum to the type. Row i of x is
/// row first + i of all sequences.
template <RotaryPairs pairs, class Product, class T>
void rotate_pairs(Index head_dim, const View<T, 2>& x, const View<T, 2>& y, const View<const float, 3>& cosines,
                  const View<const float, 3>& sines, Index first) {
  constexpr bool has_half = pairs == RotaryPairs::neighbours_by_half;
  const Index half = has_half ? cosines.shape[2] : cosines.shape[2] / 2, turned = 2 * half, length = cosines.shape[1];
  const auto product = [](float number, float factor) {
    return static_cast<float>(static_cast<Product>(number * factor));
  };
  for (Index i = 0; i < x.shape[0]; ++i) {
    const Index row = first + i, position = row % length;
    const float* cosine = &cosines(std::min(row / length, cosines.shape[0] - 1), position, 0);
    const float* sine = &sines(std::min(row / length, sines.shape[0] - 1), position, 0);
    for (Index at = 0; at < x.shape[1]; at += head_dim) {
      const T* from = x.data + i * x.shape[1] + at;
      T* to = y.data + i * x.shape[1] + at;
      for (Index pair = 0; pair < half; ++pair) {
        const Pair<pairs> at_pair(pair, half);
        const auto [of_one, of_two] = at_pair.of_table;
        const auto a = static_cast<float>(from[at_pair.from[0]]), b = static_cast<float>(from[at_pair.from[1]]);
        constexpr float sign = Pair<pairs>::is_backwards ? -1.0f : 1.0f;
        to[at_pair.to[0]] = static_cast<T>(product(a, cosine[of_one]) - product(b, sign * sine[of_one]));
        to[at_pair.to[1]] = static_cast<T>(product(b, cosine[of_two]) + product(a, sign * sine[of_two]));
      }
      std::copy_n(from + turned, head_dim - turned, to + turned);
    }
  }
}

template <class Product, class T>
void rotate_by(const Operation& o, const View<T, 2>& x, const View<T, 2>& y, const View<const float, 3>& cosines,
               const View<const float, 3>& sines, Index first) {
  const auto rotate = [&]<RotaryPairs pairs> { rotate_pairs<pairs, Product>(o.head_dim, x, y, cosines, sines, first); };
  switch (o.pairs) {
    case RotaryPairs::halves:
      return rotate.template operator()<RotaryPairs::halves>();
    case RotaryPairs::halves_backwards:
      return rotate.template operator()<RotaryPairs::halves_backwards>();
    case RotaryPairs::neighbours:
      return rotate.template operator()<RotaryPairs::neighbours>();
    case RotaryPairs::neighbours_by_pair:
      return rotate.template operator()<RotaryPairs::neighbours_by_pair>();
    case RotaryPairs::neighbours_by_half:
      return rotate.template operator()<RotaryPairs::neighbours_by_half>();
    case RotaryPairs::neighbours_to_halves:
      return rotate.template operator()<RotaryPairs::neighbours_to_halves>();
  }
}

template <class T>
void rotate(const Operation& o, const View<T, 2>& x, const View<T, 2>& y, const View<const float, 3>& cosines,
            const View<const float, 3>& sines, Index first) {
  if (o.in_float32) rotate_by<float>(o, x, y, cosines, sines, first);
  else rotate_by<T>(o, x, y, cosines, sines, first);
}

/// Each row times the factor of its position. Row i of x is row first + i of all sequences.
template <class T>
void weigh(const View<T, 2>& x, const View<T, 2>& y, const View<const float, 3>& factors, Index first) {
  const Index length = factors.shape[1];
  for (Index i = 0; i < x.shape[0]; ++i) {
    const Index row = first + i;
    const float factor = factors(std::min(row / length, factors.shape[0] - 1), row % length, 0);
    const T* from = x.data + i * x.shape[1];
    std::transform(from, from + x.shape[1], y.data + i * x.shape[1],
                   [&](T number) { return static_cast<T>(static_cast<float>(number) * factor); });
  }
}

}  // namespace headlane::python
