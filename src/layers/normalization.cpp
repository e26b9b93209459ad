#include <headlane/normalization.hpp>

#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "layers/rows.hpp"
#include "layers/state_dict_reader.hpp"
#include "layers/state_dict_writer.hpp"

#include <headlane/norm.hpp>

#include <cmath>
#include <cstddef>
#include <string>

namespace headlane {

using namespace internal;

Normalization::Normalization(const StateDict& state, std::string_view prefix, NormKind kind, float eps)
    : kind_(kind), eps_(eps) {
  const CallScope scope;
  const StateDictReader tensors("Normalization", state, prefix);
  require(kind == NormKind::layer || kind == NormKind::rms, "Normalization: kind is ", static_cast<Index>(kind),
          ", which is none of layer and rms");
  require(eps >= 0 && std::isfinite(eps), "Normalization: eps is ", std::to_string(eps),
          ", it must be finite and not negative");
  weight_ = tensors.vector("weight", any_size);
  if (kind == NormKind::layer) bias_ = tensors.optional_vector("bias", size());
}

OwnedStateDict Normalization::state_dict(std::string_view prefix) const {
  StateDictWriter tensors(prefix);
  tensors.add("weight", weight_);
  tensors.add("bias", bias_);
  return tensors.take();
}

template <class T>
void Normalization::normalize(const AnyView<const T>& x, const AnyView<T>& y, int num_threads) const {
  const Operand of_x = Caller("Normalization::forward").operand("x", x);
  check_operand(of_x);
  of_x.require(x.rank >= 1 && x.shape[static_cast<std::size_t>(x.rank - 1)] == size(), " is ", of_x,
               ", the layer takes rows of ", size());
  if (kind_ == NormKind::layer)
    layer_norm(x, y, {.eps = eps_, .weight = view_of(weight_), .bias = view_of(bias_), .num_threads = num_threads});
  else rms_norm(x, y, {.eps = eps_, .weight = view_of(weight_), .num_threads = num_threads});
}

void Normalization::forward(AnyView<const float> x, AnyView<float> y, int num_threads) const {
  normalize(x, y, num_threads);
}
void Normalization::forward(AnyView<const bfloat16> x, AnyView<bfloat16> y, int num_threads) const {
  normalize(x, y, num_threads);
}
void Normalization::forward(AnyView<const float16> x, AnyView<float16> y, int num_threads) const {
  normalize(x, y, num_threads);
}

}  // namespace headlane
