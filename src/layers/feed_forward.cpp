// FeedForward: a chunk of rows at a time, so that the hidden activations stay in the cache.
#include "layers/feed_forward.hpp"

#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/scratch.hpp"
#include "gemm/check.hpp"
#include "layers/forward_check.hpp"
#include "layers/half.hpp"
#include "layers/rows.hpp"
#include "layers/state_dict_reader.hpp"
#include "layers/state_dict_writer.hpp"
#include "layers/team_output.hpp"
#include "layers/tensor_names.hpp"
#include "layers/together.hpp"

#include <headlane/gemm_gated.hpp>

#include <algorithm>

namespace headlane {

using namespace internal;

namespace {

/// Hidden activations of a chunk: 4 MiB, which stay in the L3.
constexpr Index hidden_floats = Index{1} << 20;
/// A chunk is a multiple of two tiles of 12 rows, so that two threads have whole tiles.
constexpr Index row_unit = 24, min_rows = 96;

}  // namespace

FeedForward::FeedForward(const StateDict& state, std::string_view prefix, const FeedForwardOptions& options)
    : activation_(options.activation) {
  const auto make = [&] {
    const StateDictReader tensors("FeedForward", state, prefix);
    check_activation(tensors.layer(), options.activation);
    const WeightOptions stored{options.weights, options.activations, options.team};
    linear1_ = tensors.linear("linear1", any_size, any_size, stored);
    const Index d_ff = linear1_.out_features(), d_model = linear1_.in_features();
    gated_ = tensors.has("linear_gate.weight");
    if (gated_) linear_gate_ = tensors.linear("linear_gate", d_ff, d_model, stored);
    linear2_ = tensors.linear("linear2", d_model, d_ff, stored);
  };
  make_together(options.team, "FeedForward", make, [&](Description& text) {
    text.add("activation", static_cast<Index>(options.activation)).add("weights", options.weights);
    text.add("activations", options.activations).add_tensors(state, prefix, "", feed_forward_tensors);
  });
}

OwnedStateDict FeedForward::state_dict(std::string_view prefix) const {
  require_whole("FeedForward::state_dict", linear2_.columns());
  StateDictWriter tensors(prefix);
  tensors.add(linear1_.state_dict(tensors.name("linear1.")));
  if (gated_) tensors.add(linear_gate_.state_dict(tensors.name("linear_gate.")));
  tensors.add(linear2_.state_dict(tensors.name("linear2.")));
  return tensors.take();
}

namespace {

template <class T>
void check_rows(const FeedForward& layer, const View<const T, 3>& x, const View<T, 3>& y, DType type, int num_threads) {
  constexpr Caller caller = "FeedForward::forward";
  check_together(
      layer.linear1().columns().team(), caller,
      [&] { check_forward(caller, x, layer.d_model(), y, layer.d_model(), true, num_threads); },
      [&](Description& text) { text.add_rows("x", x, type).add_rows("y", y, type); });
}

void forward_halves(const FeedForward& layer, const HalfRows& rows, int num_threads) {
  const CallScope scope;
  check_rows(layer, rows.x, rows.y, rows.type, num_threads);
  const ComparedScope compared(layer.linear1().columns().team());
  const WideRows wide(rows, num_threads);
  layer.forward(wide.x, wide.y, num_threads);
  wide.round();
}

}  // namespace

void FeedForward::forward(View<const bfloat16, 3> x, View<bfloat16, 3> y, int num_threads) const {
  forward_halves(*this, half_rows(x, y), num_threads);
}
void FeedForward::forward(View<const float16, 3> x, View<float16, 3> y, int num_threads) const {
  forward_halves(*this, half_rows(x, y), num_threads);
}

void FeedForward::forward(View<const float, 3> x, View<float, 3> y, int num_threads) const {
  const CallScope scope;
  check_rows(*this, x, y, DType::float32, num_threads);
  const ComparedScope compared(linear1_.columns().team());
  feed_forward(*this, x, y, {}, num_threads);
}

namespace {

/// The own columns of the hidden layer for some rows.
void compute_hidden(const FeedForward& layer, const View<const float, 2>& rows, const View<float, 2>& hidden,
                    int num_threads) {
  const Linear &linear1 = layer.linear1(), &gate = layer.linear_gate();
  if (is_empty(hidden)) return;
  if (layer.gated())
    gemm_gated(rows, gate.weight(), linear1.weight(), hidden,
               {.activation = layer.activation(),
                .gate_bias = gate.bias(),
                .up_bias = linear1.bias(),
                .activations = linear1.activations(),
                .num_threads = num_threads});
  else
    multiply(rows, linear1.weight(), 0, hidden,
             {.bias = linear1.bias(),
              .activation = layer.activation(),
              .activations = linear1.activations(),
              .num_threads = num_threads});
}

}  // namespace

void internal::feed_forward(const FeedForward& layer, const View<const float, 3>& x, const View<float, 3>& y,
                            const View<const float, 3>& residual, int num_threads) {
  const Linear &linear1 = layer.linear1(), &linear2 = layer.linear2();
  const Index d_ff = layer.d_ff();
  const Index chunk = std::max(min_rows, hidden_floats / std::max<Index>(d_ff, 1) / row_unit * row_unit);
  for_each_matrix(x, y, residual, [&](const auto& from, const auto& to, const auto& add) {
    for (Index row = 0; row < from.shape[0]; row += chunk) {
      const Index end = std::min(from.shape[0], row + chunk);
      const View<float, 2> hidden(scratch(Purpose::wide, std::max<Index>((end - row) * d_ff, 1)), {end - row, d_ff});
      const TeamOutput part(linear1.columns(), 1, hidden.broadcast(0, 1));
      compute_hidden(layer, from.slice(0, row, end), part.own().select(0, 0), num_threads);
      part.gather(num_threads);
      const TeamOutput out(linear2.columns(), 1, to.slice(0, row, end).broadcast(0, 1));
      const View<float, 2> own = out.own().select(0, 0);
      const View<const float, 2> all_of_add = add ? add.slice(0, row, end) : add;
      if (!is_empty(own))
        multiply(hidden, linear2.weight(), 0, own,
                 {.bias = linear2.bias(),
                  .residual = add ? out.own_of(all_of_add.broadcast(0, 1)).select(0, 0) : add,
                  .activations = linear2.activations(),
                  .num_threads = num_threads});
      out.gather(num_threads);
    }
  });
}

}  // namespace headlane
