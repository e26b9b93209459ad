#include "layers.hpp"

#include <headlane/headlane.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace peers {

namespace {

using headlane::View;

constexpr float layer_eps = 1e-5f;  // as in truth/layers.py
constexpr float rms_eps = 1e-6f;

// The tensors of a layer, read from files with their names. Only needed until the layer is
// constructed: it packs its weights.
class Tensors {
 public:
  explicit Tensors(const Arguments& arguments) : arguments_(arguments) {}

  void add(const std::string& name, Index size) { state_.emplace(name, View<const float, 1>(read(name), {size})); }
  void add(const std::string& name, Index rows, Index columns) {
    state_.emplace(name, View<const float, 2>(read(name), {rows, columns}));
  }
  [[nodiscard]] const headlane::StateDict& state() const { return state_; }

 private:
  const float* read(const std::string& name) { return arrays_.emplace_back(arguments_.input(name)).data(); }

  const Arguments& arguments_;
  std::vector<Array> arrays_;
  headlane::StateDict state_;
};

template <class Layer>
void set_call(Job& job, Layer made, View<const float, 3> x, View<float, 3> y) {
  const auto layer = std::make_shared<const Layer>(std::move(made));
  job.call = [=] { layer->forward(x, y); };
}

/// none if it is a norm.
headlane::Activation activation_named(const std::string& kind) {
  if (kind == "gelu") return headlane::Activation::gelu;
  if (kind == "sigmoid") return headlane::Activation::sigmoid;
  return kind == "tanh" ? headlane::Activation::tanh : headlane::Activation::none;
}

}  // namespace

Job norms(const Arguments& arguments) {
  const Index rows = arguments.number("rows");
  const Index columns = arguments.number("columns");
  const std::string kind = arguments.text("kind");
  Job job;
  job.arrays.emplace_back(arguments.input("x"));
  const View<const float, 2> x(job.arrays[0].data(), {rows, columns});
  const auto activation = activation_named(kind);
  View<const float, 1> weight;
  View<const float, 1> bias;
  if (activation == headlane::Activation::none) {
    weight = {job.arrays.emplace_back(arguments.input("weight")).data(), {columns}};
    bias = {job.arrays.emplace_back(arguments.input("bias")).data(), {columns}};
  }
  const View<float, 2> y(job.arrays.emplace_back(rows * columns).data(), {rows, columns});
  if (activation != headlane::Activation::none) {
    job.call = [=] { headlane::activate(x, y, activation); };
  } else if (kind == "rms_norm") {
    job.call = [=] { headlane::rms_norm(x, y, {.eps = rms_eps, .weight = weight}); };
  } else {
    job.call = [=] { headlane::layer_norm(x, y, {.eps = layer_eps, .weight = weight, .bias = bias}); };
  }
  return job;
}

Job layers(const Arguments& arguments) {
  const Index batch = arguments.number("batch");
  const Index length = arguments.number("length");
  const Index d_model = arguments.number("d_model");
  const Index d_ff = arguments.number("d_ff");
  const headlane::MultiHeadAttentionOptions attention{.heads = arguments.number("heads")};
  Job job;
  job.arrays.emplace_back(arguments.input("x"));
  job.arrays.emplace_back(batch * length * d_model);
  const View<const float, 3> x(job.arrays[0].data(), {batch, length, d_model});
  const View<float, 3> y(job.arrays[1].data(), {batch, length, d_model});

  Tensors tensors(arguments);
  tensors.add("self_attn.in_proj_weight", 3 * d_model, d_model);
  tensors.add("self_attn.in_proj_bias", 3 * d_model);
  tensors.add("self_attn.out_proj.weight", d_model, d_model);
  tensors.add("self_attn.out_proj.bias", d_model);
  if (arguments.text("kind") == "attention") {
    set_call(job, headlane::MultiHeadAttention(tensors.state(), "self_attn.", attention), x, y);
    return job;
  }
  tensors.add("linear1.weight", d_ff, d_model);
  tensors.add("linear1.bias", d_ff);
  tensors.add("linear2.weight", d_model, d_ff);
  tensors.add("linear2.bias", d_model);
  for (const char* name : {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}) tensors.add(name, d_model);
  const headlane::TransformerLayerOptions options{
      .attention = attention, .activation = headlane::Activation::gelu, .eps = layer_eps};
  set_call(job, headlane::EncoderLayer(tensors.state(), "", options), x, y);
  return job;
}

}  // namespace peers
