// Computes one case with the C++ library, for the Python tests to compare bits with. Reads dense
// float32 operands, concatenated, from standard input, and writes the outputs to standard output.
//   gemm M N K ALPHA BETA: a b c
//   linear M N K ACTIVATION: x weights bias residual
//   activate N ACTIVATION: x
//   softmax ROWS N SCALE LOG: x
//   attention BATCH HEADS KV_HEADS Q_LENGTH KV_LENGTH DIM VALUE_DIM CAUSAL OFFSET MASK:
//     q k v [mask]
// MASK is none, bool (a float mask, where it is not 0) or bias. attention writes the output and the
// log-sum-exp.
#include <headlane/headlane.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using headlane::Index, headlane::View;
using Arguments = std::vector<std::string>;

template <int Rank>
View<float, Rank> zeros(std::vector<std::vector<float>>& storage, const std::array<Index, std::size_t{Rank}>& shape) {
  Index count = 1;
  for (const Index size : shape) count *= size;
  storage.emplace_back(static_cast<std::size_t>(count));
  return {storage.back().data(), shape};
}

template <int Rank>
View<float, Rank> input(std::vector<std::vector<float>>& storage, const std::array<Index, std::size_t{Rank}>& shape) {
  const View<float, Rank> view = zeros<Rank>(storage, shape);
  const std::size_t count = storage.back().size();
  if (std::fread(view.data, sizeof(float), count, stdin) != count) throw std::runtime_error("input is too short");
  return view;
}

void write(const std::vector<float>& values) {
  if (std::fwrite(values.data(), sizeof(float), values.size(), stdout) != values.size())
    throw std::runtime_error("cannot write");
}

void gemm(const Arguments& arguments) {
  const Index m = std::stol(arguments[0]), n = std::stol(arguments[1]), k = std::stol(arguments[2]);
  std::vector<std::vector<float>> storage;
  const auto a = input<2>(storage, {m, k}), b = input<2>(storage, {k, n}), c = input<2>(storage, {m, n});
  headlane::gemm(a, b, c, {.alpha = std::stof(arguments[3]), .beta = std::stof(arguments[4])});
  write(storage[2]);
}

// The names in the order of the enumeration.
headlane::Activation activation_named(const std::string& name) {
  constexpr std::array names{"none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf"};
  const auto* found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::invalid_argument("there is no activation " + name);
  return static_cast<headlane::Activation>(found - names.begin());
}

void linear(const Arguments& arguments) {
  const Index m = std::stol(arguments[0]), n = std::stol(arguments[1]), k = std::stol(arguments[2]);
  std::vector<std::vector<float>> storage;
  const auto x = input<2>(storage, {m, k}), weights = input<2>(storage, {k, n});
  headlane::GemmOptions options{.activation = activation_named(arguments[3])};
  options.bias = input<1>(storage, {n});
  options.residual = input<2>(storage, {m, n});
  headlane::gemm(x, headlane::PackedMatrix(weights), zeros<2>(storage, {m, n}), options);
  write(storage.back());
}

void activate(const Arguments& arguments) {
  std::vector<std::vector<float>> storage;
  const auto x = input<1>(storage, {std::stol(arguments[0])});
  headlane::activate(x, x, activation_named(arguments[1]));
  write(storage[0]);
}

void softmax(const Arguments& arguments) {
  std::vector<std::vector<float>> storage;
  const auto x = input<2>(storage, {std::stol(arguments[0]), std::stol(arguments[1])});
  headlane::softmax(x, x, {.scale = std::stof(arguments[2]), .log = arguments[3] == "1"});
  write(storage[0]);
}

void attention(const Arguments& arguments) {
  std::array<Index, 9> n{};
  for (std::size_t i = 0; i < n.size(); ++i) n[i] = std::stol(arguments[i]);
  const auto [batch, heads, kv_heads, q_length, kv_length, dim, value_dim, causal, offset] = n;
  std::vector<std::vector<float>> storage;
  const auto q = input<4>(storage, {batch, heads, q_length, dim}),
             k = input<4>(storage, {batch, kv_heads, kv_length, dim});
  const auto v = input<4>(storage, {batch, kv_heads, kv_length, value_dim});
  headlane::AttentionOptions options{.causal = causal != 0, .causal_offset = offset};
  std::unique_ptr<bool[]> mask;
  if (arguments[9] != "none") {
    options.bias = input<4>(storage, {batch, heads, q_length, kv_length});
    const std::vector<float>& values = storage.back();
    mask = std::make_unique<bool[]>(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) mask[i] = values[i] != 0;
    if (arguments[9] == "bool") {
      options.mask = {mask.get(), options.bias.shape};
      options.bias = {};
    }
  }
  const auto out = zeros<4>(storage, {batch, heads, q_length, value_dim});
  options.lse = zeros<3>(storage, {batch, heads, q_length});
  headlane::attention(q, k, v, out, options);
  write(storage[storage.size() - 2]);
  write(storage.back());
}

}  // namespace

int main(int count, char** words) {
  try {
    const Arguments all(words + 1, words + count);
    const Arguments arguments(all.begin() + 1, all.end());
    if (all[0] == "gemm") gemm(arguments);
    if (all[0] == "linear") linear(arguments);
    if (all[0] == "activate") activate(arguments);
    if (all[0] == "softmax") softmax(arguments);
    if (all[0] == "attention") attention(arguments);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "same_bits: %s\n", error.what());
    return 1;
  }
}
