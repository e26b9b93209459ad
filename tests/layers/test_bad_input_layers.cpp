// Illegal calls of layers: std::invalid_argument whose message names the function or layer, the
// argument or tensor, and sizes; y stays unchanged.
#include "support/illegal.hpp"
#include "support/layer_case.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

using In = View<const float, 3>;
using Out = View<float, 3>;

/// Inputs and outputs of the layers of some sizes.
struct Operands {
  LayerSizes s{.d_model = 24, .heads = 4, .kv_heads = 2, .head_dim = 6, .memory_width = 11, .d_ff = 40};
  RandomState state = random_layer(s, 1, true);
  Tensor<3> x{{2, 5, 24}}, memory{{2, 7, 11}}, y{{2, 5, 24}}, wide{{2, 5, 40}}, lse{{2, 4, 5}}, shared{{4, 40, 24}};

  [[nodiscard]] bool untouched() const {
    return all_sentinels(y.view) && all_sentinels(wide.view) && all_sentinels(lse.view) && all_sentinels(shared.view) &&
           y.surroundings_untouched() && wide.surroundings_untouched() && lse.surroundings_untouched();
  }
};

const char* function_of(const std::string& layer) {
  if (layer.starts_with("MultiHead")) return "MultiHeadAttention::forward";
  if (layer.starts_with("Encoder")) return "EncoderLayer::forward";
  if (layer.starts_with("Decoder")) return "DecoderLayer::forward";
  if (layer.starts_with("Embedding")) return "Embedding::logits";
  if (layer.starts_with("Feed")) return "FeedForward::forward";
  return layer.starts_with("Linear") ? "Linear::forward" : "orm";  // Normalization::forward or layer_norm
}

TEST_CASE("illegal shapes, strides and overlaps of every layer") {
  const Operands o;
  std::vector<Illegal> calls;
  for (const AnyLayer& layer : all_layers(o.s, 1)) {
    const char* function = function_of(layer.name);
    const Out y = layer.out == 24 ? o.y.view : o.wide.view;
    const auto forward = layer.forward;
    add(calls, function, "x", wrong_views(In(o.x.view)), [=, &o](In x) { forward(x, o.memory.view, y, {}); });
    add(calls, function, "y", wrong_outputs(y), [=, &o](Out to) { forward(o.x.view, o.memory.view, to, {}); });
    const auto push = [&](const std::string& what, const std::function<void()>& call, std::vector<std::string> words) {
      words.emplace_back(function);
      calls.push_back({layer.name + ", " + what, call, words});
    };
    if (layer.cross)
      for (const auto& wrong : wrong_views(In(o.memory.view))) {
        if (wrong.what.ends_with("on axis 1")) continue;  // memory may have any length, which its data does not tell
        std::vector<std::string> words = wrong.words;
        words.emplace_back("memory");
        push("memory: " + wrong.what, [=, &o, view = wrong.view] { forward(o.x.view, view, y, {}); }, words);
      }
    push("threads", [=, &o] { forward(o.x.view, o.memory.view, y, {.num_threads = -2}); }, {"num_threads", "-2"});
    float* p = o.shared.view.data + 1000;
    for (const Index shift : {-239, -24, -1, 1, 24, 239}) {
      const Out at(p, y.shape);
      push("y over x", [=, &o] { forward({p + shift, o.x.view.shape}, o.memory.view, at, {}); }, {"overlap", "x", "y"});
      if (layer.cross)
        push("y over memory", [=, &o] { forward(o.x.view, {p + shift / 2, o.memory.view.shape}, at, {}); },
             {"overlap", "memory", "y"});
      if (!layer.self && !layer.cross) continue;
      const Out lse(p + shift / 8, {2, 4, 5});
      push("y over lse", [=, &o] { forward(o.x.view, o.memory.view, at, {.lse = lse}); }, {"overlap", "lse"});
      push("lse over x", [=, &o] { forward(at, o.memory.view, y, {.lse = lse}); }, {"overlap", "lse", "x"});
      if (layer.cross)
        push("lse over memory", [=, &o] { forward(o.x.view, {p, o.memory.view.shape}, y, {.lse = lse}); },
             {"overlap", "lse", "memory"});
    }
    if (!layer.in_place) push("in place", [=] { forward(In(p, {2, 5, 24}), {}, Out(p, y.shape), {}); }, {"overlap"});
    if (!layer.self && !layer.cross) continue;
    std::vector<std::byte> bytes(100);
    push("sum", [=, &o] { forward(o.x.view, o.memory.view, y, {.lse = o.lse.view, .sum = o.lse.view}); }, {"sum"});
    push("workspace", [=, &o]() mutable { forward(o.x.view, o.memory.view, y, {.workspace = bytes}); },
         {"workspace", "100"});
    push("softcap", [=, &o] { forward(o.x.view, o.memory.view, y, {.softcap = -3}); }, {"softcap"});
    push("lse", [=, &o] { forward(o.x.view, o.memory.view, y, {.lse = o.lse.view.slice(1, 0, 3)}); },
         {"lse", "3", "4"});
    const std::vector<Index> lengths{3, 8};
    push("lengths", [=, &o] { forward(o.x.view, o.memory.view, y, {.key_lengths = {lengths.data(), {2}}}); },
         {"key_lengths", "8"});
    push("starts", [=, &o] { forward(o.x.view, o.memory.view, y, {.query_starts = {lengths.data(), {2}}}); },
         {"starts"});
  }
  check_illegal(calls, [&] { return o.untouched(); });
  CHECK(illegal_calls() >= 400);
}

TEST_CASE("illegal residuals and activations of Linear; logits of what is not tied; what an empty layer is given") {
  const Operands o;
  const Linear linear(o.state.dict, "linear1.");
  std::vector<Illegal> calls;
  const In residual(o.shared.view.data, o.wide.view.shape);
  for (const auto& wrong : wrong_views(residual)) {
    if (wrong.what == "null") continue;  // none
    std::vector<std::string> words = wrong.words;
    words.insert(words.end(), {"Linear::forward", "residual"});
    calls.push_back({"residual, " + wrong.what,
                     [&, view = wrong.view] { linear.forward(o.x.view, o.wide.view, {.residual = view}); }, words});
  }
  calls.push_back({"y over residual",
                   [&] { linear.forward(o.x.view, o.wide.view, {.residual = o.wide.view}); },
                   {"Linear::forward", "overlap", "residual"}});
  calls.push_back({"activation",
                   [&] { linear.forward(o.x.view, o.wide.view, {.activation = static_cast<Activation>(9)}); },
                   {"Linear::forward", "activation is 9"}});
  calls.push_back({"not tied",
                   [&] { Embedding(o.state.dict, "linear1.").logits(o.x.view, o.wide.view); },
                   {"Embedding::logits", "tied"}});
  const std::string empty = "the layer takes rows of 0";
  calls.push_back({"empty", [&] { Linear().forward(o.x.view, o.y.view); }, {"Linear::forward", empty}});
  calls.push_back({"empty", [&] { FeedForward().forward(o.x.view, o.y.view); }, {"FeedForward::forward", empty}});
  calls.push_back({"empty", [&] { EncoderLayer().forward(o.x.view, o.y.view); }, {"EncoderLayer::forward", empty}});
  calls.push_back({"empty", [&] { MultiHeadAttention().forward(o.x.view, o.y.view); }, {"MultiHeadAttention", empty}});
  const MultiHeadAttention cross(o.state.dict, "multihead_attn.", o.s.attention());
  calls.push_back({"no self-attention", [&] { cross.forward(o.x.view, o.y.view); }, {"width 24", "width 11"}});
  const DecoderLayer decoder(o.state.dict, "", o.s.options());
  calls.push_back(
      {"lse over lse",
       [&] { decoder.forward(o.x.view, o.memory.view, o.y.view, {.lse = o.lse.view}, {.lse = o.lse.view}); },
       {"DecoderLayer::forward", "self.lse", "cross.lse", "overlap"}});
  const Out over(o.shared.view.data + 9, {2, 4, 5});
  calls.push_back({"self lse over memory",
                   [&] { decoder.forward(o.x.view, {o.shared.view.data, {2, 7, 11}}, o.y.view, {.lse = over}); },
                   {"DecoderLayer::forward", "self.lse", "memory", "overlap"}});
  check_illegal(calls, [&] { return o.untouched(); });
}

/// Each input that options may name, at one place.
std::vector<std::pair<const char*, AttentionOptions>> all_inputs(float* p, Index keys) {
  auto* const integers = reinterpret_cast<Index*>(p);
  auto* const bytes = reinterpret_cast<unsigned char*>(p);
  std::vector<std::pair<const char*, AttentionOptions>> all{
      {"mask", {.mask = {reinterpret_cast<bool*>(p), {2, 4, 5, keys}}}},
      {"bias", {.bias = {p, {2, 4, 5, keys}}}},
      {"key_lengths", {.key_lengths = {integers, {2}}}},
      {"query_lengths", {.query_lengths = {integers, {2}}}},
      {"alibi_slopes", {.alibi_slopes = {p, {4}}}},
      {"sinks", {.sinks = {p, {4}}}},
      {"causal_offsets", {.causal_offsets = {integers, {2}}}},
      {"mask_bits", {.mask_bits = {bytes, {2, 4, 5, 1}}}},
      {"relative_bias.table", {.relative_bias = {.table = {p, {4, 32}}}}}};
  return all;
}

TEST_CASE("layers: what they write overlaps no input of their options") {
  const Operands o;
  std::vector<float> memory(2000, 0.0f);
  float* const p = memory.data() + 500;
  const EncoderLayer encoder(o.state.dict, "", o.s.options());
  const DecoderLayer decoder(o.state.dict, "", o.s.options());
  std::vector<Illegal> calls;
  const In x = o.x.view, rows = o.memory.view;
  const auto push = [&](const char* function, const char* written, const char* name, const auto& call) {
    calls.push_back({std::string(written) + " over " + name, call, {function, written, name, "overlap"}});
  };
  const auto with_lse = [](AttentionOptions options, const Out& lse) {
    options.lse = lse;
    return options;
  };
  for (const Index shift : {0, 1, 39}) {  // the inputs begin within lse and y
    const Out y(p - shift, {2, 5, 24}), lse(p - shift, {2, 4, 5});
    for (const auto& [name, options] : all_inputs(p, 5)) {
      const AttentionOptions self = options;
      push("EncoderLayer::forward", "y", name, [&, self, y] { encoder.forward(x, y, self); });
      push("DecoderLayer::forward", "y", name, [&, self, y] { decoder.forward(x, rows, y, self); });
      push("EncoderLayer::forward", "lse", name,
           [&, self, lse, with_lse] { encoder.forward(x, o.y.view, with_lse(self, lse)); });
      push("DecoderLayer::forward", "lse", name,
           [&, self, lse, with_lse] { decoder.forward(x, rows, o.y.view, with_lse(self, lse)); });
      push("DecoderLayer::forward", "cross.lse", name,
           [&, self, lse] { decoder.forward(x, rows, o.y.view, self, {.lse = lse}); });
    }
    for (const auto& [name, options] : all_inputs(p, 7)) {
      const AttentionOptions cross = options;
      push("DecoderLayer::forward", "y", name, [&, cross, y] { decoder.forward(x, rows, y, {}, cross); });
      push("DecoderLayer::forward", "self.lse", name,
           [&, cross, lse] { decoder.forward(x, rows, o.y.view, {.lse = lse}, cross); });
    }
  }
  const Index before = illegal_calls();
  check_illegal(calls, [&] {
    return o.untouched() && std::all_of(memory.begin(), memory.end(), [](float e) { return e == 0; });
  });
  CHECK(illegal_calls() - before == 3 * 9 * 7);
}

TEST_CASE("illegal state dicts: missing, of another rank or size, null") {
  const Operands o;
  std::vector<Illegal> calls;
  const auto make = [&](const StateDict& dict) {
    const DecoderLayer decoder(dict, "", o.s.options());
    const FeedForward feed_forward(dict, "");
  };
  make(o.state.dict);
  for (const auto& [name, tensor] : o.state.dict) {
    const auto with = [&](const std::string& what, const AnyView<const float>& view, std::vector<std::string> words) {
      StateDict dict = o.state.dict;
      dict[name] = view;
      // an argument that defines a width is not named; the one that then does not match is
      const bool defines =
          (what == "columns" && name.ends_with("proj_weight")) || (what == "rows" && name.ends_with("out_proj.weight"));
      words.emplace_back(defines || name.ends_with("linear1.weight") || name.starts_with("norm") ? "" : name);
      std::string text = name;
      calls.push_back({text.append(", ").append(what), [=] { make(dict); }, words});
    };
    if (!name.ends_with("bias")) {
      StateDict dict = o.state.dict;
      dict.erase(name);
      const std::string wanted = name.ends_with("proj_weight") ? "q_proj_weight" : name;
      calls.push_back({name + " missing",
                       [=] { make(dict); },
                       {"state dict has no", name.ends_with("in_proj_weight") ? wanted : name}});
    }
    AnyView<const float> view = tensor;
    view.data = nullptr;
    with("null", view, {"null"});
    view = tensor;
    view.rank = 3;
    view.shape[2] = view.strides[2] = 1;
    with("rank", view, {"it must be"});
    view = tensor;
    view.shape[0] -= 1;
    with("rows", view, {std::to_string(view.shape[0])});
    view = tensor;
    view.shape[0] = -1;
    with("negative", view, {"-1"});
    if (tensor.rank == 1) continue;
    view = tensor;
    view.shape[1] -= 1;
    with("columns", view, {std::to_string(view.shape[1])});
  }
  check_illegal(calls, [] { return true; });
}

TEST_CASE("illegal options of layers") {
  const Operands o;
  std::vector<Illegal> calls;
  calls.push_back({"Normalization eps", [&] { Normalization(o.state.dict, "norm1.", NormKind::rms, -1); }, {"eps"}});
  calls.push_back({"Normalization eps", [&] { Normalization(o.state.dict, "norm1.", NormKind::layer, nan); }, {"eps"}});
  const auto other = static_cast<NormKind>(7);
  calls.push_back({"Normalization", [&] { Normalization(o.state.dict, "norm1.", other, 1e-5f); }, {"kind is 7"}});
  calls.push_back({"activation",
                   [&] { FeedForward(o.state.dict, "", {static_cast<Activation>(8)}); },
                   {"FeedForward", "activation is 8"}});
  calls.push_back({"max_length",
                   [&] { Embedding(o.state.dict, "linear1.", {.max_length = -1}); },
                   {"Embedding", "max_length is -1"}});
  const auto attention = [&](Index heads, Index kv_heads, std::vector<std::string> words) {
    words.emplace_back("MultiHeadAttention");
    calls.push_back({"heads", [=, &o] { MultiHeadAttention(o.state.dict, "self_attn.", {heads, kv_heads}); }, words});
  };
  attention(0, 0, {"heads is 0"});
  attention(-4, 0, {"heads is -4"});
  attention(4, -2, {"kv_heads is -2"});
  attention(4, 3, {"kv_heads is 3", "heads, 4"});
  attention(4, 8, {"kv_heads is 8"});
  attention(5, 0, {"in_proj_weight", "48"});
  attention(huge, 0, {"in_proj_weight", std::to_string(huge)});
  attention(huge, huge / 2, {"in_proj_weight", std::to_string(huge)});
  attention(2, 2, {"out_proj.weight", "24"});
  RandomState state(2);
  state.matrix("a.in_proj_weight", 3 * 513, 4);
  state.matrix("a.out_proj.weight", 4, 513);
  calls.push_back({"head_dim", [&] { MultiHeadAttention(state.dict, "a.", {.heads = 1}); }, {"head_dim is 513"}});
  for (const char* name : {"bias_k", "bias_v"}) {
    RandomState with = random_layer(o.s, 1, false);
    with.vector(std::string("self_attn.") + name, 12);
    calls.push_back({name,
                     [&o, dict = with.dict] { MultiHeadAttention(dict, "self_attn.", o.s.attention()); },
                     {"MultiHeadAttention", std::string("self_attn.") + name}});
  }
  check_illegal(calls, [] { return true; });
}

}  // namespace
}  // namespace headlane::test
