#include "naive.hpp"

#include <cmath>

#ifndef _OPENMP  // the loops are serial then
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#endif

namespace bench {

namespace {

void norm_row(const float* x, const float* weight, const float* bias, float* y, Index n) {
  const auto size = static_cast<float>(n);
  float mean = 0;
  if (bias != nullptr) {
    for (Index i = 0; i < n; ++i) mean += x[i];
    mean /= size;
  }
  float squares = 0;
  for (Index i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float r = 1.0f / std::sqrt(squares / size + 1e-5f);
  for (Index i = 0; i < n; ++i) y[i] = (x[i] - mean) * r * weight[i] + (bias != nullptr ? bias[i] : 0.0f);
}

// 10000^(-2j / n)
float frequency(Index j, Index n) { return std::pow(10000.0f, static_cast<float>(-2 * j) / static_cast<float>(n)); }

}  // namespace

void naive_norm(const float* x, const float* weight, const float* bias, float* y, Index rows, Index columns,
                [[maybe_unused]] int threads) {
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < rows; ++i) norm_row(x + i * columns, weight, bias, y + i * columns, columns);
}

void naive_gelu(const float* x, float* y, Index size, [[maybe_unused]] int threads) {
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < size; ++i) y[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
}

void naive_sinusoidal(const float* x, float* y, Index rows, Index columns, [[maybe_unused]] int threads) {
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      const float angle = static_cast<float>(i) * frequency(j / 2, columns);
      const float value = j % 2 == 0 ? std::sin(angle) : std::cos(angle);
      y[i * columns + j] = value + (x != nullptr ? x[i * columns + j] : 0.0f);
    }
  }
}

void naive_rotary(const float* x, float* y, Index count, Index length, [[maybe_unused]] int threads) {
  constexpr Index half = head_dim / 2;
#pragma omp parallel for num_threads(threads)
  for (Index row = 0; row < count * length; ++row) {
    const float* from = x + row * head_dim;
    float* to = y + row * head_dim;
    for (Index j = 0; j < half; ++j) {
      const float angle = static_cast<float>(row % length) * frequency(j, head_dim);
      const float sine = std::sin(angle);
      const float cosine = std::cos(angle);
      to[j] = from[j] * cosine - from[j + half] * sine;
      to[j + half] = from[j + half] * cosine + from[j] * sine;
    }
  }
}

}  // namespace bench
