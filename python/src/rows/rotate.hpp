// Rotary positions, by tables of cosines and sines.
#pragma once

#include "rows/operation.hpp"

#include <algorithm>
#include <array>

namespace headlane::python {

/// Where the numbers of a pair are in a head, and those for them in a table, of `half` pairs.
struct Halves {
  static std::array<Index, 2> numbers(Index pair, Index half) { return {pair, half + pair}; }
  static std::array<Index, 2> of_table(Index pair, Index half) { return numbers(pair, half); }
};
template <bool by_pair>
struct Neighbours {
  static std::array<Index, 2> numbers(Index pair, Index) { return {2 * pair, 2 * pair + 1}; }
  static std::array<Index, 2> of_table(Index pair, Index half) {
    return by_pair ? std::array{pair, pair} : numbers(pair, half);
  }
};

/// y = x, of each head the first numbers turned: with the roundings of PyTorch's product, product
/// and sum, each to `Product`, and the sum to the type. Row i of x is row first + i of all
/// sequences.
template <class Pairs, class Product, class T>
void rotate_pairs(Index head_dim, const View<T, 2>& x, const View<T, 2>& y, const View<const float, 3>& cosines,
                  const View<const float, 3>& sines, Index first) {
  const Index turned = cosines.shape[2], half = turned / 2, length = cosines.shape[1];
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
        const auto [one, two] = Pairs::numbers(pair, half);
        const auto [of_one, of_two] = Pairs::of_table(pair, half);
        const auto a = static_cast<float>(from[one]), b = static_cast<float>(from[two]);
        to[one] = static_cast<T>(product(a, cosine[of_one]) - product(b, sine[of_one]));
        to[two] = static_cast<T>(product(b, cosine[of_two]) + product(a, sine[of_two]));
      }
      std::copy_n(from + turned, head_dim - turned, to + turned);
    }
  }
}

template <class Product, class T>
void rotate_by(const Operation& o, const View<T, 2>& x, const View<T, 2>& y, const View<const float, 3>& cosines,
               const View<const float, 3>& sines, Index first) {
  if (!o.interleaved) rotate_pairs<Halves, Product>(o.head_dim, x, y, cosines, sines, first);
  else if (!o.by_pair) rotate_pairs<Neighbours<false>, Product>(o.head_dim, x, y, cosines, sines, first);
  else rotate_pairs<Neighbours<true>, Product>(o.head_dim, x, y, cosines, sines, first);
}

template <class T>
void rotate(const Operation& o, const View<T, 2>& x, const View<T, 2>& y, const View<const float, 3>& cosines,
            const View<const float, 3>& sines, Index first) {
  if (o.in_float32) rotate_by<float>(o, x, y, cosines, sines, first);
  else rotate_by<T>(o, x, y, cosines, sines, first);
}

}  // namespace headlane::python
