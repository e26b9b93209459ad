// Selects columns, joins the heads of two values, and multiplies heads by numbers.
#pragma once

#include "rows/operation.hpp"

#include <algorithm>

namespace headlane::python {

/// y = the columns begin … end - 1 of each group of x, one after the other.
template <class T>
void copy_columns(const Operation& o, const View<T, 2>& x, const View<T, 2>& y) {
  const Index width = o.end - o.begin, group = o.group > 0 ? o.group : x.shape[1];
  if (width == 0) return;
  for (Index row = 0; row < x.shape[0]; ++row)
    for (Index from = o.begin, to = 0; to < y.shape[1]; from += group, to += width)
      std::copy_n(&x(row, from), width, &y(row, to));
}

/// y = the heads of x, each followed by that of `other`, or by the only head that `other` has.
template <class T>
void join_heads(const Operation& o, const View<T, 2>& x, const View<T, 2>& other, const View<T, 2>& y) {
  const Index dim = o.head_dim, other_dim = o.group, step = other.shape[1] == other_dim ? 0 : other_dim;
  for (Index row = 0; row < x.shape[0]; ++row) {
    T* to = y.data + row * y.shape[1];
    for (Index head = 0; head * dim < x.shape[1]; ++head) {
      to = std::copy_n(x.data + row * x.shape[1] + head * dim, dim, to);
      to = std::copy_n(other.data + row * other.shape[1] + head * step, other_dim, to);
    }
  }
}

/// y = each head of x times its number in `numbers`, rounded to the type.
template <class T>
void multiply_heads(const Operation& o, const View<T, 2>& x, const View<T, 2>& numbers, const View<T, 2>& y) {
  const T* factor = numbers.data;
  for (Index at = 0; at < x.shape[0] * x.shape[1]; at += o.head_dim, ++factor)
    std::transform(x.data + at, x.data + at + o.head_dim, y.data + at,
                   [&](T number) { return static_cast<T>(static_cast<float>(number) * static_cast<float>(*factor)); });
}

}  // namespace headlane::python
