// Operands of more than 2^31 elements, where a 32-bit index would wrap. Takes 14 GB of memory and
// some minutes, so it is not part of ctest (./dev large). Results are compared with the header's
// formula, bit by bit, and with double.
#define DOCTEST_CONFIG_IMPLEMENT  // tolerance.hpp includes it
#include "support/reference.hpp"
#include "support/tolerance.hpp"

#include <headlane/headlane.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

namespace headlane::test {
namespace {

constexpr Index limit = Index{1} << 31;
constexpr double gigabyte = 1e9, needed = 14 * gigabyte;
constexpr int skip = 77;

/// Numbers that repeat after a prime: an index that is off by a power of two has another one.
class Pattern {
 public:
  explicit Pattern(std::uint64_t seed) {
    Random random(seed);
    for (float& x : table_) x = random.uniform();
  }
  float operator()(Index i) const { return table_[static_cast<std::size_t>(i) % table_.size()]; }

 private:
  std::array<float, 4093> table_;
};

using Memory = std::unique_ptr<float[]>;
// Not cleared: what is written to it makes the pages.
Memory memory_of(Index floats) { return std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(floats)); }

/// f(first, end) for slices of 0 … count-1, by two threads.
template <class F>
void in_slices(Index count, F f) {
  std::thread other([&] { f(0, count / 2); });
  f(count / 2, count);
  other.join();
}

void fill(float* data, Index count, const Pattern& pattern) {
  in_slices(count, [&](Index first, Index end) {
    for (Index i = first; i < end; ++i) data[i] = pattern(i);
  });
}

Index wrong_elements = 0;

void report(const char* what, Index elements, Index compared, Index wrong,
            std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%-58s %.4f * 2^31 elements, %td compared, %td differ, %.1f s\n", what,
              static_cast<double>(elements) / static_cast<double>(limit), compared, wrong, seconds.count());
  std::fflush(stdout);
  wrong_elements += wrong + (compared == 0 ? 1 : 0);
}

/// Elements of c, [m, n], other than f(i, j).
template <class F>
Index count_wrong(const View<float, 2>& c, F f) {
  std::atomic<Index> wrong = 0;
  in_slices(c.size(0), [&](Index first, Index end) {
    Index here = 0;
    for (Index i = first; i < end; ++i)
      for (Index j = 0; j < c.size(1); ++j) here += bits_of(c(i, j)) != bits_of(f(i, j)) ? 1 : 0;
    wrong += here;
  });
  return wrong;
}

void softmax_of(const View<float, 2>& x) {
  const auto start = std::chrono::steady_clock::now();
  const Pattern pattern(3);
  fill(x.data, x.size(0) * x.size(1), pattern);
  softmax(x, x);
  Index wrong = 0, compared = 0;
  for (Index i = 0; i < x.size(0); i += i + 300 < x.size(0) ? 211 : 1) {
    std::vector<float> row;
    for (Index j = 0; j < x.size(1); ++j) row.push_back(pattern(i * x.size(1) + j));
    const SoftmaxReference expected = softmax_reference(row, {});
    for (Index j = 0; j < x.size(1); ++j, ++compared) {
      const auto at = static_cast<std::size_t>(j);
      const double y = expected.value[at], bound = softmax_bound(x.size(1), expected.distance[at], y);
      wrong += std::abs(double{x(i, j)} - y) <= bound ? 0 : 1;
    }
  }
  report("softmax in place, some rows", x.size(0) * x.size(1), compared, wrong, start);
}

void large_c() {
  constexpr Index m = 46344, n = 46352, k = 2;
  static_assert(m * n > limit);
  const Memory memory = memory_of(m * n);
  const Pattern a(1), b(2);
  const Memory of_a = memory_of(m * k), of_b = memory_of(k * n);
  fill(of_a.get(), m * k, a);
  fill(of_b.get(), k * n, b);
  const View<const float, 2> va(of_a.get(), {m, k}), vb(of_b.get(), {k, n});
  for (const bool columns : {false, true}) {
    const auto start = std::chrono::steady_clock::now();
    const View<float, 2> c =
        columns ? View<float, 2>(memory.get(), {n, m}).transposed() : View<float, 2>(memory.get(), {m, n});
    in_slices(m * n, [&](Index first, Index end) { std::fill(memory.get() + first, memory.get() + end, nan); });
    gemm(va, vb, c);
    // Along memory; and the sum with 0 makes a zero positive.
    const auto element = [&](Index i, Index j) { return std::fma(va(i, 1), vb(1, j), va(i, 0) * vb(0, j)) + 0.0f; };
    const Index wrong = columns ? count_wrong(c.transposed(), [&](Index j, Index i) { return element(i, j); })
                                : count_wrong(c, element);
    report(columns ? "gemm, c by columns" : "gemm, c", m * n, m * n, wrong, start);
  }
  softmax_of({memory.get(), {m, n}});
}

// Sums of 2^29 products: the bound of the contract is wide, the bits are not.
void large_a() {
  constexpr Index m = 4, k = (Index{1} << 29) + 5;
  static_assert(m * k > limit);
  const Memory of_a = memory_of(m * k), of_b = memory_of(k);
  const Pattern a(4), b(5);
  fill(of_a.get(), m * k, a);
  fill(of_b.get(), k, b);
  for (const bool columns : {false, true}) {
    auto start = std::chrono::steady_clock::now();
    const Index row_step = columns ? 1 : k, column_step = columns ? m : 1;
    const View<const float, 2> va(of_a.get(), {m, k}, {row_step, column_step});
    const Tensor<2> expected({m, 1}), one({m, 1}), many({m, 17});
    gemm(va, {of_b.get(), {k, 1}}, one.view);
    std::atomic<Index> beyond = 0;
    in_slices(m, [&](Index first, Index end) {
      for (Index i = first; i < end; ++i) {
        const auto of_row = [&](Index p) { return a(i * row_step + p * column_step); };
        expected.view(i, 0) = gemm_element(k, of_row, b);
        double sum = 0, magnitude = 0;
        for (Index p = 0; p < k; ++p) {
          const double product = double{of_row(p)} * double{b(p)};
          sum += product;
          magnitude += std::abs(product);
        }
        const double error = std::abs(double{one.view(i, 0)} - sum);
        std::printf("    row %td: %.9g, in double %.9g, error / bound %.2g\n", i, double{one.view(i, 0)}, sum,
                    error / gemm_bound(k, magnitude));
        beyond += error <= gemm_bound(k, magnitude) ? 0 : 1;
      }
    });
    report(columns ? "gemm, a by columns" : "gemm, a", m * k, m, beyond + different_bits(one.view, expected.view),
           start);

    start = std::chrono::steady_clock::now();
    gemm(va, {of_b.get(), {k, 17}, {1, 0}}, many.view);
    const Index wrong = count_wrong(many.view, [&](Index i, Index) { return expected.view(i, 0); });
    report(columns ? "gemm, a by columns, b of 17 times the same column" : "gemm, a, b of 17 times the same column",
           m * k, m * 17, wrong, start);
  }
}

// The first row everywhere, the others in some columns.
void compare_rows(const char* what, const View<float, 2>& c, Index k, const Pattern& a, const Pattern& b,
                  Index b_row_step, std::chrono::steady_clock::time_point start) {
  const Index m = c.size(0), n = c.size(1);
  std::atomic<Index> wrong = 0, compared = 0;
  in_slices(n, [&](Index first, Index end) {
    Index here = 0, count = 0;
    for (Index j = first; j < end; ++j)
      for (Index i = 0; i < (j % 1009 == 0 || j + 20 > n ? m : 1); ++i, ++count) {
        const float expected =
            gemm_element(k, [&](Index p) { return a(i * k + p); }, [&](Index p) { return b(p * b_row_step + j); });
        here += bits_of(expected) != bits_of(c(i, j)) ? 1 : 0;
      }
    wrong += here;
    compared += count;
  });
  report(what, n * k, compared, wrong, start);
}

void large_b() {
  const Pattern a(6), b(7);
  const Memory of_a = memory_of(40 * 600);
  fill(of_a.get(), 40 * 600, a);
  {
    constexpr Index k = 600, n = limit / k + 12345;
    const Memory of_b = memory_of(k * n), of_c = memory_of(40 * n);
    fill(of_b.get(), k * n, b);
    for (const Index m : {1, 40}) {  // read where it stands, and packed on the way
      const auto start = std::chrono::steady_clock::now();
      const View<float, 2> c(of_c.get(), {m, n});
      gemm({of_a.get(), {m, k}}, {of_b.get(), {k, n}}, c);
      compare_rows(m == 1 ? "gemm, b, 1 row of a" : "gemm, b, 40 rows of a", c, k, a, b, n, start);
    }
  }
  {
    constexpr Index k = 2, n = limit / k + 1001;  // each row of b half of them; c too
    const auto start = std::chrono::steady_clock::now();
    const Memory of_b = memory_of(k * n), of_c = memory_of(n);
    fill(of_b.get(), k * n, b);
    const View<float, 2> c(of_c.get(), {1, n});
    gemm({of_a.get(), {1, k}}, {of_b.get(), {k, n}}, c);
    compare_rows("gemm, b of 2 rows", c, k, a, b, n, start);
  }
  {
    constexpr Index k = 600, n = limit / k + 12345;
    const auto start = std::chrono::steady_clock::now();
    const Memory of_b = memory_of(k + n), of_c = memory_of(2 * n);
    fill(of_b.get(), k + n, b);
    // Rows one element apart: only what is packed is large.
    const PackedMatrix packed(View<const float, 2>(of_b.get(), {k, n}, {1, 1}));
    const View<float, 2> c(of_c.get(), {2, n});
    gemm({of_a.get(), {2, k}}, packed, c);
    compare_rows("gemm, b packed", c, k, a, b, 1, start);
  }
}

// Rows so far apart that offsets go beyond 2^32; only their own pages become memory. The second
// half begins beyond 2^31.
void far_rows() {
  constexpr Index m = 5000, n = 40, k = 40, step = (Index{1} << 20) + 16;
  const auto start = std::chrono::steady_clock::now();
  constexpr std::size_t bytes = sizeof(float) * static_cast<std::size_t>(m * step);
  void* mapped[2];
  for (void*& p : mapped) {
    p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
  }
  const View<float, 2> a(static_cast<float*>(mapped[0]), {m, k}, {step, 1});
  const View<float, 2> c(static_cast<float*>(mapped[1]), {m, n}, {step, 1});
  const Tensor<2> b({k, n}), near_a({m, k}), expected({m, n});
  Random random(8);
  fill_uniform(near_a.view, random);
  fill_uniform(b.view, random);
  copy<2>(near_a.view, a);
  gemm(near_a.view, b.view, expected.view);
  gemm(a, b.view, c);
  report("gemm, rows of a and c far apart", m * step, m * n, different_bits(c, expected.view), start);
  for (void* p : mapped) munmap(p, bytes);
}

/// Bytes that programs can have, as the kernel estimates it; 0 where it does not say.
double available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    double kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace
}  // namespace headlane::test

int main() try {
  using namespace headlane::test;
  const double available = available_memory();
  if (available < needed) {
    std::printf("%.1f GB of memory are available, %.0f needed: skipped\n", available / gigabyte, needed / gigabyte);
    return skip;
  }
  std::printf("isa %s, %d threads, %.1f GB available\n", std::string(headlane::isa()).c_str(), headlane::num_threads(),
              available / gigabyte);
  far_rows();
  large_c();
  large_a();
  large_b();
  std::printf("%s\n", wrong_elements == 0 ? "all right" : "WRONG");
  return wrong_elements == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
