// Operations whose state goes from token to token, as textbook loops.
#include "naive.hpp"

#include <cmath>

#ifndef _OPENMP  // the loops are serial then
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#endif

namespace bench {

namespace {

struct Token {
  const float *q, *k, *v;
  float decay, beta;
  float* out;
};

// One token of a head: state [dim, dim].
void delta_rule_token(const Token& token, float* state, Index dim) {
  for (Index i = 0; i < dim * dim; ++i) state[i] *= std::exp(token.decay);
  for (Index j = 0; j < dim; ++j) {
    float read = 0;
    for (Index i = 0; i < dim; ++i) read += state[i * dim + j] * token.k[i];
    const float u = (token.v[j] - read) * token.beta;
    float sum = 0;
    for (Index i = 0; i < dim; ++i) {
      state[i * dim + j] += token.k[i] * u;
      sum += state[i * dim + j] * token.q[i];
    }
    token.out[j] = sum / std::sqrt(static_cast<float>(dim));
  }
}

}  // namespace

void naive_delta_rule(const float* q, const float* k, const float* v, const float* decay, const float* beta,
                      float* state, float* out, const DeltaRuleShape& shape, [[maybe_unused]] int threads) {
  const Index batch = shape.batch, length = shape.length, of_batch = shape.heads, dim = shape.dim;
#pragma omp parallel for num_threads(threads)
  for (Index task = 0; task < batch * of_batch; ++task) {
    const Index b = task / of_batch, head = task % of_batch;
    for (Index t = 0; t < length; ++t) {
      const Index row = (b * length + t) * of_batch + head, at = row * dim;
      delta_rule_token({q + at, k + at, v + at, decay[row], beta[row], out + at}, state + task * dim * dim, dim);
    }
  }
}

void naive_convolution(const float* x, const float* weight, float* y, Index rows, Index channels, Index width,
                       [[maybe_unused]] int threads) {
#pragma omp parallel for num_threads(threads)
  for (Index t = 0; t < rows; ++t) {
    for (Index c = 0; c < channels; ++c) {
      float sum = 0;
      for (Index j = 0; j < width; ++j) {
        const Index from = t - (width - 1) + j;
        if (from >= 0) sum += weight[c * width + j] * x[from * channels + c];
      }
      y[t * channels + c] = sum / (1.0f + std::exp(-sum));
    }
  }
}

}  // namespace bench
