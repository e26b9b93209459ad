#include "layers/team_output.hpp"

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "layers/rows.hpp"

#include <algorithm>
#include <cstddef>

namespace headlane::internal {

TeamOutput::TeamOutput(const Shares& shares, Index width, const View<float, 3>& y)
    : shares_(shares), width_(width), rows_(y.shape[0] * y.shape[1]), y_(y), own_(y) {
  if (!shares.divided()) return;
  own_.shape[2] = shares.own() * width;
  if (is_empty(y)) return;
  const bool in_place = rows_ == 1 && (y.shape[2] == 1 || y.strides[2] == 1);
  if (!in_place) staging_ = scratch_rows(Purpose::team, y.shape[0], y.shape[1], y.shape[2]).data;
  float* const first = in_place ? y.data : staging_;
  own_ = {first + rows_ * shares.begin() * width, own_.shape};
}

View<const float, 3> TeamOutput::own_of(const View<const float, 3>& view) const {
  if (!view || !shares_.divided()) return view;
  return view.slice(2, shares_.begin() * width_, shares_.end() * width_);
}

void TeamOutput::gather(int num_threads) const {
  if (!shares_.divided() || is_empty(y_)) return;
  const std::span<const Index> begins = shares_.begins();
  auto* const scaled = scratch_array<Index>(Purpose::team_begins, std::ssize(begins));
  for (std::size_t r = 0; r < begins.size(); ++r) scaled[r] = rows_ * width_ * begins[r];
  float* const buffer = staging_ == nullptr ? y_.data : staging_;
  shares_.team()->all_gather(buffer, {scaled, begins.size()});
  if (staging_ == nullptr) return;
  const int threads = useful_threads(0, static_cast<double>(rows_ * y_.shape[2]), num_threads);
  parallel_parts(rows_, 1, threads, [&](Index row, Index end) {
    for (; row < end; ++row) {
      float* const to = y_.data + row / y_.shape[1] * y_.strides[0] + row % y_.shape[1] * y_.strides[1];
      for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
        const Index first = begins[r] * width_, columns = begins[r + 1] * width_ - first;
        const float* const from = staging_ + scaled[r] + row * columns;
        if (y_.strides[2] == 1) std::copy_n(from, columns, to + first);
        else
          for (Index j = 0; j < columns; ++j) to[(first + j) * y_.strides[2]] = from[j];
      }
    }
  });
}

}  // namespace headlane::internal
