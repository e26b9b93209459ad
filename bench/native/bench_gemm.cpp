// GEMM: the products of a layer with d_model = 512 (projections, feed-forward, one head's scores
// and values), thin products as in decoding, and small or odd sizes, where overhead shows.
#include "buffer.hpp"
#include "cases.hpp"
#include "machine.hpp"

#include <headlane/gemm.hpp>

namespace bench {

namespace {

struct GemmData {
  GemmData(Index m, Index n, Index k) : a(m * k, 1), b(k * n, 2), c(m * n) {}
  Buffer a, b, c;
};

Work prepare(Index m, Index n, Index k) {
  const auto data = std::make_shared<GemmData>(m, n, k);
  const headlane::View<const float, 2> a(data->a.data(), {m, k});
  const headlane::View<const float, 2> b(data->b.data(), {k, n});
  const headlane::View<float, 2> c(data->c.data(), {m, n});
  return {.library = [data, a, b, c] { headlane::gemm(a, b, c); },
          .naive = [data, m, n,
                    k](int threads) { naive_gemm(data->a.data(), data->b.data(), data->c.data(), m, n, k, threads); },
          .limit = fma_peak,
          .output = data->c.values()};
}

}  // namespace

Case gemm_case(Index m, Index n, Index k, bool quick) {
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return {.op = "gemm",
          .size = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k),
          .amount = flops,
          .flops = flops,
          .quick = quick,
          .prepare = [m, n, k] { return prepare(m, n, k); }};
}

std::vector<Case> gemm_cases() {
  return {gemm_case(512, 512, 512, true), gemm_case(1, 512, 512, true),    gemm_case(8, 512, 512),
          gemm_case(32, 512, 512, true),  gemm_case(128, 512, 512),        gemm_case(2048, 512, 512),
          gemm_case(512, 1536, 512),      gemm_case(512, 2048, 512, true), gemm_case(512, 512, 2048),
          gemm_case(2048, 2048, 2048),    gemm_case(512, 512, 64),         gemm_case(512, 64, 512),
          gemm_case(128, 128, 64, true),  gemm_case(64, 64, 64),           gemm_case(17, 33, 65, true)};
}

}  // namespace bench
