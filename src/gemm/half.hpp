// Products of bfloat16 and float16: some rows of a and c at a time, so that their float32 copies
// stay in the caches.
#pragma once

#include "core/check.hpp"
#include "core/convert.hpp"

#include <algorithm>
#include <cstdint>

namespace headlane::internal {

/// A copy of a checked tensor, for which memory is reserved; only its memory if it is not read.
template <int Rank, class Bits>
View<float, Rank> copy_of(HalfCopies& copies, const View<Bits, Rank>& x, DType type, bool is_read = true) {
  const AnyView<const std::uint16_t> any(x);
  return as_view<Rank>(is_read ? copies.add({any, type}) : copies.room(any));
}

/// The rows of a product that is checked and not empty, by blocks.
struct HalfBlocks {
  View<const std::uint16_t, 2> a;
  View<std::uint16_t, 2> c;
  DType type;
  bool reads_a, reads_c;

  /// Elements of the copies of a and c: 8 MiB.
  static constexpr Index max_elements = Index{1} << 21;
  /// Fewer rows would not be worth packing b, which is done for each block of rows.
  static constexpr Index min_rows = 256;

  [[nodiscard]] Index rows() const {
    return std::min(c.shape[0], std::max(max_elements / (a.shape[1] + c.shape[1]), min_rows));
  }
  void reserve(HalfCopies& copies) const {
    copies.reserve(AnyView<const std::uint16_t>(a.slice(0, 0, rows())));
    copies.reserve(AnyView<const std::uint16_t>(c.slice(0, 0, rows())));
  }
  /// Calls f(a, c, first row) with copies, in the memory behind what `copies` already has, and
  /// rounds c.
  template <class F>
  void for_each(const HalfCopies& copies, const F& f) const {
    for (Index first = 0; first < c.shape[0]; first += rows()) {
      const Index end = std::min(first + rows(), c.shape[0]);
      HalfCopies block = copies;
      const View<std::uint16_t, 2> to = c.slice(0, first, end);
      const View<const float, 2> from = copy_of(block, a.slice(0, first, end), type, reads_a);
      const View<float, 2> result = copy_of(block, to, type, reads_c);
      f(from, result, first);
      block.round(AnyView<const float>(result), {to, type});
    }
  }
};

}  // namespace headlane::internal
