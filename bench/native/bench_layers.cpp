// Layers with d_model = 512, 8 heads, d_ff = 2048, GELU: an encoder layer, and its attention layer
// alone. Only the products count as work; norms, softmax, GELU and additions take time all the
// same.
#include "buffer.hpp"
#include "cases.hpp"
#include "machine.hpp"

#include <headlane/layers.hpp>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bench {

namespace {

using headlane::View;

constexpr Index d_ff = 2048;

/// The tensors of torch.nn.TransformerEncoderLayer, small enough that activations do not grow.
class Tensors {
 public:
  Tensors() {
    add("self_attn.in_proj_weight", {3 * d_model, d_model});
    add("self_attn.in_proj_bias", {3 * d_model});
    add("self_attn.out_proj.weight", {d_model, d_model});
    add("self_attn.out_proj.bias", {d_model});
    add("linear1.weight", {d_ff, d_model});
    add("linear1.bias", {d_ff});
    add("linear2.weight", {d_model, d_ff});
    add("linear2.bias", {d_model});
    for (const std::string norm : {"norm1", "norm2"}) {
      add(norm + ".weight", {d_model});
      add(norm + ".bias", {d_model});
    }
  }
  [[nodiscard]] const headlane::StateDict& state() const { return state_; }

 private:
  void add(const std::string& name, std::initializer_list<Index> shape) {
    const Index rows = *shape.begin();
    const Index columns = shape.size() == 2 ? *(shape.begin() + 1) : 1;
    const auto seed = static_cast<std::uint32_t>(buffers_.size() + 1);
    buffers_.push_back(std::make_unique<Buffer>(rows * columns, seed, 0.05f));
    float* data = buffers_.back()->data();
    if (shape.size() == 2) {
      state_.emplace(name, View<const float, 2>(data, {rows, columns}));
    } else {
      state_.emplace(name, View<const float, 1>(data, {rows}));
    }
  }

  std::vector<std::unique_ptr<Buffer>> buffers_;
  headlane::StateDict state_;
};

struct LayerData {
  explicit LayerData(Index size) : x(size, 100), y(size) {}
  Buffer x, y;
};

template <class Layer>
Work work_of(Layer made, Index batch, Index length) {
  const auto layer = std::make_shared<const Layer>(std::move(made));
  const auto data = std::make_shared<LayerData>(batch * length * d_model);
  const View<const float, 3> x(data->x.data(), {batch, length, d_model});
  const View<float, 3> y(data->y.data(), {batch, length, d_model});
  return {.library = [layer, data, x, y] { layer->forward(x, y); },
          .naive = {},
          .limit = fma_peak,
          .output = data->y.values()};
}

Work prepare(bool encoder, Index batch, Index length) {
  const Tensors tensors;  // a layer copies what it needs
  const headlane::MultiHeadAttentionOptions attention{.heads = heads};
  if (!encoder) return work_of(headlane::MultiHeadAttention(tensors.state(), "self_attn.", attention), batch, length);
  const headlane::TransformerLayerOptions options{.attention = attention, .activation = headlane::Activation::gelu};
  return work_of(headlane::EncoderLayer(tensors.state(), "", options), batch, length);
}

}  // namespace

Case layer_case(bool encoder, Index batch, Index length, bool quick) {
  const double projections = 8.0 * static_cast<double>(d_model * d_model);
  const double feed_forward = encoder ? 4.0 * static_cast<double>(d_model * d_ff) : 0;
  const double scores = 4.0 * static_cast<double>(d_model * length);
  const double flops = static_cast<double>(batch * length) * (projections + feed_forward + scores);
  return {.op = encoder ? "encoder_layer" : "attention_layer",
          .size = (batch > 1 ? std::to_string(batch) + "x" : "") + std::to_string(length),
          .amount = flops,
          .flops = flops,
          .quick = quick,
          .prepare = [=] { return prepare(encoder, batch, length); },
          .naive = false};
}

std::vector<Case> layer_cases() {
  std::vector<Case> cases;
  for (const bool encoder : {false, true}) {
    for (const Index length : {16, 128, 512}) cases.push_back(layer_case(encoder, 1, length, length < 512));
    cases.push_back(layer_case(encoder, 16, 128));
  }
  return cases;
}

}  // namespace bench
