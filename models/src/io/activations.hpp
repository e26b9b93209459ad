// Activations by their names in transformers.
#pragma once

#include <headlane/activation_kind.hpp>

#include <optional>
#include <string_view>
#include <utility>

namespace headlane::models::internal {

inline constexpr std::string_view activation_names = "gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu, swish";

inline std::optional<Activation> activation_named(std::string_view name) {
  constexpr std::pair<std::string_view, Activation> all[] = {
      {"gelu", Activation::gelu},           {"gelu_new", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh}, {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"relu", Activation::relu},           {"silu", Activation::silu},
      {"swish", Activation::silu}};
  for (const auto& [known, activation] : all)
    if (known == name) return activation;
  return std::nullopt;
}

}  // namespace headlane::models::internal
