// Small T5 models with random weights, written as Hugging Face folders.
#pragma once

#include "files.hpp"
#include "support/data.hpp"

#include <headlane/dtype.hpp>
#include <headlane/index.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace headlane::test {

struct T5Case {
  Index vocabulary = 61, d = 24, kv = 5, heads = 3, ff = 40, layers = 2, decoder_layers = 1;
  bool gated = false, own_head = false;
  std::string dtype = "F32";
  int shards = 1;
  std::string more = {};  // members of config.json, with a comma in front

  [[nodiscard]] std::string config() const {
    const auto member = [](const char* key, Index value) {
      return std::string(R"(,")").append(key).append(R"(":)").append(std::to_string(value));
    };
    return R"({"model_type":"t5")" + member("vocab_size", vocabulary) + member("d_model", d) + member("d_kv", kv) +
           member("d_ff", ff) + member("num_heads", heads) + member("num_layers", layers) +
           member("num_decoder_layers", decoder_layers) + R"(,"feed_forward_proj":")" +
           (gated ? "gated-gelu" : "relu") + R"(","tie_word_embeddings":)" + (own_head ? "false" : "true") +
           R"(,"relative_attention_num_buckets":8,"relative_attention_max_distance":20,"eos_token_id":[1,7,11,20,33])" +
           R"(,"pad_token_id":0,"decoder_start_token_id":0)" + more + "}";
  }
};

/// Multiples of 1/32 below 4, which float16 and bfloat16 hold exactly.
inline std::string elements_of(const std::vector<float>& values, const std::string& dtype) {
  if (dtype == "F32") return bytes_of(values);
  std::vector<std::uint16_t> halves;
  for (const float x : values) halves.push_back(dtype == "BF16" ? bfloat16(x).bits : float16(x).bits);
  return bytes_of(halves);
}

/// Writes the tensors; they have the same values for every dtype and number of files.
class T5Writer {
 public:
  T5Writer(const Folder& folder, const T5Case& c) : c_(c), files_(static_cast<std::size_t>(c.shards)) {
    const Index inner = c.heads * c.kv;
    add("shared.weight", {c.vocabulary, c.d}, 32);
    for (const bool decoder : {false, true}) {
      const std::string stack = decoder ? "decoder." : "encoder.";
      for (Index i = 0; i < (decoder ? c.decoder_layers : c.layers); ++i) {
        const std::string block = stack + "block." + std::to_string(i) + ".layer.";
        attention(block + "0.SelfAttention.", inner);
        if (i == 0) add(block + "0.SelfAttention.relative_attention_bias.weight", {8, c.heads}, 64);
        add(block + "0.layer_norm.weight", {c.d}, 0);
        if (decoder) attention(block + "1.EncDecAttention.", inner), add(block + "1.layer_norm.weight", {c.d}, 0);
        const std::string last = block + (decoder ? "2." : "1.");
        for (const char* wi : {"wi", "wi_0", "wi_1"})
          if (c.gated == (std::string_view(wi) != "wi"))
            add(last + "DenseReluDense." + wi + ".weight", {c.ff, c.d}, 16);
        add(last + "DenseReluDense.wo.weight", {c.d, c.ff}, 16);
        add(last + "layer_norm.weight", {c.d}, 0);
      }
      add(stack + "final_layer_norm.weight", {c.d}, 0);
    }
    if (c.own_head) add("lm_head.weight", {c.vocabulary, c.d}, 32);  // last, so that the others have the same values
    folder.write("config.json", c.config());
    std::string index;
    for (int i = 0; i < c.shards; ++i) {
      const std::string name = c.shards == 1 ? "model.safetensors" : "part-" + std::to_string(i) + ".safetensors";
      folder.write(name, files_[static_cast<std::size_t>(i)].file());
    }
    for (const auto& [name, shard] : places_)
      index.append(index.empty() ? "" : ",")
          .append("\"" + name + "\":\"part-" + std::to_string(shard) + ".safetensors\"");
    if (c.shards > 1) folder.write("model.safetensors.index.json", R"({"weight_map":{)" + index + "}}");
  }

 private:
  /// Random values of magnitude up to reach / 32; reach 0: the weight of a norm.
  void add(const std::string& name, const std::vector<Index>& shape, Index reach) {
    Index count = 1;
    for (const Index size : shape) count *= size;
    std::vector<float> values;
    for (Index i = 0; i < count; ++i)
      values.push_back(static_cast<float>(reach == 0 ? random_.integer(16, 48) : random_.integer(-reach, reach)) /
                       32.0f);
    const int shard = static_cast<int>(places_.size()) % c_.shards;
    files_[static_cast<std::size_t>(shard)].add(name, c_.dtype, shape, elements_of(values, c_.dtype));
    places_.emplace_back(name, shard);
  }

  void attention(const std::string& name, Index inner) {
    for (const char* which : {"q", "k", "v"}) add(name + which + ".weight", {inner, c_.d}, 16);
    add(name + "o.weight", {c_.d, inner}, 24);
  }

  T5Case c_;
  Random random_{5};
  std::vector<FileBuilder> files_;
  std::vector<std::pair<std::string, int>> places_;
};

/// Writes a checkpoint to the folder.
inline void write_t5(const Folder& folder, const T5Case& c) { const T5Writer written(folder, c); }

inline std::vector<std::vector<Index>> t5_inputs(Index vocabulary = 61) {
  Random random(11);
  std::vector<std::vector<Index>> inputs;
  for (const Index length : {1, 5, 2, 23, 9}) {
    inputs.emplace_back();
    for (Index i = 0; i < length; ++i) inputs.back().push_back(random.integer(0, vocabulary - 1));
  }
  return inputs;
}

}  // namespace headlane::test
