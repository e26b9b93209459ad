#include "attention/check.hpp"
#include "core/call_scope.hpp"
#include "layers/feed_forward.hpp"
#include "layers/half.hpp"
#include "layers/state_dict_writer.hpp"
#include "layers/sublayer.hpp"
#include "layers/tensor_names.hpp"
#include "layers/together.hpp"

#include <headlane/decoder_layer.hpp>

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller = "DecoderLayer::forward";

}  // namespace

/// The arguments of forward(), over memory or over caches.
struct DecoderLayer::Call {
  View<const float, 3> x;
  View<float, 3> y;
  KeySource self, cross;
  const AttentionOptions& self_options;
  const AttentionOptions& cross_options;
};

DecoderLayer::DecoderLayer(const StateDict& state, std::string_view prefix, const TransformerLayerOptions& options)
    : norm_first_(options.norm_first) {
  const auto make = [&] {
    self_attn_ = MultiHeadAttention(state, joined(prefix, "self_attn."), attention_options(options));
    multihead_attn_ = MultiHeadAttention(state, joined(prefix, "multihead_attn."), attention_options(options));
    feed_forward_ = FeedForward(state, prefix, feed_forward_options(options));
    norm1_ = Normalization(state, joined(prefix, "norm1."), options.norm, options.eps);
    norm2_ = Normalization(state, joined(prefix, "norm2."), options.norm, options.eps);
    norm3_ = Normalization(state, joined(prefix, "norm3."), options.norm, options.eps);
    check_widths("DecoderLayer", feed_forward_.d_model(), self_attn_, norm1_, norm2_, norm3_);
    require(multihead_attn_.d_model() == d_model() && x_width(multihead_attn_) == d_model(),
            "DecoderLayer: multihead_attn takes rows of ", x_width(multihead_attn_), " and returns rows of ",
            multihead_attn_.d_model(), ", self_attn returns rows of ", d_model());
  };
  make_together(options.team, "DecoderLayer", make, [&](Description& text) {
    describe(text, options);
    for (const char* attention : {"self_attn.", "multihead_attn."})
      text.add_tensors(state, prefix, attention, attention_tensors);
    text.add_tensors(state, prefix, "", feed_forward_tensors);
    for (const char* norm : {"norm1.", "norm2.", "norm3."}) text.add_tensors(state, prefix, norm, linear_tensors);
  });
}

OwnedStateDict DecoderLayer::state_dict(std::string_view prefix) const {
  require_whole("DecoderLayer::state_dict", self_attn_.shares());
  StateDictWriter tensors(prefix);
  tensors.add(self_attn_.state_dict(tensors.name("self_attn.")));
  tensors.add(multihead_attn_.state_dict(tensors.name("multihead_attn.")));
  tensors.add(feed_forward_.state_dict(prefix));
  tensors.add(norm1_.state_dict(tensors.name("norm1.")));
  tensors.add(norm2_.state_dict(tensors.name("norm2.")));
  tensors.add(norm3_.state_dict(tensors.name("norm3.")));
  return tensors.take();
}

namespace {

/// All arguments, both attentions included: the first one writes before the second one would check.
/// How the keys fit is left to check_keys().
void check(const DecoderLayer& layer, const ForwardOperands& operands, const KeySource& self_keys,
           const KeySource& cross_keys, const AttentionOptions& self, const AttentionOptions& cross) {
  check_attention(layer.self_attn(), operands, self_keys, self);
  check_attention(layer.multihead_attn(), operands, cross_keys, cross);
  const auto check_apart = [&](const char* name, const View<float, 3>& lse, const AttentionOptions& other) {
    if (!lse) return;
    for_each_input(caller, other, [&](const Operand& in) { check_no_overlap(caller.operand(name, lse), in); });
  };
  check_apart("self.lse", self.lse, cross);
  check_apart("cross.lse", cross.lse, self);
  if (!self.lse) return;
  const Operand of_self = caller.operand("self.lse", self.lse);
  if (cross_keys.kind == KeySource::Kind::memory) check_no_overlap(of_self, operands.memory);
  if (cross.lse) check_no_overlap(of_self, caller.operand("cross.lse", cross.lse));
}

/// The same on all ranks of a team, which compare the call. `type` is that of x and y.
void check_call(const DecoderLayer& layer, const ForwardOperands& operands, DType type, const KeySource& self_keys,
                const KeySource& cross_keys, const AttentionOptions& self, const AttentionOptions& cross) {
  check_together(
      layer.self_attn().shares().team(), caller,
      [&] {
        check(layer, operands, self_keys, cross_keys, self, cross);
        check_keys(layer.multihead_attn(), operands, cross_keys, cross);
        if (needs_check_of_keys(layer.self_attn(), self_keys)) check_keys(layer.self_attn(), operands, self_keys, self);
      },
      [&](Description& text) {
        text.add_rows("x", operands.x, type).add_rows("y", operands.y, type);
        for (const KeySource* keys : {&self_keys, &cross_keys}) describe(text, *keys, operands, type);
        text.add("self").add_options(self).add("cross").add_options(cross);
      });
}

}  // namespace

void DecoderLayer::check(const Call& call) const {
  const ForwardOperands operands{caller.operand("x", call.x), caller.operand("y", call.y),
                                 caller.operand("memory", call.cross.memory)};
  check_call(*this, operands, DType::float32, call.self, call.cross, call.self_options, call.cross_options);
}

void DecoderLayer::run(const Call& call) const {
  const auto [batch, length, width] = call.x.shape;
  const View<float, 3> first = scratch_rows(Purpose::sum, batch, length, width),
                       second = scratch_rows(Purpose::second_sum, batch, length, width);
  const int threads = call.self_options.num_threads;
  sublayer(norm1_, norm_first_, call.x, first, threads, [&](const auto& in, const auto& out, const auto& add) {
    attend(caller, self_attn_, in, call.self, out, add, call.self_options);
  });
  sublayer(norm2_, norm_first_, first, second, threads, [&](const auto& in, const auto& out, const auto& add) {
    attend(caller, multihead_attn_, in, call.cross, out, add, call.cross_options);
  });
  sublayer(norm3_, norm_first_, second, call.y, threads, [&](const auto& in, const auto& out, const auto& add) {
    feed_forward(feed_forward_, in, out, add, threads);
  });
}

void DecoderLayer::forward(View<const float, 3> x, View<const float, 3> memory, View<float, 3> y,
                           const AttentionOptions& self, const AttentionOptions& cross) const {
  const CallScope scope;
  const Call call{.x = x,
                  .y = y,
                  .self = {},
                  .cross = {.kind = KeySource::Kind::memory, .memory = memory},
                  .self_options = self,
                  .cross_options = cross};
  check(call);
  const ComparedScope compared(self_attn_.shares().team());
  run(call);
}

void DecoderLayer::forward(View<const float, 3> x, KvCache& cache, std::span<const Index> sequences,
                           const KvCache& memory, std::span<const Index> memory_sequences, View<float, 3> y,
                           const AttentionOptions& self, const AttentionOptions& cross) const {
  const CallScope scope;
  const Call call{.x = x,
                  .y = y,
                  .self = growing(cache, sequences),
                  .cross = projected(memory, memory_sequences),
                  .self_options = self,
                  .cross_options = cross};
  check(call);
  const ComparedScope compared(self_attn_.shares().team());
  AppendGuard appended(cache, sequences);
  run(call);
  appended.commit();
}

namespace {

void forward_halves(const DecoderLayer& layer, const HalfRows& rows, const AttentionOptions& self,
                    const AttentionOptions& cross) {
  const CallScope scope;
  check_call(layer, rows.operands(caller), rows.type, {}, {.kind = KeySource::Kind::memory}, self, cross);
  const ComparedScope compared(layer.self_attn().shares().team());
  const WideRows wide(rows, self.num_threads);
  layer.forward(wide.x, wide.memory, wide.y, self, cross);
  wide.round();
}

/// The caches of a call.
struct Caches {
  KvCache& own;
  std::span<const Index> sequences;
  const KvCache& memory;
  std::span<const Index> memory_sequences;
};

void forward_halves(const DecoderLayer& layer, const HalfRows& rows, const Caches& caches, const AttentionOptions& self,
                    const AttentionOptions& cross) {
  const CallScope scope;
  check_call(layer, rows.operands(caller), rows.type, growing(caches.own, caches.sequences),
             projected(caches.memory, caches.memory_sequences), self, cross);
  const ComparedScope compared(layer.self_attn().shares().team());
  const WideRows wide(rows, self.num_threads);
  layer.forward(wide.x, caches.own, caches.sequences, caches.memory, caches.memory_sequences, wide.y, self, cross);
  wide.round();
}

}  // namespace

void DecoderLayer::forward(View<const bfloat16, 3> x, View<const bfloat16, 3> memory, View<bfloat16, 3> y,
                           const AttentionOptions& self, const AttentionOptions& cross) const {
  forward_halves(*this, half_rows(x, y, memory), self, cross);
}
void DecoderLayer::forward(View<const float16, 3> x, View<const float16, 3> memory, View<float16, 3> y,
                           const AttentionOptions& self, const AttentionOptions& cross) const {
  forward_halves(*this, half_rows(x, y, memory), self, cross);
}

void DecoderLayer::forward(View<const bfloat16, 3> x, KvCache& cache, std::span<const Index> sequences,
                           const KvCache& memory, std::span<const Index> memory_sequences, View<bfloat16, 3> y,
                           const AttentionOptions& self, const AttentionOptions& cross) const {
  forward_halves(*this, half_rows(x, y), {cache, sequences, memory, memory_sequences}, self, cross);
}
void DecoderLayer::forward(View<const float16, 3> x, KvCache& cache, std::span<const Index> sequences,
                           const KvCache& memory, std::span<const Index> memory_sequences, View<float16, 3> y,
                           const AttentionOptions& self, const AttentionOptions& cross) const {
  forward_halves(*this, half_rows(x, y), {cache, sequences, memory, memory_sequences}, self, cross);
}

}  // namespace headlane
