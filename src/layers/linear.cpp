// Linear, Normalization, Embedding.
#include "core/call_scope.hpp"
#include "gemm/check.hpp"
#include "layers/state_dict_reader.hpp"

#include <headlane/norm.hpp>

#include <cmath>

namespace headlane {

using namespace internal;

Linear::Linear(const StateDict& state, std::string_view prefix) {
  const Weights weights("Linear", state, prefix);
  weight_ = PackedMatrix(weights.matrix("weight", -1, -1).transposed());
  bias_ = weights.vector_if_any("bias", out_features());
}

void Linear::forward(View<const float, 3> x, View<float, 3> y, const LinearOptions& options) const {
  const CallScope scope;
  constexpr const char* function = "Linear::forward";
  check_forward(function, x, in_features(), y, out_features(), false, options.num_threads);
  check_finish(operand(function, "y", y), operand(function, "bias", View<const float, 1>{}), options.activation,
               operand(function, "residual", options.residual));
  if (options.residual)
    check_same(operand(function, "residual", options.residual), 0, "batch elements", operand(function, "y", y), 0,
               "batch elements");
  const auto product = [&](const auto& from, const auto& to, const auto& residual) {
    multiply(from, weight_, 0, to,
             {.bias = view_of(bias_),
              .activation = options.activation,
              .residual = residual,
              .num_threads = options.num_threads});
  };
  for_each_matrix(x, y, options.residual, product);
}

Normalization::Normalization(const StateDict& state, std::string_view prefix, NormKind kind, float eps)
    : kind_(kind), eps_(eps) {
  const Weights weights("Normalization", state, prefix);
  require(eps >= 0 && std::isfinite(eps), "Normalization: eps is ", std::to_string(eps),
          ", which is no number from 0 on");
  weight_ = weights.vector("weight", -1);
  if (kind == NormKind::layer) bias_ = weights.vector_if_any("bias", size());
}

void Normalization::forward(AnyView<const float> x, AnyView<float> y, int num_threads) const {
  const Operand of_x = operand("Normalization::forward", "x", x);
  check_operand(of_x);
  of_x.require(x.rank >= 1 && x.shape[static_cast<std::size_t>(x.rank - 1)] == size(), " is ", of_x,
               ", the layer takes rows of ", size());
  if (kind_ == NormKind::layer)
    layer_norm(x, y, {.eps = eps_, .weight = view_of(weight_), .bias = view_of(bias_), .num_threads = num_threads});
  else rms_norm(x, y, {.eps = eps_, .weight = view_of(weight_), .num_threads = num_threads});
}

}  // namespace headlane
