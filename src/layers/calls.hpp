// What layers made of layers call: the work of a forward(), and its checks.
#pragma once

#include "core/check.hpp"
#include "core/scratch.hpp"

#include <headlane/layers.hpp>

#include <span>
#include <vector>

namespace headlane::internal {

/// Where keys and values come from.
struct KeySource {
  enum class Kind {
    x,           // self-attention
    memory,      // cross-attention
    grown,       // self-attention to all that a cache holds after those of x are appended
    remembered,  // cross-attention to what a cache holds
  };
  Kind kind = Kind::x;
  View<const float, 3> memory = {};
  KvCache* grown = nullptr;
  const KvCache* cache = nullptr;  // grown or remembered
  std::span<const Index> sequences = {};
};

/// Of a decoder layer.
struct DecoderSources {
  KeySource self, cross;
  const AttentionOptions& self_options;
  const AttentionOptions& cross_options;
};

/// Columns of the packed product: widths of q and of k or v, where k and v begin, and what is behind v.
struct ProjectionColumns {
  Index q_width, kv_width, k, v, end;
};

/// Takes back what a forward() appends to a cache, unless it comes to its end. One at a time in a thread.
class Appended {
 public:
  Appended(KvCache& cache, std::span<const Index> sequences);
  ~Appended();
  Appended(const Appended&) = delete;
  Appended& operator=(const Appended&) = delete;
  void keep() { kept_ = true; }

 private:
  KvCache& cache_;
  std::span<const Index> sequences_;
  std::vector<Index>& lengths_;
  bool kept_ = false;
};

/// What the layers do for each other.
class LayerCalls {
 public:
  static ProjectionColumns columns(const MultiHeadAttention& layer);
  /// Of x.
  static Index width(const MultiHeadAttention& layer) { return layer.x_width_; }

  /// Shapes, overlaps, and options that layers do not take; attention itself checks the rest. `in_place`: y may be x itself.
  static void check(const char* function, const MultiHeadAttention& layer, const View<const float, 3>& x,
                    const KeySource& source, const View<float, 3>& y, bool in_place, const AttentionOptions& options);
  /// What attention to memory or a cache checks, a cache as it will have grown: for a layer that has written something by then.
  static void check_keys(const char* function, const MultiHeadAttention& layer, const View<const float, 3>& x,
                         const KeySource& source, const AttentionOptions& options);
  /// y = layer(x) + residual, if that is given.
  static void attention(const char* function, const MultiHeadAttention& layer, const View<const float, 3>& x,
                        const KeySource& source, const View<float, 3>& y, const View<const float, 3>& residual,
                        const AttentionOptions& options);

  static void check_remember(const char* function, const MultiHeadAttention& layer, const View<const float, 3>& memory,
                             const KvCache& cache, std::span<const Index> sequences, const RememberOptions& options);
  static void remember(const MultiHeadAttention& layer, const View<const float, 3>& memory, KvCache& cache,
                       std::span<const Index> sequences, const RememberOptions& options);

  /// All of it: nothing is written before.
  static void check(const char* function, const DecoderLayer& layer, const View<const float, 3>& x,
                    const DecoderSources& from, const View<float, 3>& y);
  static void decoder(const char* function, const DecoderLayer& layer, const View<const float, 3>& x,
                      const DecoderSources& from, const View<float, 3>& y);

  /// y = layer(x) + residual, if that is given.
  static void feed_forward(const FeedForward& layer, const View<const float, 3>& x, const View<float, 3>& y,
                           const View<const float, 3>& residual, int num_threads);

 private:
  static void project_memory(const MultiHeadAttention& layer, const View<const float, 3>& memory,
                             const View<float, 3>& kv, int num_threads);
};

/// Scratch memory as [batch, length, width]. Throws std::bad_alloc if it is more than memory can be.
View<float, 3> scratch_rows(Purpose purpose, Index batch, Index length, Index width);

/// y = f(norm(x)) + x, or norm(f(x) + x); f(input, output, residual) computes output = sublayer(input) + residual. y may be x only in the second form.
template <class F>
void sublayer(const Normalization& norm, bool norm_first, const View<const float, 3>& x, const View<float, 3>& y,
              int num_threads, const F& f) {
  const View<float, 3> normed = scratch_rows(Purpose::normed, x.shape[0], x.shape[1], x.shape[2]);
  if (norm_first) {
    norm.forward(x, normed, num_threads);
    f(normed, y, x);
  } else {
    f(x, normed, x);
    norm.forward(normed, y, num_threads);
  }
}

}  // namespace headlane::internal
