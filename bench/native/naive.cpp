#include "naive.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#ifndef _OPENMP  // the loops are serial then
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#endif

namespace bench {

namespace {

void softmax_row(const float* x, float* y, Index n) {
  float largest = x[0];
  for (Index i = 1; i < n; ++i) largest = std::max(largest, x[i]);
  float sum = 0;
  for (Index i = 0; i < n; ++i) {
    y[i] = std::exp(x[i] - largest);
    sum += y[i];
  }
  for (Index i = 0; i < n; ++i) y[i] /= sum;
}

// One query row of one head: scores, softmax, weighted sum of the values.
void attention_row(const float* q, const float* k, const float* v, float* out, Index keys, std::vector<float>& scores) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  for (Index j = 0; j < keys; ++j) {
    float sum = 0;
    for (Index d = 0; d < head_dim; ++d) sum += q[d] * k[j * d_model + d];
    scores[static_cast<std::size_t>(j)] = sum * scale;
  }
  softmax_row(scores.data(), scores.data(), keys);
  for (Index d = 0; d < head_dim; ++d) {
    float sum = 0;
    for (Index j = 0; j < keys; ++j) sum += scores[static_cast<std::size_t>(j)] * v[j * d_model + d];
    out[d] = sum;
  }
}

}  // namespace

void naive_gemm(const float* a, const float* b, float* c, Index m, Index n, Index k, [[maybe_unused]] int threads) {
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      float sum = 0;
      for (Index p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
      c[i * n + j] = sum;
    }
  }
}

void naive_softmax(const float* x, float* y, Index rows, Index columns, [[maybe_unused]] int threads) {
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < rows; ++i) softmax_row(x + i * columns, y + i * columns, columns);
}

void naive_attention(const float* q, const float* k, const float* v, float* out, const AttentionShape& shape,
                     [[maybe_unused]] int threads) {
#pragma omp parallel for num_threads(threads)
  for (Index task = 0; task < shape.batch * heads; ++task) {
    const Index batch = task / heads;
    const Index column = task % heads * head_dim;
    const Index q_start = batch * shape.q_length * d_model + column;
    const Index kv_start = batch * shape.kv_length * d_model + column;
    std::vector<float> scores(static_cast<std::size_t>(shape.kv_length));
    for (Index i = 0; i < shape.q_length; ++i) {
      const Index keys = shape.causal ? std::min(i + 1, shape.kv_length) : shape.kv_length;
      attention_row(q + q_start + i * d_model, k + kv_start, v + kv_start, out + q_start + i * d_model, keys, scores);
    }
  }
}

}  // namespace bench
