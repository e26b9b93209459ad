// Attention on [batch, length, 512] buffers with the heads side by side: whole sequences, causal,
// and decoding.
#include "buffer.hpp"
#include "cases.hpp"
#include "machine.hpp"

#include <headlane/attention.hpp>

#include <algorithm>

namespace bench {

namespace {

struct AttentionData {
  explicit AttentionData(const AttentionShape& shape)
      : q(shape.batch * shape.q_length * d_model, 1),
        kv(2 * shape.batch * shape.kv_length * d_model, 2),
        out(shape.batch * shape.q_length * d_model) {}
  Buffer q, kv, out;
};

Work prepare(const AttentionShape& shape) {
  const auto data = std::make_shared<AttentionData>(shape);
  const float* keys = data->kv.data();
  const float* values = keys + shape.batch * shape.kv_length * d_model;
  const headlane::View<const float, 3> q(data->q.data(), {shape.batch, shape.q_length, d_model});
  const headlane::View<const float, 3> k(keys, {shape.batch, shape.kv_length, d_model});
  const headlane::View<const float, 3> v(values, {shape.batch, shape.kv_length, d_model});
  const headlane::View<float, 3> out(data->out.data(), {shape.batch, shape.q_length, d_model});
  headlane::AttentionOptions options;
  options.causal = shape.causal;
  Work work{
      .library = [data, q, k, v, out, options] { headlane::multi_head_attention(q, k, v, out, heads, options); },
      .naive = [data, keys, values, shape](
                   int threads) { naive_attention(data->q.data(), keys, values, data->out.data(), shape, threads); },
      .limit = fma_peak,
      .output = data->out.values()};
  if (shape.q_length == 1) {
    work.limit = [data](std::string_view, int threads) {
      return read_rate(data->kv.data(), data->kv.bytes(), threads);
    };
  }
  return work;
}

// Pairs of a query and a key visible to it.
double visible_pairs(const AttentionShape& shape) {
  if (!shape.causal) return static_cast<double>(shape.q_length) * static_cast<double>(shape.kv_length);
  double sum = 0;
  for (Index i = 0; i < shape.q_length; ++i) sum += static_cast<double>(std::min(i + 1, shape.kv_length));
  return sum;
}

}  // namespace

Case attention_case(const AttentionShape& shape, bool quick) {
  const bool decode = shape.q_length == 1;
  const double flops = 4.0 * static_cast<double>(shape.batch * d_model) * visible_pairs(shape);
  const double bytes = static_cast<double>(2 * shape.batch * shape.kv_length * d_model) * sizeof(float);
  return {.op = decode         ? "decode"
                : shape.causal ? "causal"
                               : "attention",
          .size = (shape.batch > 1 ? std::to_string(shape.batch) + "x" : "") + std::to_string(shape.kv_length),
          .amount = decode ? bytes : flops,
          .flops = flops,
          .quick = quick,
          .prepare = [shape] { return prepare(shape); }};
}

std::vector<Case> attention_cases() {
  std::vector<Case> cases;
  for (const bool causal : {false, true}) {
    for (const Index length : {16, 64, 128, 512, 1024, 2048, 4096}) {
      const bool quick = causal ? length == 512 || length == 2048 : length < 4096;
      cases.push_back(attention_case({1, length, length, causal}, quick));
    }
    if (causal) continue;
    cases.push_back(attention_case({32, 128, 128, false}));
    cases.push_back(attention_case({64, 32, 32, false}));
  }
  cases.push_back(attention_case({1, 1, 1024, false}, true));
  cases.push_back(attention_case({8, 1, 1024, false}));
  return cases;
}

}  // namespace bench
