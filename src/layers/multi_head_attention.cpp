// MultiHeadAttention: its weights, and the functions that users call. What they compute is in attention_call.cpp.
#include "core/call_scope.hpp"
#include "core/round.hpp"
#include "kernels/table.hpp"
#include "layers/calls.hpp"
#include "layers/state_dict_reader.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace headlane {

using namespace internal;

namespace {

using kernels::panel_columns;

/// Weights that stand one below the other in columns of a product, each from a multiple of 32 on.
class Stack {
 public:
  explicit Stack(Index width) : width_(width) {}

  void add(const View<const float, 2>& weight) {
    const Index first = round_up(rows_, panel_columns);
    Index size = 0;
    if (__builtin_mul_overflow(first + weight.shape[0], width_, &size)) throw std::bad_alloc();
    elements_.resize(static_cast<std::size_t>(size));
    rows_ = first + weight.shape[0];
    if (width_ == 0) return;
    for (Index i = 0; i < weight.shape[0]; ++i)
      for (Index j = 0; j < width_; ++j) elements_[static_cast<std::size_t>((first + i) * width_ + j)] = weight(i, j);
  }
  [[nodiscard]] PackedMatrix packed() const {
    return PackedMatrix(View<const float, 2>(elements_.data(), {rows_, width_}).transposed());
  }

 private:
  Index width_, rows_ = 0;
  std::vector<float> elements_;
};

}  // namespace

MultiHeadAttention::MultiHeadAttention(const StateDict& state, std::string_view prefix,
                                       const MultiHeadAttentionOptions& options)
    : heads_(options.heads),
      kv_heads_(options.kv_heads == 0 ? options.heads : options.kv_heads),
      scale_(options.scale) {
  const Weights weights("MultiHeadAttention", state, prefix);
  require(heads_ > 0, weights.layer(), ": heads is ", heads_, ", the least is 1");
  require(kv_heads_ > 0 && heads_ % kv_heads_ == 0, weights.layer(), ": kv_heads is ", kv_heads_,
          ", which does not divide heads, ", heads_);
  for (const char* name : {"bias_k", "bias_v"})
    require(!weights.has(name), weights.layer(), ": ", weights.name(name), " is not supported");

  const bool one = weights.has("in_proj_weight");
  View<const float, 2> q, k, v;
  if (one) {
    const View<const float, 2> all = weights.matrix("in_proj_weight", -1, -1);
    const bool few = heads_ <= all.shape[0];  // so that the sum does not overflow
    const Index parts = few ? heads_ + 2 * kv_heads_ : 1;
    require(few && all.shape[0] % parts == 0, weights.layer(), ": ", weights.name("in_proj_weight"), " has ",
            all.shape[0], " rows, which are no ", heads_, " + 2 · ", kv_heads_, " heads");
    head_dim_ = all.shape[0] / parts;
    q = all.slice(0, 0, heads_ * head_dim_);
    k = all.slice(0, heads_ * head_dim_, (heads_ + kv_heads_) * head_dim_);
    v = all.slice(0, (heads_ + kv_heads_) * head_dim_, all.shape[0]);
  } else {
    q = weights.matrix("q_proj_weight", -1, -1);
    require(q.shape[0] % heads_ == 0, weights.layer(), ": ", weights.name("q_proj_weight"), " has ", q.shape[0],
            " rows, which are no ", heads_, " heads");
    head_dim_ = q.shape[0] / heads_;
    k = weights.matrix("k_proj_weight", kv_heads_ * head_dim_, -1);
    v = weights.matrix("v_proj_weight", kv_heads_ * head_dim_, k.shape[1]);
  }
  require(head_dim_ >= 1 && head_dim_ <= kernels::block_size, weights.layer(), ": head_dim is ", head_dim_,
          ", it must be 1 to ", kernels::block_size);
  x_width_ = q.shape[1];
  memory_width_ = k.shape[1];
  Stack first(x_width_), second(memory_width_);
  Stack& keys = x_width_ == memory_width_ ? first : second;
  first.add(q), keys.add(k), keys.add(v);
  in_proj_ = first.packed();
  if (&keys == &second) memory_proj_ = second.packed();
  in_bias_ = weights.vector_if_any("in_proj_bias", q.shape[0] + k.shape[0] + v.shape[0]);
  if (!in_bias_.empty()) {  // spread to the columns of the product
    const auto at = [](Index i) { return static_cast<std::ptrdiff_t>(i); };
    const ProjectionColumns c = LayerCalls::columns(*this);
    std::vector<float> spread(static_cast<std::size_t>(c.end));
    std::copy_n(in_bias_.begin(), c.q_width, spread.begin());
    std::copy_n(in_bias_.begin() + at(c.q_width), c.kv_width, spread.begin() + at(c.k));
    std::copy_n(in_bias_.begin() + at(c.q_width + c.kv_width), c.kv_width, spread.begin() + at(c.v));
    in_bias_ = std::move(spread);
  }
  out_proj_ = Linear(state, weights.name("out_proj."));
  require(out_proj_.in_features() == heads_ * head_dim_, weights.layer(), ": ", weights.name("out_proj.weight"),
          " has ", out_proj_.in_features(), " columns, the heads have ", heads_ * head_dim_, " elements");
}

void MultiHeadAttention::forward(View<const float, 3> x, View<float, 3> y, const AttentionOptions& options) const {
  const CallScope scope;
  constexpr const char* function = "MultiHeadAttention::forward";
  LayerCalls::check(function, *this, x, {}, y, true, options);
  LayerCalls::attention(function, *this, x, {}, y, {}, options);
}

void MultiHeadAttention::forward(View<const float, 3> x, View<const float, 3> memory, View<float, 3> y,
                                 const AttentionOptions& options) const {
  const CallScope scope;
  constexpr const char* function = "MultiHeadAttention::forward";
  const KeySource source{.kind = KeySource::Kind::memory, .memory = memory};
  LayerCalls::check(function, *this, x, source, y, true, options);
  LayerCalls::attention(function, *this, x, source, y, {}, options);
}

void MultiHeadAttention::forward(View<const float, 3> x, KvCache& cache, std::span<const Index> sequences,
                                 View<float, 3> y, const AttentionOptions& options) const {
  const CallScope scope;
  constexpr const char* function = "MultiHeadAttention::forward";
  const KeySource source{.kind = KeySource::Kind::grown, .grown = &cache, .cache = &cache, .sequences = sequences};
  LayerCalls::check(function, *this, x, source, y, true, options);
  LayerCalls::check_keys(function, *this, x, source, options);
  Appended appended(cache, sequences);
  LayerCalls::attention(function, *this, x, source, y, {}, options);
  appended.keep();
}

void MultiHeadAttention::forward_remembered(View<const float, 3> x, const KvCache& cache,
                                            std::span<const Index> sequences, View<float, 3> y,
                                            const AttentionOptions& options) const {
  const CallScope scope;
  constexpr const char* function = "MultiHeadAttention::forward_remembered";
  const KeySource source{.kind = KeySource::Kind::remembered, .cache = &cache, .sequences = sequences};
  LayerCalls::check(function, *this, x, source, y, true, options);
  LayerCalls::attention(function, *this, x, source, y, {}, options);
}

void MultiHeadAttention::remember(View<const float, 3> memory, KvCache& cache, std::span<const Index> sequences,
                                  const RememberOptions& options) const {
  const CallScope scope;
  LayerCalls::check_remember("MultiHeadAttention::remember", *this, memory, cache, sequences, options);
  Appended appended(cache, sequences);
  LayerCalls::remember(*this, memory, cache, sequences, options);
  appended.keep();
}

}  // namespace headlane
