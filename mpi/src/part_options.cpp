#include "part_options.hpp"

#include <algorithm>

namespace headlane::mpi::internal {
namespace {

/// values[b] = f(given(b)); `given` then refers to the values.
template <class F>
void replace(View<const Index, 1>& given, std::vector<Index>& values, const F& f) {
  if (!given) return;
  for (Index b = 0; b < given.shape[0]; ++b) values.push_back(f(given(b)));
  given = {values.data(), {given.shape[0]}};
}

template <class V>
void slice(V& view, int axis, Index begin, Index end) {
  if (view) view = view.slice(axis, begin, end);
}

}  // namespace

PartOptions::PartOptions(const AttentionOptions& whole, const Rows& rows, const Keys& keys) : options(whole) {
  AttentionOptions& o = options;
  o.lse = o.sum = {};
  o.sinks = {};
  const auto shifted = [&](Index offset) { return std::clamp(offset, -beyond, beyond) + rows.position - keys.first; };
  o.causal_offset = shifted(o.causal_offset);
  replace(o.causal_offsets, offsets_, shifted);
  replace(o.query_lengths, query_lengths_,
          [&](Index length) { return std::clamp<Index>(length - rows.position, 0, rows.count); });
  replace(o.key_lengths, key_lengths_,
          [&](Index length) { return std::clamp<Index>(length - keys.first, 0, keys.count()); });
  const auto per_score = [&](auto& view, Index first, Index end) {
    slice(view, 2, rows.local, rows.local + rows.count);
    slice(view, 3, first, end);
  };
  per_score(o.mask, keys.first, keys.end);
  per_score(o.bias, keys.first, keys.end);
  per_score(o.mask_bits, keys.first / 8, (keys.end + 7) / 8);
}

AttentionOptions of_element(AttentionOptions o, Index element) {
  for (auto* values : {&o.causal_offsets, &o.query_lengths, &o.key_lengths}) slice(*values, 0, element, element + 1);
  slice(o.mask, 0, element, element + 1);
  slice(o.mask_bits, 0, element, element + 1);
  slice(o.bias, 0, element, element + 1);
  return o;
}

}  // namespace headlane::mpi::internal
