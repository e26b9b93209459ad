// A call of every function that computes, behind one interface, for tests that check the same
// property of each: threads, memory, floating-point state.
#pragma once

#include "support/attention_case.hpp"
#include "support/half_tensor.hpp"
#include "support/hash.hpp"
#include "support/layer_case.hpp"

#include <headlane/cblas.h>
#include <headlane/headlane.hpp>

#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace headlane::test {

/// Inputs, and calls with outputs of their own. `size` is the number of rows and keys, `magnitude`
/// that of the elements: products of 1e-20 are denormal.
class EveryCall {
 public:
  /// of_functions: without those that need a PackedMatrix or a layer, which the library computes.
  enum class Calls { all, of_functions };
  struct Call {
    std::string name;
    std::function<void(int threads)> run;
    std::function<std::uint64_t()> hash;  ///< of the outputs
  };

  explicit EveryCall(Index size, float magnitude = 1, Calls calls = Calls::all) : size_(size), magnitude_(magnitude) {
    add_products();
    add_rowwise();
    add_attention();
    add_caches();
    add_positions();
    add_recurrent();
    add_convolution();
    add_halves<bfloat16>("bfloat16", calls);
    add_halves<float16>("float16", calls);
    if (calls == Calls::of_functions) return;
    add_packed();
    add_layers();
  }
  EveryCall(const EveryCall&) = delete;
  EveryCall& operator=(const EveryCall&) = delete;

  [[nodiscard]] const std::vector<Call>& calls() const { return calls_; }
  void run(int threads) const {
    for (const Call& call : calls_) call.run(threads);
  }
  [[nodiscard]] std::vector<std::uint64_t> hashes() const {
    std::vector<std::uint64_t> all;
    for (const Call& call : calls_) all.push_back(call.hash());
    return all;
  }

 private:
  template <std::size_t Rank>
  const View<float, static_cast<int>(Rank)>& input(std::array<Index, Rank> shape) {
    auto& tensors = std::get<std::deque<Tensor<static_cast<int>(Rank)>>>(tensors_);
    tensors.push_back(random_tensor<static_cast<int>(Rank)>(shape, random_));
    for_each(tensors.back().view, [&](float& x) { x *= magnitude_; });
    return tensors.back().view;
  }
  template <std::size_t Rank>
  const View<float, static_cast<int>(Rank)>& output(std::array<Index, Rank> shape) {
    auto& tensors = std::get<std::deque<Tensor<static_cast<int>(Rank)>>>(tensors_);
    tensors.emplace_back(shape);
    return tensors.back().view;
  }
  template <class F, int... Ranks>
  void add(const std::string& name, const F& f, const View<float, Ranks>&... outputs) {
    calls_.push_back({name, f, [... views = outputs] {
                        Hash hash;
                        (hash.add(views), ...);
                        return hash.value();
                      }});
  }

  void add_products();
  void add_packed();
  void add_rowwise();
  void add_attention();
  void add_caches();
  void add_positions();
  void add_recurrent();
  void add_convolution();
  void add_layers();
  template <class T>
  void add_halves(const std::string& type, Calls calls);
  template <class T>
  void add_half_rows(const std::string& type);
  template <class T>
  void add_half_products(const std::string& type);
  template <class T>
  void add_half_attention(const std::string& type);
  template <class T>
  void add_half_recurrent(const std::string& type);
  /// f(x, y, threads) on tensors of 16 bits; x is given as float.
  template <class T, int Rank, class F>
  void add_half(const std::string& name, const View<float, Rank>& x, const View<float, Rank>& y, const F& f);

  Index size_;
  float magnitude_;
  Random random_{1};
  std::tuple<std::deque<Tensor<1>>, std::deque<Tensor<2>>, std::deque<Tensor<3>>, std::deque<Tensor<4>>> tensors_;
  std::deque<PackedMatrix> packed_;
  std::deque<KvCache> caches_;
  std::vector<Call> calls_;
};

inline void EveryCall::add_products() {
  const Index m = size_, n = size_ + 30, k = 600;
  const auto a = input<2>({m, k}), b = input<2>({k, n}), gate = input<2>({k, n}), c = output<2>({m, n});
  add("gemm", [=](int threads) { gemm(a, b, c, {.alpha = 0.7f, .num_threads = threads}); }, c);
  const auto batch = input<3>({3, m, 65}), right = input<3>({3, 65, n}), products = output<3>({3, m, n});
  add("gemm_batch", [=](int threads) { gemm_batch(batch, right, products, {.num_threads = threads}); }, products);
  const auto first = output<2>({m, n}), second = output<2>({m, n});
  add(
      "gemm_batch, list",
      [=](int threads) {
        const std::array<GemmProblem, 2> problems{{{.a = a, .b = b, .c = first}, {.a = a, .b = gate, .c = second}}};
        gemm_batch(problems, threads);
      },
      first, second);
  const auto gated = output<2>({m, n});
  add(
      "gemm_gated",
      [=](int threads) { gemm_gated(a, gate, b, gated, {.activation = Activation::silu, .num_threads = threads}); },
      gated);
  const auto of_c = output<2>({m, n});
  add(
      "headlane_cblas_sgemm",
      [=](int threads) {
        set_num_threads(threads);
        headlane_cblas_sgemm(101, 111, 111, m, n, k, 1, a.data, a.strides[0], b.data, b.strides[0], 0, of_c.data,
                             of_c.strides[0]);
        set_num_threads(0);
        if (headlane_cblas_error() != nullptr) throw std::invalid_argument(headlane_cblas_error());
      },
      of_c);
}

inline void EveryCall::add_packed() {
  const Index k = 600, n = 2 * size_ + 30;
  const auto a = input<2>({size_, k}), c = output<2>({size_, n});
  const auto bias = input<1>({n});
  const PackedMatrix& right = packed_.emplace_back(input<2>({k, n}));
  add(
      "gemm, packed",
      [=, &right](int threads) {
        gemm(a, right, c, {.bias = bias, .activation = Activation::gelu, .num_threads = threads});
      },
      c);
  const PackedMatrix& packed = packed_.emplace_back(input<2>({k, n}), PackOptions{.type = DType::int8});
  const auto all = output<2>({k, n}), some = output<2>({60, k});
  add("PackedMatrix::unpack", [=, &packed](int threads) { packed.unpack(all, threads); }, all);
  add(
      "PackedMatrix::unpack_columns",
      [=, &packed](int threads) {
        std::array<Index, 60> columns{};
        for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<Index>(i * i) % n;
        packed.unpack_columns({columns.data(), {60}}, some, threads);
      },
      some);
}

inline void EveryCall::add_rowwise() {
  const auto x = input<2>({8 * size_, 300}), bias = input<2>({8 * size_, 300});
  const auto weight = input<1>({300});
  const auto y = [&] { return output<2>({8 * size_, 300}); };
  for (const Activation kind : {Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::tanh,
                                Activation::erf, Activation::sigmoid}) {
    const auto out = y();
    add(
        "activate " + std::to_string(static_cast<int>(kind)),
        [=](int threads) { activate(x, out, kind, {.num_threads = threads}); }, out);
  }
  const auto soft = y(), masked = y(), layer = y(), rms = y();
  add("softmax", [=](int threads) { softmax(x, soft, {.scale = 0.7f, .num_threads = threads}); }, soft);
  add(
      "softmax along rows, with a bias",
      [=](int threads) {
        SoftmaxOptions options{.axis = 0};
        options.num_threads = threads;
        options.bias = bias;
        softmax(x, masked, options);
      },
      masked);
  add("layer_norm", [=](int threads) { layer_norm(x, layer, {.weight = weight, .num_threads = threads}); }, layer);
  add("rms_norm", [=](int threads) { rms_norm(x, rms, {.residual = bias, .num_threads = threads}); }, rms);
}

inline void EveryCall::add_attention() {
  const Index keys = 520 + size_;
  const auto q = input<4>({2, 4, size_, 48}), k = input<4>({2, 2, keys, 48}), v = input<4>({2, 2, keys, 40});
  const auto out = [&] { return output<4>({2, 4, size_, 40}); };
  const auto rows = [&] { return output<3>({2, 4, size_}); };
  const auto plain = out();
  const auto lse = rows();
  const auto slopes = input<1>({4});
  add(
      "attention",
      [=, first = keys - size_](int threads) {
        attention(q, k, v, plain, {.causal = true, .causal_offset = first, .lse = lse, .num_threads = threads});
      },
      plain, lse);
  const auto biased = out();
  add(
      "attention with ALiBi and a softcap",
      [=](int threads) {
        AttentionOptions options{.num_threads = threads};
        options.alibi_slopes = slopes;
        options.softcap = 3;
        attention(q, k, v, biased, options);
      },
      biased);
  const auto decoded = out();
  add(
      "attention, one query",
      [=](int threads) { attention(q.slice(2, 0, 1), k, v, decoded.slice(2, 0, 1), {.num_threads = threads}); },
      decoded);
  const auto weights = output<4>({2, 4, size_, keys});
  const auto sums = output<3>({2, 4, keys});
  add("attention_weights", [=](int threads) { attention_weights(q, k, weights, {.num_threads = threads}); }, weights);
  add("attention_key_sums", [=](int threads) { attention_key_sums(q, k, sums, {.num_threads = threads}); }, sums);
  const auto merged = out();
  add(
      "merge",
      [=](int threads) {
        const std::array<AttentionPart, 2> parts{{{.out = plain, .lse = lse}, {.out = biased, .lse = lse}}};
        merge(parts, merged, {.num_threads = threads});
      },
      merged);
  const auto x = input<3>({1, size_, 96}), heads = output<3>({1, size_, 96});
  add(
      "multi_head_attention", [=](int threads) { multi_head_attention(x, x, x, heads, 3, {.num_threads = threads}); },
      heads);
}

inline void EveryCall::add_caches() {
  const Index keys = 520 + size_;
  const auto q = input<4>({2, 4, size_, 48}), k = input<4>({2, 2, keys, 48}), v = input<4>({2, 2, keys, 40});
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16, DType::int8}) {
    KvCache& cache = caches_.emplace_back(2, 48, 40, KvCacheOptions{.type = type});
    const auto out = output<4>({2, 4, size_, 40}), decoded = output<4>({2, 4, 1, 40});
    const auto keys_read = output<3>({2, keys, 48}), values_read = output<3>({2, keys, 40});
    const std::array<Index, 2> sequences{cache.add(), cache.add()};
    add(
        std::string("KvCache of ") + name_of(type),
        [=, &cache](int threads) {
          for (const Index sequence : sequences) cache.truncate(sequence, 0);
          cache.append(sequences, k, v);
          attention(q, cache, sequences, out, {.num_threads = threads});
          attention(q.slice(2, 0, 1), cache, sequences, decoded, {.num_threads = threads});
          cache.read(sequences[1], 0, keys_read, values_read);
        },
        out, decoded, keys_read, values_read);
  }
}

inline void EveryCall::add_layers() {
  LayerSizes sizes{.d_model = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .memory_width = 64, .d_ff = 130};
  sizes.layer.activation = Activation::gelu;
  const Index rows = size_;
  for (const AnyLayer& layer : all_layers(sizes, 3)) {
    const auto x = input<3>({2, rows, layer.in}), memory = input<3>({2, rows + 9, sizes.memory_width});
    const auto y = output<3>({2, rows, layer.out});
    add(layer.name, [=](int threads) { layer.forward(x, memory, y, {.num_threads = threads}); }, y);
  }
}

}  // namespace headlane::test

#include "support/every_half_call.hpp"      // IWYU pragma: keep
#include "support/every_sequence_call.hpp"  // IWYU pragma: keep
