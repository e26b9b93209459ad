// Tokens in a page of a KvCache: how keys and values are written, copied and read in each type.
#pragma once

#include "core/round.hpp"
#include "kernels/table.hpp"

#include <headlane/dtype.hpp>
#include <headlane/view.hpp>

#include <cstddef>

namespace headlane::internal {

/// True if each key and each value has a scale.
constexpr bool has_token_scales(DType type) { return type == DType::int8; }

/// The part of a page that belongs to one kv head: keys and then values, as a tile reads them.
///
/// float32: the keys [page_size / 32][head_dim][32], as panels of the right operand of q·kᵀ, and
/// the values [value_width / 32][page_size][32], as panels of the right operand of P·V. Other
/// types: the keys [page_size / n][head_dim][n], where n is key_columns(), and the values
/// [page_size][value_width]; for int8 then the scales of the keys [page_size] and those of the
/// values [page_size], floats. The columns value_dim … value_width are zeros.
struct HeadOfPage {
  DType type;
  Index page_size, head_dim, value_dim;
  std::byte* memory;

  [[nodiscard]] std::byte* keys() const { return memory; }
  [[nodiscard]] std::byte* values() const { return memory + page_size * head_dim * size_of(type); }
  /// Null if the type has none.
  [[nodiscard]] float* key_scales() const;
  [[nodiscard]] float* value_scales() const;

  [[nodiscard]] Index value_width() const { return round_up(value_dim, kernels::panel_columns); }
  /// Columns of a panel of keys. A tile of one row reads 128 columns as one stream: from panels of
  /// 32, of which it read four side by side, two threads decoded bfloat16 at 41 GB/s instead of 50
  /// (1 × 32768 keys from memory, Zen 5).
  [[nodiscard]] Index key_columns() const {
    constexpr Index most = 128;
    return type == DType::float32 ? kernels::panel_columns : page_size < most ? page_size : most;
  }
  /// The place of a key's first element; the others follow key_columns() apart.
  [[nodiscard]] Index key_at(Index key) const {
    const Index column = key % key_columns();
    return (key - column) * head_dim + column;
  }
  /// The place of an element of a value.
  [[nodiscard]] Index value_at(Index key, Index column) const {
    constexpr Index panel = kernels::panel_columns;
    if (type != DType::float32) return key * value_width() + column;
    return column / panel * panel * page_size + key * panel + column % panel;
  }

  /// Bytes of a head for each of the page_size keys.
  static Index bytes_of_token(DType type, Index head_dim, Index value_dim);
  /// Floats of scratch memory for write().
  static Index scratch_floats(DType type, Index head_dim, Index value_dim);

  /// Stores k [tokens, head_dim] and v [tokens, value_dim] as the keys and values from `first` on.
  void write(const kernels::KernelTable& kernel, Index first, const View<const float, 2>& k,
             const View<const float, 2>& v, float* scratch) const noexcept;
  /// Copies the first `tokens` keys and values of another page.
  void copy(const HeadOfPage& from, Index tokens) const noexcept;
  /// Copies the keys and values from `first` on, widened.
  void read(Index first, const View<float, 2>& k, const View<float, 2>& v) const noexcept;
};

}  // namespace headlane::internal
