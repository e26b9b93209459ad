// A small BERT with random weights: its folder, and a reference of the model in plain loops and
// double.
#pragma once

#include "files.hpp"
#include "support/data.hpp"

#include <headlane/models/bert.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace headlane::test {

using Sentences = std::vector<std::vector<Index>>;
using Rows = std::vector<std::vector<double>>;

/// All sizes differ, so that none can be mistaken for another.
struct BertCase {
  struct Weight {
    std::vector<Index> shape;
    std::vector<float> values;
  };

  Index vocab = 50, d = 24, layers = 2, heads = 3, inner = 40, positions = 36, types = 2;
  std::string activation = "gelu";
  double eps = 1e-12;
  std::map<std::string, Weight> weights;

  void make(std::uint64_t seed) {
    Random random(seed);
    weights.clear();
    add(random, "embeddings.word_embeddings.weight", {vocab, d}, 1);
    add(random, "embeddings.position_embeddings.weight", {positions, d}, 0.5);
    add(random, "embeddings.token_type_embeddings.weight", {types, d}, 0.5);
    add_norm(random, "embeddings.LayerNorm");
    for (Index i = 0; i < layers; ++i) {
      const std::string layer = layer_name(i);
      for (const char* part : {"query", "key", "value"}) add_linear(random, layer + "attention.self." + part, d, d);
      add_linear(random, layer + "attention.output.dense", d, d);
      add_norm(random, layer + "attention.output.LayerNorm");
      add_linear(random, layer + "intermediate.dense", inner, d);
      add_linear(random, layer + "output.dense", d, inner);
      add_norm(random, layer + "output.LayerNorm");
    }
  }

  [[nodiscard]] std::string config(const std::string& more = {}) const {
    const auto entry = [](const char* key, Index value) {
      return std::string("\"").append(key).append("\": ").append(std::to_string(value)).append(", ");
    };
    std::string text = R"({"model_type": "bert", )";
    text += entry("vocab_size", vocab) + entry("hidden_size", d) + entry("num_hidden_layers", layers) +
            entry("num_attention_heads", heads) + entry("intermediate_size", inner) +
            entry("max_position_embeddings", positions) + entry("type_vocab_size", types);
    text += R"("hidden_act": ")" + activation + R"(", "layer_norm_eps": )" + (eps < 1e-6 ? "1e-12" : "1e-1");
    return text + more + "}";
  }

  /// `without`: a tensor that is left out; old: norms named as in the first BERT.
  void write(const Folder& folder, const std::string& prefix = "", const std::string& without = "",
             bool old = false) const {
    FileBuilder file;
    for (const auto& [name, weight] : weights) {
      if (name == without) continue;
      std::string written = prefix + name;
      if (old && name.ends_with("LayerNorm.weight")) written.replace(written.size() - 6, 6, "gamma");
      if (old && name.ends_with("LayerNorm.bias")) written.replace(written.size() - 4, 4, "beta");
      file.add(written, "F32", weight.shape, bytes_of(weight.values));
    }
    folder.write("model.safetensors", file.file());
    folder.write("config.json", config());
  }

  /// The hidden states of the last layer for one sentence.
  [[nodiscard]] Rows states(const std::vector<Index>& ids, const std::vector<Index>& type_ids = {}) const {
    Rows x(ids.size(), std::vector<double>(static_cast<std::size_t>(d)));
    for (std::size_t i = 0; i < ids.size(); ++i)
      for (std::size_t j = 0; j < x[i].size(); ++j)
        x[i][j] = at("embeddings.word_embeddings.weight", ids[i], j) +
                  at("embeddings.token_type_embeddings.weight", type_ids.empty() ? 0 : type_ids[i], j) +
                  at("embeddings.position_embeddings.weight", static_cast<Index>(i), j);
    norm(x, "embeddings.LayerNorm");
    for (Index i = 0; i < layers; ++i) {
      const std::string layer = layer_name(i);
      add_to(x, linear(attended(x, layer + "attention.self."), layer + "attention.output.dense"));
      norm(x, layer + "attention.output.LayerNorm");
      Rows hidden = linear(x, layer + "intermediate.dense");
      for (auto& row : hidden)
        for (double& value : row) value = activated(value);
      add_to(x, linear(hidden, layer + "output.dense"));
      norm(x, layer + "output.LayerNorm");
    }
    return x;
  }

  /// One number of what the states of a sentence come to, those of its first `before` tokens left
  /// out.
  static double pooled_at(const Rows& states, models::Pooling pooling, std::size_t before, std::size_t j) {
    double sum = 0, weights = 0, most = -1e300;
    for (std::size_t i = before; i < states.size(); ++i) {
      const double weight = pooling == models::Pooling::weightedmean ? static_cast<double>(i + 1) : 1;
      sum += weight * states[i][j];
      weights += weight;
      most = std::max(most, states[i][j]);
    }
    switch (pooling) {
      case models::Pooling::cls:
        return states[before][j];
      case models::Pooling::lasttoken:
        return states.back()[j];
      case models::Pooling::max:
        return most;
      case models::Pooling::mean_sqrt_len_tokens:
        return sum / std::sqrt(weights);
      default:
        return sum / weights;
    }
  }

  static std::vector<double> pooled(const Rows& states, models::Pooling pooling, bool normalize,
                                    std::size_t before = 0) {
    std::vector<double> result;
    double squares = 0;
    for (std::size_t j = 0; j < states[0].size(); ++j) {
      result.push_back(pooled_at(states, pooling, before, j));
      squares += result.back() * result.back();
    }
    for (double& x : result) x /= normalize ? std::sqrt(squares) : 1;
    return result;
  }

  /// Random token ids of sentences of these lengths.
  [[nodiscard]] Sentences sentences(const std::vector<Index>& lengths, std::uint64_t seed) const {
    Random random(seed);
    Sentences result;
    for (const Index length : lengths) {
      std::vector<Index>& ids = result.emplace_back();
      for (Index i = 0; i < length; ++i) ids.push_back(random.integer(0, vocab - 1));
    }
    return result;
  }

 private:
  static std::string layer_name(Index i) { return std::string("encoder.layer.").append(std::to_string(i)).append("."); }

  void add(Random& random, const std::string& name, const std::vector<Index>& shape, double scale, double middle = 0) {
    Weight& weight = weights[name];
    weight.shape = shape;
    Index size = 1;
    for (const Index n : shape) size *= n;
    for (Index i = 0; i < size; ++i)
      weight.values.push_back(static_cast<float>(middle + scale * static_cast<double>(random.normal())));
  }
  void add_linear(Random& random, const std::string& name, Index out, Index in) {
    add(random, name + ".weight", {out, in}, 2 / std::sqrt(static_cast<double>(in)));  // scores of some size
    add(random, name + ".bias", {out}, 0.5);
  }
  void add_norm(Random& random, const std::string& name) {
    add(random, name + ".weight", {d}, 0.3, 1);
    add(random, name + ".bias", {d}, 0.3);
  }

  [[nodiscard]] double at(const std::string& name, Index i, std::size_t j) const {
    const Weight& weight = weights.at(name);
    return static_cast<double>(weight.values[static_cast<std::size_t>(i * weight.shape[1]) + j]);
  }

  [[nodiscard]] Rows linear(const Rows& x, const std::string& name) const {
    const Weight &weight = weights.at(name + ".weight"), &bias = weights.at(name + ".bias");
    Rows y;
    for (const auto& row : x) {
      std::vector<double>& result = y.emplace_back(bias.values.begin(), bias.values.end());
      for (std::size_t o = 0; o < result.size(); ++o)
        for (std::size_t i = 0; i < row.size(); ++i)
          result[o] += row[i] * static_cast<double>(weight.values[o * row.size() + i]);
    }
    return y;
  }

  void norm(Rows& x, const std::string& name) const {
    const Weight &weight = weights.at(name + ".weight"), &bias = weights.at(name + ".bias");
    for (auto& row : x) {
      const auto n = static_cast<double>(row.size());
      double mean = 0, variance = 0;
      for (const double value : row) mean += value / n;
      for (const double value : row) variance += (value - mean) * (value - mean) / n;
      for (std::size_t j = 0; j < row.size(); ++j)
        row[j] = (row[j] - mean) / std::sqrt(variance + eps) * static_cast<double>(weight.values[j]) +
                 static_cast<double>(bias.values[j]);
    }
  }

  static void add_to(Rows& x, const Rows& y) {
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < x[i].size(); ++j) x[i][j] += y[i][j];
  }

  [[nodiscard]] Rows attended(const Rows& x, const std::string& name) const {
    const Rows q = linear(x, name + "query"), k = linear(x, name + "key"), v = linear(x, name + "value");
    const auto dim = static_cast<std::size_t>(d / heads);
    Rows out(x.size(), std::vector<double>(static_cast<std::size_t>(d)));
    for (std::size_t from = 0; from < static_cast<std::size_t>(d); from += dim) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        double sum = 0;
        std::vector<double> weight(x.size());
        for (std::size_t j = 0; j < x.size(); ++j) {
          double score = 0;
          for (std::size_t c = from; c < from + dim; ++c) score += q[i][c] * k[j][c];
          sum += weight[j] = std::exp(score / std::sqrt(static_cast<double>(dim)));
        }
        for (std::size_t j = 0; j < x.size(); ++j)
          for (std::size_t c = from; c < from + dim; ++c) out[i][c] += weight[j] / sum * v[j][c];
      }
    }
    return out;
  }

  [[nodiscard]] double activated(double x) const {
    if (activation == "relu") return std::max(x, 0.0);
    if (activation == "silu" || activation == "swish") return x / (1 + std::exp(-x));
    if (activation == "gelu") return x * std::erfc(-x / std::numbers::sqrt2) / 2;
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
};

}  // namespace headlane::test
