// EncoderLayer and DecoderLayer: attention and feed-forward, each with what is added to its input and a norm.
#include "attention/check.hpp"
#include "core/call_scope.hpp"
#include "layers/calls.hpp"
#include "layers/state_dict_reader.hpp"

namespace headlane {

using namespace internal;

namespace {

std::string joined(std::string_view prefix, std::string_view name) { return std::string(prefix) + std::string(name); }

/// Three parts of a layer agree on d_model.
template <class... Parts>
void check_widths(const char* layer, Index d_model, const MultiHeadAttention& attention, const Parts&... norms) {
  require(attention.d_model() == d_model && LayerCalls::width(attention) == d_model, layer,
          ": self_attn takes rows of ", LayerCalls::width(attention), " and gives rows of ", attention.d_model(),
          ", linear1 takes rows of ", d_model);
  (require(norms.size() == d_model, layer, ": a norm has ", norms.size(), " weights, d_model is ", d_model), ...);
}

View<float, 3> like(Purpose purpose, const View<const float, 3>& x) {
  return scratch_rows(purpose, x.shape[0], x.shape[1], x.shape[2]);
}

}  // namespace

EncoderLayer::EncoderLayer(const StateDict& state, std::string_view prefix, const TransformerLayerOptions& options)
    : norm_first_(options.norm_first),
      self_attn_(state, joined(prefix, "self_attn."), options.attention),
      feed_forward_(state, prefix, {.activation = options.activation}),
      norm1_(state, joined(prefix, "norm1."), options.norm, options.eps),
      norm2_(state, joined(prefix, "norm2."), options.norm, options.eps) {
  check_widths("EncoderLayer", feed_forward_.d_model(), self_attn_, norm1_, norm2_);
}

void EncoderLayer::forward(View<const float, 3> x, View<float, 3> y, const AttentionOptions& options) const {
  const CallScope scope;
  constexpr const char* function = "EncoderLayer::forward";
  LayerCalls::check(function, self_attn_, x, {}, y, true, options);
  const View<float, 3> sum = like(Purpose::sum, x);
  sublayer(norm1_, norm_first_, x, sum, options.num_threads, [&](const auto& in, const auto& out, const auto& add) {
    LayerCalls::attention(function, self_attn_, in, {}, out, add, options);
  });
  sublayer(norm2_, norm_first_, sum, y, options.num_threads, [&](const auto& in, const auto& out, const auto& add) {
    LayerCalls::feed_forward(feed_forward_, in, out, add, options.num_threads);
  });
}

DecoderLayer::DecoderLayer(const StateDict& state, std::string_view prefix, const TransformerLayerOptions& options)
    : norm_first_(options.norm_first),
      self_attn_(state, joined(prefix, "self_attn."), options.attention),
      multihead_attn_(state, joined(prefix, "multihead_attn."), options.attention),
      feed_forward_(state, prefix, {.activation = options.activation}),
      norm1_(state, joined(prefix, "norm1."), options.norm, options.eps),
      norm2_(state, joined(prefix, "norm2."), options.norm, options.eps),
      norm3_(state, joined(prefix, "norm3."), options.norm, options.eps) {
  check_widths("DecoderLayer", feed_forward_.d_model(), self_attn_, norm1_, norm2_, norm3_);
  require(multihead_attn_.d_model() == d_model() && LayerCalls::width(multihead_attn_) == d_model(),
          "DecoderLayer: multihead_attn takes rows of ", LayerCalls::width(multihead_attn_), " and gives rows of ",
          multihead_attn_.d_model(), ", self_attn gives rows of ", d_model());
}

void LayerCalls::check(const char* function, const DecoderLayer& layer, const View<const float, 3>& x,
                       const DecoderSources& from, const View<float, 3>& y) {
  const AttentionOptions &self = from.self_options, &cross = from.cross_options;
  check(function, layer.self_attn_, x, from.self, y, true, self);
  check(function, layer.multihead_attn_, x, from.cross, y, true, cross);
  const auto check_apart = [&](const char* name, const View<float, 3>& lse, const AttentionOptions& other) {
    if (!lse) return;
    for_each_input(function, other, [&](const Operand& in) { check_no_overlap(operand(function, name, lse), in); });
  };
  check_apart("self.lse", self.lse, cross);
  check_apart("cross.lse", cross.lse, self);
  if (self.lse) {
    const Operand of_self = operand(function, "self.lse", self.lse);
    if (from.cross.kind == KeySource::Kind::memory)
      check_no_overlap(of_self, operand(function, "memory", from.cross.memory));
    if (cross.lse) check_no_overlap(of_self, operand(function, "cross.lse", cross.lse));
  }
  check_keys(function, layer.multihead_attn_, x, from.cross, cross);
  if (from.self.kind == KeySource::Kind::grown) check_keys(function, layer.self_attn_, x, from.self, self);
}

void LayerCalls::decoder(const char* function, const DecoderLayer& layer, const View<const float, 3>& x,
                         const DecoderSources& from, const View<float, 3>& y) {
  const View<float, 3> sum = like(Purpose::sum, x), second = like(Purpose::second_sum, x);
  const bool first = layer.norm_first_;
  const int threads = from.self_options.num_threads;
  sublayer(layer.norm1_, first, x, sum, threads, [&](const auto& in, const auto& out, const auto& add) {
    attention(function, layer.self_attn_, in, from.self, out, add, from.self_options);
  });
  sublayer(layer.norm2_, first, sum, second, threads, [&](const auto& in, const auto& out, const auto& add) {
    attention(function, layer.multihead_attn_, in, from.cross, out, add, from.cross_options);
  });
  sublayer(layer.norm3_, first, second, y, threads, [&](const auto& in, const auto& out, const auto& add) {
    feed_forward(layer.feed_forward_, in, out, add, threads);
  });
}

void DecoderLayer::forward(View<const float, 3> x, View<const float, 3> memory, View<float, 3> y,
                           const AttentionOptions& self, const AttentionOptions& cross) const {
  const CallScope scope;
  constexpr const char* function = "DecoderLayer::forward";
  const DecoderSources from{.self = {},
                            .cross = {.kind = KeySource::Kind::memory, .memory = memory},
                            .self_options = self,
                            .cross_options = cross};
  LayerCalls::check(function, *this, x, from, y);
  LayerCalls::decoder(function, *this, x, from, y);
}

void DecoderLayer::forward(View<const float, 3> x, KvCache& cache, std::span<const Index> sequences,
                           const KvCache& memory, std::span<const Index> memory_sequences, View<float, 3> y,
                           const AttentionOptions& self, const AttentionOptions& cross) const {
  const CallScope scope;
  constexpr const char* function = "DecoderLayer::forward";
  const DecoderSources from{
      .self = {.kind = KeySource::Kind::grown, .grown = &cache, .cache = &cache, .sequences = sequences},
      .cross = {.kind = KeySource::Kind::remembered, .cache = &memory, .sequences = memory_sequences},
      .self_options = self,
      .cross_options = cross};
  LayerCalls::check(function, *this, x, from, y);
  Appended appended(cache, sequences);
  LayerCalls::decoder(function, *this, x, from, y);
  appended.keep();
}

}  // namespace headlane
