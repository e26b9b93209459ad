#include "end_result.hpp"

namespace headlane::mpi::internal {

EndResults::EndResults(const Messages& messages, Index batch, Index heads, Index rows, Index value_dim, bool with_lse)
    : batch_(batch),
      heads_(heads),
      rows_(rows),
      value_dim_(value_dim),
      with_lse_(with_lse),
      memory_(messages, batch * floats_of_element()) {}

View<float, 4> EndResults::out() const {
  const Index of_head = rows_ * value_dim_;
  return {memory_.data(), {batch_, heads_, rows_, value_dim_}, {floats_of_element(), of_head, value_dim_, 1}};
}

View<float, 3> EndResults::lse() const {
  if (!with_lse_) return {};
  return {memory_.data() + heads_ * rows_ * value_dim_, {batch_, heads_, rows_}, {floats_of_element(), rows_, 1}};
}

void EndResults::finish(Index element, const AttentionPart& part, const View<const float, 1>& sinks, const Rows& rows,
                        const View<const Index, 1>& query_lengths, int num_threads) {
  const View<float, 3> of_lse = with_lse_ ? lse().slice(0, element, element + 1) : View<float, 3>();
  merge({&part, 1}, out().slice(0, element, element + 1), {.lse = of_lse, .sinks = sinks, .num_threads = num_threads});
  if (!sinks || !query_lengths) return;
  clear_padding(out().select(0, element), with_lse_ ? of_lse.select(0, 0) : View<float, 2>(), rows,
                query_lengths(element));
}

void EndResults::copy_to(const View<float, 4>& to, const View<float, 3>& to_lse, Index first) const {
  copy(out(), to.slice(2, first, first + rows_));
  const View<float, 3> from = lse();
  for (Index b = 0; with_lse_ && b < batch_; ++b)
    for (Index h = 0; h < heads_; ++h)
      for (Index i = 0; i < rows_; ++i) to_lse(b, h, first + i) = from(b, h, i);
}

}  // namespace headlane::mpi::internal
