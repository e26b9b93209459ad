// Every layer on tensors of bfloat16 and float16: the rounded result of float32, in any layout, in
// place where float32 is, over caches, which get the keys of float32; nothing; illegal calls.
#include "support/guard.hpp"
#include "support/half_tensor.hpp"
#include "support/hash.hpp"
#include "support/illegal.hpp"
#include "support/layer_case.hpp"

#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

template <class T>
HalfTensor<T, 3> random_rows(const std::array<Index, 3>& shape, std::uint64_t seed, const Layout& layout = {}) {
  Random random(seed);
  return HalfTensor<T, 3>(random_tensor<3>(shape, random).view, layout);
}

/// Of its sequences 0, 1 and 2: what it holds.
std::uint64_t bits_of(const KvCache& cache) {
  Hash hash;
  for (Index s = 0; s < 3; ++s) {
    const Index length = cache.length(s);
    const Tensor<3> k({cache.kv_heads(), length, cache.head_dim()}), v({cache.kv_heads(), length, cache.head_dim()});
    cache.read(s, 0, k.view, v.view);
    hash.add(k.view);
    hash.add(v.view);
  }
  return hash.value();
}

TEST_CASE_TEMPLATE("every layer on 16-bit numbers: the rounded result of float32", T, bfloat16, float16) {
  for (const LayerSizes& s : layer_sizes())
    for (const AnyLayer& layer : all_layers(s, 1))
      for (const Layout& layout : layouts()) {
        const HalfTensor<T, 3> x = random_rows<T>({2, 19, layer.in}, 2, layout), y({2, 19, layer.out}, layout),
                               memory = random_rows<T>({2, 23, s.memory_width}, 3, layout);
        const Tensor<3> wide = x.widened(), wide_memory = memory.widened(), expected({2, 19, layer.out});
        const Tensor<3> lse({2, s.heads, 19}), right_lse({2, s.heads, 19});
        const std::vector<Index> lengths{11, 19};
        const AttentionOptions options{.causal = layer.self, .query_lengths = {lengths.data(), {2}}};
        AttentionOptions own = options, right = options;
        own.lse = lse.view;
        right.lse = right_lse.view;
        layer.forward(wide.view, wide_memory.view, expected.view, right);
        for (const int threads : {1, 3}) {
          own.num_threads = threads;
          layer.of<T>()(x.view, memory.view, y.view, own);
          INFO(layer.name, ", ", text_of(s), ", ", name_of_half<T>(), ", ", layout.name, ", ", threads,
               " threads, isa ", isa());
          CHECK(different_from_rounded(y.view, expected.view) == 0);
          CHECK((y.surroundings_untouched() && x.surroundings_untouched() && memory.surroundings_untouched()));
          if (layer.self || layer.cross) CHECK(different_bits(lse.view, right_lse.view) == 0);
        }
        if (!layer.in_place) continue;
        layer.of<T>()(x.view, memory.view, x.view, own);
        CHECK(different_from_rounded(x.view, expected.view) == 0);
      }
}

TEST_CASE_TEMPLATE("layers on 16-bit numbers: sequences of variable length, one row for all", T, bfloat16, float16) {
  const LayerSizes s;
  const std::vector<Index> starts{2, 9, 9, 15}, keys{0, 10, 12, 23};
  for (const AnyLayer& layer : all_layers(s, 1)) {
    if (!layer.self && !layer.cross) continue;
    const HalfTensor<T, 3> x = random_rows<T>({1, 19, s.d_model}, 2), memory = random_rows<T>({1, 23, s.d_model}, 3),
                           y(x.view.shape), shared(x.view.shape);
    const Tensor<3> expected(x.view.shape);
    if (!(layer.self && layer.cross)) {
      const AttentionOptions options{.query_starts = {starts.data(), {4}},
                                     .key_starts = {layer.self ? starts.data() : keys.data(), {4}}};
      layer.forward(x.widened().view, memory.widened().view, expected.view, options);
      layer.of<T>()(x.view, memory.view, y.view, options);
      CHECK(different_from_rounded(y.view, expected.view) == 0);
    }
    const auto one = [](const auto& rows) { return rows.slice(1, 0, 1).select(1, 0).broadcast(1, 19); };
    layer.forward(one(x.widened().view), one(memory.widened().view), expected.view, {});
    layer.of<T>()(one(x.view), one(memory.view), y.view, {});
    CHECK_MESSAGE(different_from_rounded(y.view, expected.view) == 0, layer.name);
  }
}

/// A decoder layer and the caches of two calls.
struct Decoding {
  LayerSizes s{.d_model = 24, .heads = 4, .kv_heads = 2, .head_dim = 6, .memory_width = 11, .d_ff = 40};
  RandomState state = random_layer(s, 1, true);
  DecoderLayer layer{state.dict, "", s.options()};
  KvCache cache, memory, right_cache, right_memory;
  std::vector<Index> sequences{2, 0}, memory_sequences{1, 2};

  explicit Decoding(DType type)
      : cache(made(type)), memory(made(type)), right_cache(made(type)), right_memory(made(type)) {}
  [[nodiscard]] KvCache made(DType type) const {
    KvCache empty(s.kv_heads, s.head_dim, s.head_dim, {.page_size = 32, .type = type});
    for (int i = 0; i < 3; ++i) (void)empty.add();
    return empty;
  }
};

TEST_CASE_TEMPLATE("layers over caches on 16-bit numbers: what float32 computes, and keeps", T, bfloat16, float16) {
  for (const DType type : {DType::float32, DType::bfloat16, DType::int8})
    for (const Layout& layout : layouts()) {
      Decoding d(type);
      const MultiHeadAttention &self = d.layer.self_attn(), &cross = d.layer.multihead_attn();
      const HalfTensor<T, 3> memory = random_rows<T>({2, 23, d.s.memory_width}, 3, layout);
      const std::vector<Index> lengths{23, 7};
      const ProjectMemoryOptions projection{.key_lengths = {lengths.data(), {2}}, .num_threads = 2};
      cross.project_memory(memory.view, d.memory, d.memory_sequences, projection);
      cross.project_memory(memory.widened().view, d.right_memory, d.memory_sequences, projection);
      CHECK(bits_of(d.memory) == bits_of(d.right_memory));
      for (const Index length : {1, 20, 1, 5}) {
        const HalfTensor<T, 3> x = random_rows<T>({2, length, d.s.d_model}, static_cast<std::uint64_t>(length), layout),
                               y(x.view.shape, layout);
        const Tensor<3> wide = x.widened(), expected(x.view.shape);
        const auto check = [&](const char* what) {
          CHECK_MESSAGE(different_from_rounded(y.view, expected.view) == 0, what, ", ", name_of_half<T>(), ", ",
                        layout.name, ", isa ", isa());
          CHECK(bits_of(d.cache) == bits_of(d.right_cache));
          CHECK(y.surroundings_untouched());
        };
        self.forward(x.view, d.cache, d.sequences, y.view);
        self.forward(wide.view, d.right_cache, d.sequences, expected.view);
        check("MultiHeadAttention over a cache");
        cross.forward_projected(x.view, d.memory, d.memory_sequences, y.view);
        cross.forward_projected(wide.view, d.right_memory, d.memory_sequences, expected.view);
        check("forward_projected");
        d.layer.forward(wide.view, d.right_cache, d.sequences, d.right_memory, d.memory_sequences, expected.view);
        d.layer.forward(x.view, d.cache, d.sequences, d.memory, d.memory_sequences, x.view);
        copy_halves(x.view, y.view);
        check("DecoderLayer over caches, in place");
      }
    }
}

TEST_CASE_TEMPLATE("Embedding of 16-bit numbers: the rounded result of float32", T, bfloat16, float16) {
  RandomState state(1);
  state.matrix("weight", 20, 37);
  const std::vector<Index> ids{3, 1, 4, 1, 5, 9, 2, 19, 0, 6};
  for (const bool tied : {false, true})
    for (const Layout& layout : layouts())
      for (const bool add : {false, true}) {
        const Embedding layer(state.dict, "", {.tied = tied, .max_length = 4});
        const HalfTensor<T, 3> y = random_rows<T>({2, 4, 37}, 5, layout);
        const Tensor<3> expected = y.widened();
        const EmbeddingForwardOptions options{.scale = 0.7f, .add = add, .truncate = true};
        layer.forward({ids.data(), {2, 5}}, expected.view, options);
        layer.forward({ids.data(), {2, 5}}, y.view, options);
        CHECK_MESSAGE(different_from_rounded(y.view, expected.view) == 0, layout.name, ", isa ", isa());
        CHECK(y.surroundings_untouched());
      }
}

TEST_CASE_TEMPLATE("layers on 16-bit numbers read and write nothing outside of x, memory and y", T, bfloat16, float16) {
  GuardedBuffer x(4096), memory(4096), y(8192);
  for (const LayerSizes& s : layer_sizes())
    for (const AnyLayer& layer : all_layers(s, 1))
      for (const Index length : {1, 5, 16})
        for (const Place where : {Place::start, Place::end}) {
          const HalfTensor<T, 3> from = random_rows<T>({1, length, layer.in}, 2), to({1, length, layer.out}),
                                 of_memory = random_rows<T>({1, 7, s.memory_width}, 3);
          const View<T, 3> result = placed(y, to.view, where);
          layer.of<T>()(from.view, of_memory.view, to.view, {});
          layer.of<T>()(placed(x, from.view, where), placed(memory, of_memory.view, where), result, {});
          CHECK_MESSAGE(different_from_rounded(result, to.view) == 0, layer.name, ", ", length, ", isa ", isa());
          CHECK(y.surroundings_untouched());
        }
}

const char* function_of(const std::string& layer) {
  if (layer.starts_with("MultiHead")) return "MultiHeadAttention::forward";
  if (layer.starts_with("Encoder")) return "EncoderLayer::forward";
  if (layer.starts_with("Decoder")) return "DecoderLayer::forward";
  if (layer.starts_with("Embedding")) return "Embedding::logits";
  if (layer.starts_with("Feed")) return "FeedForward::forward";
  return layer.starts_with("Linear") ? "Linear::forward" : "orm";  // Normalization::forward or layer_norm
}

template <class T>
bool untouched(const HalfTensor<T, 3>& tensor) {
  bool all = tensor.surroundings_untouched();
  for_each(tensor.view, [&](const T& e) { all = all && e.bits == half_sentinel; });
  return all;
}

TEST_CASE_TEMPLATE("layers on 16-bit numbers: illegal calls", T, bfloat16, float16) {
  using In = View<const T, 3>;
  using Out = View<T, 3>;
  const LayerSizes s{.d_model = 24, .heads = 4, .kv_heads = 2, .head_dim = 6, .memory_width = 11, .d_ff = 40};
  const HalfTensor<T, 3> x = random_rows<T>({2, 5, 24}, 1), memory = random_rows<T>({2, 7, 11}, 2), narrow({2, 5, 24}),
                         wide({2, 5, 40}), shared({4, 40, 24});
  const In from = x.view, of_memory = memory.view;
  std::vector<Illegal> calls;
  for (const AnyLayer& layer : all_layers(s, 1)) {
    const char* function = function_of(layer.name);
    const Out y = layer.out == 24 ? narrow.view : wide.view;
    const auto forward = layer.of<T>();
    add(calls, function, "x", wrong_views(from), [=](const In& view) { forward(view, of_memory, y, {}); });
    add(calls, function, "y", wrong_views(y), [=](const Out& view) { forward(from, of_memory, view, {}); });
    const auto push = [&](const std::string& what, const std::function<void()>& call, std::vector<std::string> words) {
      words.emplace_back(function);
      calls.push_back({layer.name + ", " + what, call, words});
    };
    push("threads", [=] { forward(from, of_memory, y, {.num_threads = -2}); }, {"num_threads is -2"});
    T* const p = shared.view.data + 1000;
    const Out at(p, y.shape);
    push("y over itself", [=] { forward(from, of_memory, {p, y.shape, {0, y.strides[1], 1}}, {}); }, {"overlap", "y"});
    for (const Index shift : {-119, -1, 1, 119}) {
      push("y over x", [=] { forward({p + shift, from.shape}, of_memory, at, {}); }, {"overlap", "x", "y"});
      if (!layer.self && !layer.cross) continue;
      const View<float, 3> lse(reinterpret_cast<float*>(p + shift / 8 * 2), {2, 4, 5});
      push("y over lse", [=] { forward(from, of_memory, at, {.lse = lse}); }, {"overlap", "lse"});
      push("lse over x", [=] { forward(In(p, from.shape), of_memory, y, {.lse = lse}); }, {"overlap", "lse", "x"});
      const View<const float, 4> bias(reinterpret_cast<const float*>(p + 40), {2, 4, 5, layer.self ? 5 : 7},
                                      {0, 0, 0, 1});
      push("y over bias", [=] { forward(from, of_memory, at, {.bias = bias}); }, {"overlap", "bias"});
      if (!layer.cross) continue;
      push("y over memory", [=] { forward(from, {p + shift, of_memory.shape}, at, {}); }, {"overlap", "memory", "y"});
      push("lse over memory", [=] { forward(from, {p, of_memory.shape}, y, {.lse = lse}); },
           {"overlap", "lse", "memory"});
    }
    if (!layer.in_place) push("in place", [=] { forward(In(p, {2, 5, 24}), {}, at, {}); }, {"overlap"});
    if (!layer.self && !layer.cross) continue;
    push("softcap", [=] { forward(from, of_memory, y, {.softcap = -3}); }, {"softcap"});
    push("memory", [=] { forward(from, In(nullptr, {1, 7, 11}), y, {.window_left = -5}); },
         {layer.cross ? "memory" : "window_left"});
  }
  check_illegal(calls, [&] { return untouched(narrow) && untouched(wide) && untouched(shared); });
}

TEST_CASE_TEMPLATE("layers over caches and Embedding on 16-bit numbers: illegal calls", T, bfloat16, float16) {
  Decoding d(DType::float32);
  const HalfTensor<T, 3> x = random_rows<T>({2, 5, 24}, 1), memory = random_rows<T>({2, 7, 11}, 2), y({2, 5, 24});
  const View<const T, 3> from = x.view;
  const MultiHeadAttention &self = d.layer.self_attn(), &cross = d.layer.multihead_attn();
  cross.project_memory(memory.view, d.memory, d.memory_sequences);
  const std::uint64_t before = bits_of(d.cache), memory_before = bits_of(d.memory);
  const std::vector<Index> wrong{0, 9}, lengths{3, 8};
  const AttentionOptions too_long{.query_lengths = {lengths.data(), {2}}};
  std::vector<Illegal> calls{
      {"sequence", [&] { self.forward(from, d.cache, wrong, y.view); }, {"MultiHeadAttention::forward: sequences[1]"}},
      {"lengths",
       [&] { self.forward(from, d.cache, d.sequences, y.view, too_long); },
       {"MultiHeadAttention::forward: query_lengths[1] is 8"}},
      {"projected",
       [&] { cross.forward_projected(from, d.memory, wrong, y.view); },
       {"MultiHeadAttention::forward_projected: sequences[1] is 9"}},
      {"project",
       [&] { cross.project_memory(from, d.memory, d.sequences); },
       {"MultiHeadAttention::project_memory: memory is"}},
      {"project, sequence",
       [&] { cross.project_memory(View<const T, 3>(memory.view), d.memory, wrong); },
       {"MultiHeadAttention::project_memory: sequences[1] is 9"}},
      {"decoder",
       [&] { d.layer.forward(from, d.cache, d.sequences, d.memory, wrong, y.view); },
       {"DecoderLayer::forward: sequences[1] is 9"}},
      {"decoder, lengths",
       [&] { d.layer.forward(from, d.cache, d.sequences, d.memory, d.memory_sequences, y.view, too_long); },
       {"DecoderLayer::forward: query_lengths[1] is 8"}},
      {"decoder, cross",
       [&] { d.layer.forward(from, d.cache, d.sequences, d.memory, d.memory_sequences, y.view, {}, {.softcap = -1}); },
       {"DecoderLayer::forward: softcap"}}};
  RandomState state(1);
  state.matrix("weight", 20, 24);
  const Embedding embedding(state.dict);
  const std::vector<Index> ids{3, 1, 4, 1, 5, 9, 2, 6, 5, 20};
  const View<const Index, 2> tokens(ids.data(), {2, 5});
  add(calls, "Embedding::forward", "y", wrong_views(y.view),
      [&](const View<T, 3>& to) { embedding.forward(tokens, to); });
  calls.push_back({"id", [&] { embedding.forward(tokens, y.view); }, {"Embedding::forward: ids[1, 4] is 20"}});
  calls.push_back({"y over ids",
                   [&] {
                     std::vector<Index> own(4, 1);
                     embedding.forward({own.data(), {1, 1}}, {reinterpret_cast<T*>(own.data()), {1, 1, 24}, {0, 0, 1}});
                   },
                   {"Embedding::forward: y", "overlaps ids"}});
  calls.push_back({"not tied", [&] { embedding.logits(from, y.view); }, {"Embedding::logits", "tied"}});
  check_illegal(calls,
                [&] { return untouched(y) && bits_of(d.cache) == before && bits_of(d.memory) == memory_before; });
}

}  // namespace
}  // namespace headlane::test
