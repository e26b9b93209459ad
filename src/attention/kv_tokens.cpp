#include "attention/kv_tokens.hpp"

#include "core/quantise.hpp"
#include "core/round.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace headlane::internal {
namespace {

using kernels::lanes;
using kernels::panel_columns;

/// Calls f with a number of the type.
template <class F>
void with_type(DType type, const F& f) {
  if (type == DType::float32) return f(float{});
  if (type == DType::bfloat16) return f(bfloat16{});
  if (type == DType::float16) return f(float16{});
  f(std::int8_t{});
}

/// Stores k as float32 keys from `first` on. The kernel transposes groups of 16 keys in registers
/// and pads the last group with zeros. It would overwrite keys before `first`, so the columns up to
/// the next group are stored one by one.
void write_float_keys(const kernels::KernelTable& kernel, Index first, const View<const float, 2>& k, float* keys) {
  const Index dim = k.shape[1], end = first + k.shape[0];
  for (Index key = first; key < end;) {
    const Index column = key % panel_columns;
    const float* from = k.data + (key - first) * k.strides[0];
    float* to = keys + (key - column) * dim + column;
    const Index group = column % lanes == 0 ? panel_columns - column : lanes - column % lanes;
    const Index count = std::min(group, end - key);
    if (column % lanes == 0) {
      kernel.pack_panels({from, dim, count, k.strides[1], k.strides[0]}, to);
    } else {
      for (Index d = 0; d < dim; ++d)
        for (Index i = 0; i < count; ++i) to[d * panel_columns + i] = from[i * k.strides[0] + d * k.strides[1]];
    }
    key += count;
  }
}

/// Stores v as float32 values from `first` on: they are rows of their panels and need no
/// transposing.
void write_float_values(const kernels::KernelTable& kernel, Index first, const View<const float, 2>& v, Index page_size,
                        float* values) {
  for (Index column = 0; column < v.shape[1]; column += panel_columns) {
    const Index columns = std::min(panel_columns, v.shape[1] - column);
    kernel.pack_panels({v.data + column * v.strides[1], v.shape[0], columns, v.strides[0], v.strides[1]},
                       values + column * page_size + first * panel_columns);
  }
}

/// max / 127 rounded to 16 bits, so that every q · scale is exact in float. A denormal scale would
/// have fewer bits, and what is read would not be stored without a change; hence 0.
float scale_of(float max) {
  const float scale = max / 127.0f;
  return scale < std::numeric_limits<float>::min() ? 0.0f : rounded_to_16_bits(scale);
}

/// Scales, and what to divide by: 1 for a scale of 0, whose numbers then are 0 as well.
struct Divisors {
  float divisor[panel_columns];

  void set(const float (&max)[panel_columns], Index count, float* scales) {
    for (Index i = 0; i < count; ++i) {
      scales[i] = scale_of(max[i]);
      divisor[i] = scales[i] == 0.0f ? 1.0f : scales[i];
    }
  }
};

/// Elements of the last panel of `columns`, with the zeros after them that pack_panels() writes.
Index width_of_panel(Index columns, Index first) { return std::min(panel_columns, round_up(columns - first, lanes)); }

/// Stores at most 32 keys, which are columns of `panel` [dim][32], from `first` on.
template <class T>
void convert_keys(const HeadOfPage& page, Index first, Index count, const float* panel) {
  const Index dim = page.head_dim;
  T* to = reinterpret_cast<T*>(page.keys()) + page.key_at(first);
  Divisors divisors;
  if constexpr (std::is_integral_v<T>) {
    float max[panel_columns] = {};
    for (Index d = 0; d < dim; ++d)
      for (Index i = 0; i < count; ++i) max[i] = std::max(max[i], std::abs(panel[d * panel_columns + i]));
    divisors.set(max, count, page.key_scales() + first);
  }
  for (Index d = 0; d < dim; ++d, panel += panel_columns, to += page.key_columns())
    for (Index i = 0; i < count; ++i) {
      if constexpr (std::is_integral_v<T>) to[i] = nearest_integer(panel[i] / divisors.divisor[i]);
      else to[i] = T(panel[i]);
    }
}

/// Stores at most 32 values, which are rows of `panels` [value_width / 32][count][32], from `first`
/// on.
template <class T>
void convert_values(const HeadOfPage& page, Index first, Index count, const float* panels) {
  Divisors divisors;
  if constexpr (std::is_integral_v<T>) {
    float max[panel_columns] = {};
    for (Index column = 0; column < page.value_dim; column += panel_columns)
      for (Index i = 0; i < count; ++i)
        for (Index j = 0; j < width_of_panel(page.value_dim, column); ++j)
          max[i] = std::max(max[i], std::abs(panels[column * count + i * panel_columns + j]));
    divisors.set(max, count, page.value_scales() + first);
  }
  for (Index column = 0; column < page.value_dim; column += panel_columns) {
    const float* from = panels + column * count;
    T* to = reinterpret_cast<T*>(page.values()) + page.value_at(first, column);
    for (Index i = 0; i < count; ++i, from += panel_columns, to += page.value_width())
      for (Index j = 0; j < width_of_panel(page.value_dim, column); ++j) {
        if constexpr (std::is_integral_v<T>) to[j] = nearest_integer(from[j] / divisors.divisor[i]);
        else to[j] = T(from[j]);
      }
  }
}

template <class T>
float widened(const std::byte* elements, Index i, float scale) {
  const auto x = static_cast<float>(reinterpret_cast<const T*>(elements)[i]);
  return std::is_integral_v<T> ? x * scale : x;
}

}  // namespace

float* HeadOfPage::key_scales() const {
  if (!has_token_scales(type)) return nullptr;
  return reinterpret_cast<float*>(values() + page_size * value_width() * size_of(type));
}

float* HeadOfPage::value_scales() const {
  float* const scales = key_scales();
  return scales == nullptr ? nullptr : scales + page_size;
}

Index HeadOfPage::bytes_of_token(DType type, Index head_dim, Index value_dim) {
  const Index scales = has_token_scales(type) ? 2 * static_cast<Index>(sizeof(float)) : 0;
  return (head_dim + round_up(value_dim, panel_columns)) * size_of(type) + scales;
}

Index HeadOfPage::scratch_floats(DType type, Index head_dim, Index value_dim) {
  return type == DType::float32 ? 0 : panel_columns * std::max(head_dim, round_up(value_dim, panel_columns));
}

void HeadOfPage::write(const kernels::KernelTable& kernel, Index first, const View<const float, 2>& k,
                       const View<const float, 2>& v, float* scratch) const noexcept {
  if (type == DType::float32) {
    write_float_keys(kernel, first, k, reinterpret_cast<float*>(keys()));
    return write_float_values(kernel, first, v, page_size, reinterpret_cast<float*>(values()));
  }
  const Index end = first + k.shape[0];
  for (Index at = first, count = 0; at < end; at += count) {
    count = std::min(panel_columns - at % panel_columns, end - at);
    const float *from_k = k.data + (at - first) * k.strides[0], *from_v = v.data + (at - first) * v.strides[0];
    kernel.pack_panels({from_k, head_dim, count, k.strides[1], k.strides[0]}, scratch);
    with_type(type, [&](auto t) { convert_keys<decltype(t)>(*this, at, count, scratch); });
    kernel.pack_panels({from_v, count, value_dim, v.strides[0], v.strides[1]}, scratch);
    with_type(type, [&](auto t) { convert_values<decltype(t)>(*this, at, count, scratch); });
  }
}

void HeadOfPage::copy(const HeadOfPage& from, Index tokens) const noexcept {
  const Index size = size_of(type);
  std::copy_n(from.keys(), round_up(tokens, key_columns()) * head_dim * size, keys());
  const Index width = type == DType::float32 ? panel_columns : value_width();  // of rows that follow each other
  for (Index column = 0; column < value_dim; column += width)
    std::copy_n(from.values() + value_at(0, column) * size, tokens * width * size,
                values() + value_at(0, column) * size);
  if (!has_token_scales(type)) return;
  std::copy_n(from.key_scales(), tokens, key_scales());
  std::copy_n(from.value_scales(), tokens, value_scales());
}

void HeadOfPage::read(Index first, const View<float, 2>& k, const View<float, 2>& v) const noexcept {
  with_type(type, [&](auto t) {
    using T = decltype(t);
    for (Index i = 0; i < k.shape[0]; ++i) {
      const Index at = first + i;
      const bool scaled = has_token_scales(type);
      const float k_scale = scaled ? key_scales()[at] : 1.0f, v_scale = scaled ? value_scales()[at] : 1.0f;
      for (Index d = 0; d < head_dim; ++d) k(i, d) = widened<T>(keys(), key_at(at) + d * key_columns(), k_scale);
      for (Index d = 0; d < value_dim; ++d) v(i, d) = widened<T>(values(), value_at(at, d), v_scale);
    }
  });
}

}  // namespace headlane::internal
