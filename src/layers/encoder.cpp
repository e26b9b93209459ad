#include "core/call_scope.hpp"
#include "layers/feed_forward.hpp"
#include "layers/half.hpp"
#include "layers/state_dict_writer.hpp"
#include "layers/sublayer.hpp"
#include "layers/tensor_names.hpp"
#include "layers/together.hpp"

#include <headlane/encoder_layer.hpp>

namespace headlane {

using namespace internal;

EncoderLayer::EncoderLayer(const StateDict& state, std::string_view prefix, const TransformerLayerOptions& options)
    : norm_first_(options.norm_first) {
  const auto make = [&] {
    self_attn_ = MultiHeadAttention(state, joined(prefix, "self_attn."), attention_options(options));
    feed_forward_ = FeedForward(state, prefix, feed_forward_options(options));
    norm1_ = Normalization(state, joined(prefix, "norm1."), options.norm, options.eps);
    norm2_ = Normalization(state, joined(prefix, "norm2."), options.norm, options.eps);
    check_widths("EncoderLayer", feed_forward_.d_model(), self_attn_, norm1_, norm2_);
  };
  make_together(options.team, "EncoderLayer", make, [&](Description& text) {
    describe(text, options);
    text.add_tensors(state, prefix, "self_attn.", attention_tensors);
    text.add_tensors(state, prefix, "", feed_forward_tensors);
    for (const char* norm : {"norm1.", "norm2."}) text.add_tensors(state, prefix, norm, linear_tensors);
  });
}

OwnedStateDict EncoderLayer::state_dict(std::string_view prefix) const {
  require_whole("EncoderLayer::state_dict", self_attn_.shares());
  StateDictWriter tensors(prefix);
  tensors.add(self_attn_.state_dict(tensors.name("self_attn.")));
  tensors.add(feed_forward_.state_dict(prefix));
  tensors.add(norm1_.state_dict(tensors.name("norm1.")));
  tensors.add(norm2_.state_dict(tensors.name("norm2.")));
  return tensors.take();
}

namespace {

constexpr Caller caller = "EncoderLayer::forward";

void forward_halves(const EncoderLayer& layer, const HalfRows& rows, const AttentionOptions& options) {
  const CallScope scope;
  check_attention_together(layer.self_attn(), rows.operands(caller), {}, rows.type, options);
  const ComparedScope compared(layer.self_attn().shares().team());
  const WideRows wide(rows, options.num_threads);
  layer.forward(wide.x, wide.y, options);
  wide.round();
}

}  // namespace

void EncoderLayer::forward(View<const bfloat16, 3> x, View<bfloat16, 3> y, const AttentionOptions& options) const {
  forward_halves(*this, half_rows(x, y), options);
}
void EncoderLayer::forward(View<const float16, 3> x, View<float16, 3> y, const AttentionOptions& options) const {
  forward_halves(*this, half_rows(x, y), options);
}

void EncoderLayer::forward(View<const float, 3> x, View<float, 3> y, const AttentionOptions& options) const {
  const CallScope scope;
  check_attention_together(self_attn_, {caller.operand("x", x), caller.operand("y", y)}, {}, DType::float32, options);
  const ComparedScope compared(self_attn_.shares().team());
  const View<float, 3> sum = scratch_rows(Purpose::sum, x.shape[0], x.shape[1], x.shape[2]);
  sublayer(norm1_, norm_first_, x, sum, options.num_threads, [&](const auto& in, const auto& out, const auto& add) {
    attend(caller, self_attn_, in, {}, out, add, options);
  });
  sublayer(norm2_, norm_first_, sum, y, options.num_threads, [&](const auto& in, const auto& out, const auto& add) {
    feed_forward(feed_forward_, in, out, add, options.num_threads);
  });
}

}  // namespace headlane
