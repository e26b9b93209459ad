#include <headlane/linear.hpp>

#include "core/call_scope.hpp"
#include "gemm/check.hpp"
#include "layers/forward_check.hpp"
#include "layers/half.hpp"
#include "layers/rows.hpp"
#include "layers/state_dict_reader.hpp"
#include "layers/state_dict_writer.hpp"
#include "layers/team_output.hpp"
#include "layers/tensor_names.hpp"
#include "layers/together.hpp"

#include <utility>

namespace headlane {

using namespace internal;

Linear::Linear(const StateDict& state, std::string_view prefix, DType weights, DType activations, Team* team)
    : activations_(activations) {
  const auto make = [&] {
    const StateDictReader tensors("Linear", state, prefix);
    OwnWeight own = tensors.weight("weight", any_size, any_size, weights, team);
    weight_ = std::move(own.matrix);
    columns_ = std::move(own.shares);
    check_activations(Caller(tensors.layer()).operand("weight", shape_of(weight_)), &weight_, activations);
    bias_ = own_elements(tensors.optional_vector("bias", out_features()), columns_);
  };
  make_together(team, "Linear", make, [&](Description& text) {
    text.add("weights", weights).add("activations", activations).add_tensors(state, prefix, "", linear_tensors);
  });
}

View<const float, 1> Linear::bias() const { return view_of(bias_); }

OwnedStateDict Linear::state_dict(std::string_view prefix) const {
  require_whole("Linear::state_dict", columns_);
  StateDictWriter tensors(prefix);
  tensors.add("weight", weight_);
  tensors.add("bias", bias_);
  return tensors.take();
}

namespace {

constexpr Caller caller = "Linear::forward";

template <class T>
void check_linear(const Linear& layer, const View<const T, 3>& x, const View<T, 3>& y, const LinearOptions& options) {
  check_forward(caller, x, layer.in_features(), y, layer.out_features(), false, options.num_threads);
  const Operand of_y = caller.operand("y", y), residual = caller.operand("residual", options.residual);
  check_epilogue(of_y, caller.operand("bias", View<const float, 1>{}), options.activation, residual);
  if (options.residual) check_same(residual, 0, "batch elements", of_y, 0, "batch elements");
}

/// The same for all ranks of a team.
template <class T>
void check_linear_together(const Linear& layer, const View<const T, 3>& x, const View<T, 3>& y, DType type,
                           const LinearOptions& options) {
  check_together(
      layer.columns().team(), caller, [&] { check_linear(layer, x, y, options); },
      [&](Description& text) {
        text.add_rows("x", x, type).add_rows("y", y, type);
        text.add("activation", static_cast<Index>(options.activation));
        if (options.residual) text.add("residual of", options.residual.type);
      });
}

void forward_halves(const Linear& layer, const HalfRows& rows, const LinearOptions& options) {
  const CallScope scope;
  check_linear_together(layer, rows.x, rows.y, rows.type, options);
  const ComparedScope compared(layer.columns().team());
  const WideRows wide(rows, options.num_threads);
  layer.forward(wide.x, wide.y, options);
  wide.round();
}

}  // namespace

void Linear::forward(View<const bfloat16, 3> x, View<bfloat16, 3> y, const LinearOptions& options) const {
  forward_halves(*this, half_rows(x, y), options);
}
void Linear::forward(View<const float16, 3> x, View<float16, 3> y, const LinearOptions& options) const {
  forward_halves(*this, half_rows(x, y), options);
}

void Linear::forward(View<const float, 3> x, View<float, 3> y, const LinearOptions& options) const {
  const CallScope scope;
  check_linear_together(*this, x, y, DType::float32, options);
  const ComparedScope compared(columns_.team());
  if (is_half(options.residual)) return forward(x, y, with_wide(options, &LinearOptions::residual));
  const TeamOutput out(columns_, 1, y);
  const View<const float, 3> residual = out.own_of(options.residual.of<float>());
  for_each_matrix(x, out.own(), residual, [&](const auto& from, const auto& to, const auto& add) {
    multiply(from, weight_, 0, to,
             {.bias = bias(),
              .activation = options.activation,
              .residual = add,
              .activations = activations_,
              .num_threads = options.num_threads});
  });
  out.gather(options.num_threads);
}

}  // namespace headlane
