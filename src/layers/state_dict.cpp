// The tensors of layers, out of the order in which products read them.
#include "layers/calls.hpp"
#include "layers/state_dict_reader.hpp"

#include <algorithm>

namespace headlane {

using namespace internal;

namespace {

class Tensors {
 public:
  explicit Tensors(std::string_view prefix) : prefix_(prefix) {}

  [[nodiscard]] std::string name(std::string_view of) const { return prefix_ + std::string(of); }

  void add(std::string_view name, const std::vector<float>& vector) {
    if (!vector.empty()) dict_[this->name(name)] = {{std::ssize(vector)}, vector};
  }
  /// The weight [out, in] of a product with columns [in, out]: `count` of them from the column `first` on.
  void add(std::string_view name, const PackedMatrix& packed, Index first, Index count) {
    OwnedTensor& tensor = dict_[this->name(name)];
    append(tensor, packed, first, count);
  }
  void add(std::string_view name, const PackedMatrix& packed) { add(name, packed, 0, packed.columns()); }
  /// Below what is there.
  void append(std::string_view name, const PackedMatrix& packed, Index first, Index count) {
    append(dict_[this->name(name)], packed, first, count);
  }
  void add(OwnedStateDict part) { dict_.merge(part); }

  [[nodiscard]] OwnedStateDict take() { return std::move(dict_); }

 private:
  static void append(OwnedTensor& tensor, const PackedMatrix& packed, Index first, Index count) {
    const Index width = packed.rows();
    std::vector<float> all(static_cast<std::size_t>(packed.columns() * width));
    packed.unpack(View<float, 2>(all.data(), {packed.columns(), width}).transposed());
    const auto begin = all.begin() + first * width;
    tensor.data.insert(tensor.data.end(), begin, begin + count * width);
    tensor.shape = {(tensor.shape.empty() ? 0 : tensor.shape[0]) + count, width};
  }

  std::string prefix_;
  OwnedStateDict dict_;
};

}  // namespace

OwnedStateDict Linear::state_dict(std::string_view prefix) const {
  Tensors tensors(prefix);
  tensors.add("weight", weight_);
  tensors.add("bias", bias_);
  return tensors.take();
}

OwnedStateDict Normalization::state_dict(std::string_view prefix) const {
  Tensors tensors(prefix);
  tensors.add("weight", weight_);
  tensors.add("bias", bias_);
  return tensors.take();
}

OwnedStateDict Embedding::state_dict(std::string_view prefix) const {
  Tensors tensors(prefix);
  if (options_.tied) tensors.add("weight", packed_);
  else tensors.add(OwnedStateDict{{tensors.name("weight"), {{rows_, columns_}, table_}}});
  return tensors.take();
}

OwnedStateDict MultiHeadAttention::state_dict(std::string_view prefix) const {
  Tensors tensors(prefix);
  const ProjectionColumns c = LayerCalls::columns(*this);
  if (memory_width_ == x_width_) {
    tensors.add("in_proj_weight", in_proj_, 0, c.q_width);
    tensors.append("in_proj_weight", in_proj_, c.k, c.kv_width);
    tensors.append("in_proj_weight", in_proj_, c.v, c.kv_width);
  } else {
    tensors.add("q_proj_weight", in_proj_, 0, c.q_width);
    tensors.add("k_proj_weight", memory_proj_, 0, c.kv_width);
    tensors.add("v_proj_weight", memory_proj_, c.v - c.k, c.kv_width);
  }
  if (!in_bias_.empty()) {
    std::vector<float> bias;
    for (const auto& [first, count] : {std::pair(Index{0}, c.q_width), {c.k, c.kv_width}, {c.v, c.kv_width}})
      bias.insert(bias.end(), in_bias_.begin() + first, in_bias_.begin() + first + count);
    tensors.add("in_proj_bias", bias);
  }
  tensors.add(out_proj_.state_dict(tensors.name("out_proj.")));
  return tensors.take();
}

OwnedStateDict FeedForward::state_dict(std::string_view prefix) const {
  Tensors tensors(prefix);
  tensors.add("linear1.weight", linear1_);
  tensors.add("linear1.bias", bias1_);
  if (gated_) tensors.add("linear_gate.weight", gate_);
  tensors.add("linear_gate.bias", gate_bias_);
  tensors.add("linear2.weight", linear2_);
  tensors.add("linear2.bias", bias2_);
  return tensors.take();
}

OwnedStateDict EncoderLayer::state_dict(std::string_view prefix) const {
  Tensors tensors(prefix);
  tensors.add(self_attn_.state_dict(tensors.name("self_attn.")));
  tensors.add(feed_forward_.state_dict(prefix));
  tensors.add(norm1_.state_dict(tensors.name("norm1.")));
  tensors.add(norm2_.state_dict(tensors.name("norm2.")));
  return tensors.take();
}

OwnedStateDict DecoderLayer::state_dict(std::string_view prefix) const {
  Tensors tensors(prefix);
  tensors.add(self_attn_.state_dict(tensors.name("self_attn.")));
  tensors.add(multihead_attn_.state_dict(tensors.name("multihead_attn.")));
  tensors.add(feed_forward_.state_dict(prefix));
  tensors.add(norm1_.state_dict(tensors.name("norm1.")));
  tensors.add(norm2_.state_dict(tensors.name("norm2.")));
  tensors.add(norm3_.state_dict(tensors.name("norm3.")));
  return tensors.take();
}

}  // namespace headlane
