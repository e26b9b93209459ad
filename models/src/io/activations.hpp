// Activations by their names in transformers.
#pragma once

#include <headlane/activation_kind.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace headlane::models::internal {

inline constexpr std::pair<std::string_view, Activation> activations[] = {
    {"gelu", Activation::gelu},           {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh}, {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"relu", Activation::relu},           {"silu", Activation::silu},
    {"swish", Activation::silu}};

inline std::optional<Activation> activation_named(std::string_view name) {
  for (const auto& [known, activation] : activations)
    if (known == name) return activation;
  return std::nullopt;
}

/// All names, for messages.
inline std::string activation_names() {
  std::string result;
  for (const auto& [name, activation] : activations) result.append(result.empty() ? "" : ", ").append(name);
  return result;
}

}  // namespace headlane::models::internal
