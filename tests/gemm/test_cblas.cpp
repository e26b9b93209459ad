// headlane_cblas_sgemm against gemm and the oracle: layouts, transpositions, leading dimensions.
// Errors are in test_cblas_errors.cpp.
#include "support/cblas_case.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <doctest/doctest.h>
#include <headlane/gemm.hpp>

#include <string>

#include <sys/mman.h>

namespace headlane::test {
namespace {

static_assert(noexcept(headlane_cblas_sgemm(0, 0, 0, 0, 0, 0, 0, nullptr, 0, nullptr, 0, 0, nullptr, 0)));

constexpr float factors[] = {0.0f, 1.0f, -1.0f, 0.7f, 1.3f};

struct Sizes {
  Index m, n, k;
};

struct Form {
  int layout = row_major, trans_a = no_trans, trans_b = no_trans;
  Index padding_a = 0, padding_b = 0, padding_c = 0;
};

std::string text_of(const Form& f, const Sizes& s, float alpha, float beta) {
  std::ostringstream text;
  text << "layout " << f.layout << ", trans " << f.trans_a << " " << f.trans_b << ", padding " << f.padding_a << " "
       << f.padding_b << " " << f.padding_c << ", m " << s.m << ", n " << s.n << ", k " << s.k << ", alpha " << alpha
       << ", beta " << beta;
  return text.str();
}

// op(x) of a matrix x in CBLAS's storage; the padding holds sentinels.
struct Stored {
  Stored(int layout, int trans_x, Index rows, Index columns, Index padding, Random& random)
      : by_columns((layout == column_major) != (trans_x != no_trans)),
        tensor(random_tensor<2>({rows, columns}, random,
                                {.name = "", .order = by_columns ? Order::columns : Order::rows, .padding = padding})) {
  }

  [[nodiscard]] float* data() const { return tensor.view.data; }
  [[nodiscard]] Index ld() const { return tensor.view.strides[by_columns ? 1 : 0]; }

  bool by_columns;
  Tensor<2> tensor;
};

struct Problem {
  Problem(const Form& f, const Sizes& s, std::uint64_t seed)
      : form(f),
        sizes(s),
        random(seed),
        a(f.layout, f.trans_a, s.m, s.k, f.padding_a, random),
        b(f.layout, f.trans_b, s.k, s.n, f.padding_b, random),
        c(f.layout, no_trans, s.m, s.n, f.padding_c, random) {}

  void run(float alpha, float beta) const {
    headlane_cblas_sgemm(form.layout, form.trans_a, form.trans_b, sizes.m, sizes.n, sizes.k, alpha, a.data(), a.ld(),
                         b.data(), b.ld(), beta, c.data(), c.ld());
    CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
    CHECK(c.tensor.surroundings_untouched());
  }

  Form form;
  Sizes sizes;
  Random random;
  Stored a, b, c;
};

// Against gemm on dense row-major copies.
void check_bits(const Form& form, const Sizes& s, float alpha, float beta, std::uint64_t seed) {
  const Problem p(form, s, seed);
  const Tensor<2> expected({s.m, s.n}), a({s.m, s.k}), b({s.k, s.n});
  copy<2>(p.a.tensor.view, a.view);
  copy<2>(p.b.tensor.view, b.view);
  copy<2>(p.c.tensor.view, expected.view);
  gemm(a.view, b.view, expected.view, {.alpha = alpha, .beta = beta});
  p.run(alpha, beta);
  CHECK_MESSAGE(different_bits(p.c.tensor.view, expected.view) == 0, text_of(form, s, alpha, beta));
}

template <class F>
void for_each_form(Random& random, const F& f) {
  for (const int layout : {row_major, column_major})
    for (const int trans_a : {no_trans, trans, conj_trans})
      for (const int trans_b : {no_trans, trans, conj_trans})
        for (const Index padded : {0, 1})
          f(Form{.layout = layout,
                 .trans_a = trans_a,
                 .trans_b = trans_b,
                 .padding_a = padded * random.integer(1, 9),
                 .padding_b = padded * random.integer(1, 9),
                 .padding_c = padded * random.integer(1, 9)});
}

TEST_CASE("cblas_sgemm: the bits of gemm") {
  Random random(1);
  for_each_form(random, [&](const Form& form) {
    for (const float alpha : factors)
      for (const float beta : factors)
        check_bits(form, {.m = random.integer(0, 70), .n = random.integer(0, 70), .k = random.integer(0, 70)}, alpha,
                   beta, random.next());
  });
}

TEST_CASE("cblas_sgemm: the bits of gemm, more than one block along k, empty and single") {
  Random random(2);
  for_each_form(random, [&](const Form& form) {
    check_bits(form, {.m = random.integer(1, 40), .n = random.integer(1, 40), .k = random.integer(513, 1100)}, 0.7f,
               1.3f, random.next());
    for (const Sizes& s : {Sizes{.m = 0, .n = 5, .k = 3},
                           {.m = 5, .n = 0, .k = 3},
                           {.m = 5, .n = 3, .k = 0},
                           {.m = 0, .n = 0, .k = 0},
                           {.m = 1, .n = 1, .k = 1},
                           {.m = 1, .n = 40, .k = 600},
                           {.m = 40, .n = 1, .k = 600},
                           {.m = 40, .n = 40, .k = 1}})
      for (const float beta : {0.0f, 1.0f, 0.7f}) check_bits(form, s, 1.3f, beta, random.next());
  });
  if (!slow_isa())  // several threads
    check_bits({.layout = column_major, .trans_a = trans, .padding_a = 3, .padding_c = 5},
               {.m = 500, .n = 300, .k = 1023}, 1, 0, 3);
}

TEST_CASE("cblas_sgemm: columns are rows of the transposed problem") {
  Random random(3);
  for (int i = 0; i < 50; ++i) {
    const Sizes s{.m = random.integer(1, 70), .n = random.integer(1, 70), .k = random.integer(1, 700)};
    const Form form{.layout = column_major,
                    .trans_a = i % 2 == 0 ? no_trans : trans,
                    .trans_b = i % 4 < 2 ? no_trans : trans,
                    .padding_a = i % 3,
                    .padding_b = i % 5,
                    .padding_c = i % 7};
    const Problem p(form, s, random.next());
    const Tensor<2> c({s.n, s.m}, {.name = "", .padding = p.c.ld() - s.m});
    copy<2>(p.c.tensor.view.transposed(), c.view);
    headlane_cblas_sgemm(row_major, p.form.trans_b, p.form.trans_a, s.n, s.m, s.k, 0.7f, p.b.data(), p.b.ld(),
                         p.a.data(), p.a.ld(), 1.3f, c.view.data, p.c.ld());
    p.run(0.7f, 1.3f);
    CHECK(different_bits(p.c.tensor.view.transposed(), c.view) == 0);
  }
}

// By the definition, on stored elements and without views.
TEST_CASE("cblas_sgemm: naive loops over stored elements") {
  Random random(4);
  for_each_form(random, [&](const Form& form) {
    const Sizes s{.m = random.integer(1, 30), .n = random.integer(1, 30), .k = random.integer(1, 600)};
    const Problem p(form, s, random.next());
    const auto at = [&](const float* x, Index ld, bool transposed, Index i, Index j) {
      if (transposed) std::swap(i, j);
      return double{form.layout == row_major ? x[i * ld + j] : x[i + j * ld]};
    };
    const bool transposed_a = form.trans_a != no_trans, transposed_b = form.trans_b != no_trans;
    std::vector<double> value, magnitude;
    for (Index i = 0; i < s.m; ++i)
      for (Index j = 0; j < s.n; ++j) {
        value.push_back(double{1.3f} * at(p.c.data(), p.c.ld(), false, i, j));
        magnitude.push_back(std::abs(value.back()));
        for (Index q = 0; q < s.k; ++q) {
          const double product = double{0.7f} * at(p.a.data(), p.a.ld(), transposed_a, i, q) *
                                 at(p.b.data(), p.b.ld(), transposed_b, q, j);
          value.back() += product;
          magnitude.back() += std::abs(product);
        }
      }
    p.run(0.7f, 1.3f);
    Comparison comparison("cblas_sgemm", text_of(form, s, 0.7f, 1.3f), 4);
    std::size_t next = 0;
    for (Index i = 0; i < s.m; ++i)
      for (Index j = 0; j < s.n; ++j, ++next)
        comparison.add({i, j}, static_cast<float>(at(p.c.data(), p.c.ld(), false, i, j)), value[next],
                       gemm_bound(s.k, magnitude[next]));
    comparison.finish();
  });
}

void check_four(const float* c, const std::vector<float>& expected) {
  CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
  CHECK(std::vector<float>(c, c + 4) == expected);
}

TEST_CASE("cblas_sgemm: what is not read or written may be anything") {
  const float x[] = {1, 2, 3, 4};
  for (const int layout : {row_major, column_major}) {
    const auto call = [&](Index m, Index n, Index k, float alpha, const float* a, const float* b, float beta,
                          float* c) {
      headlane_cblas_sgemm(layout, no_trans, no_trans, m, n, k, alpha, a, 2, b, 2, beta, c, 2);
      CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
    };
    call(0, 2, 2, 1, nullptr, nullptr, 0, nullptr);
    call(2, 0, 2, 1, nullptr, nullptr, 0, nullptr);
    call(2, 2, 0, 1, nullptr, nullptr, 1, nullptr);
    call(2, 2, 2, 0, nullptr, nullptr, 1, nullptr);
    // beta = 0 does not read c.
    float c[] = {nan, infinity, nan, -infinity};
    call(2, 2, 2, 1, x, x, 0, c);
    check_four(c, {7, 10, 15, 22});
    // c = beta · c for any a and b.
    call(2, 2, 2, 0, nullptr, nullptr, 0.5f, c);
    check_four(c, {3.5f, 5, 7.5f, 11});
    call(2, 2, 0, 1, nullptr, nullptr, 2, c);
    check_four(c, {7, 10, 15, 22});
    call(2, 2, 2, 0, c, c, -1, c);
    check_four(c, {-7, -10, -15, -22});
    c[0] = nan;
    call(2, 2, 2, 0, c, c, 0, c);
    check_four(c, {0, 0, 0, 0});
  }
  // The leading dimension of a single row is not used.
  const Index far = std::numeric_limits<Index>::max();
  float c[] = {0, 0, 0, 0};
  headlane_cblas_sgemm(row_major, no_trans, trans, 1, 1, 4, 1, x, far, x, far, 0, c, far);
  CHECK_MESSAGE(c[0] == 30, error());
  headlane_cblas_sgemm(column_major, no_trans, trans, 2, 2, 1, 1, x, far, x + 2, far, 0, c, 2);
  check_four(c, {3, 6, 4, 8});
  headlane_cblas_sgemm(row_major, trans, trans, 2, 2, 0, 1, x, far, x, far, 0, c, 2);
  check_four(c, {0, 0, 0, 0});
}

TEST_CASE("cblas_sgemm: beyond 2^31 elements") {
  constexpr Index ld = (Index{1} << 31) + 5, bytes = (ld + 4) * 4;
  // Untouched pages take no memory.
  void* mapped[2];
  for (void*& p : mapped)
    p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped[0] == MAP_FAILED || mapped[1] == MAP_FAILED) {
    MESSAGE("16 GiB cannot be mapped here: skipped");
  } else {
    auto *a = static_cast<float*>(mapped[0]), *c = static_cast<float*>(mapped[1]);
    const float b[] = {5, 6, 7, 8};
    for (const int layout : {row_major, column_major}) {
      for (const Index i : {0, 1}) {
        a[i * ld] = static_cast<float>(1 + 2 * i);
        a[i * ld + 1] = static_cast<float>(2 + 2 * i);
      }
      headlane_cblas_sgemm(layout, no_trans, no_trans, 2, 2, 2, 1, a, ld, b, 2, 0, c, ld);
      const float found[] = {c[0], c[1], c[ld], c[ld + 1]};
      if (layout == row_major) check_four(found, {19, 22, 43, 50});
      else check_four(found, {23, 34, 31, 46});
    }
  }
  for (void* p : mapped)
    if (p != MAP_FAILED) munmap(p, bytes);
  // Sizes are not truncated to 32 bits.
  float c = 3;
  headlane_cblas_sgemm(row_major, no_trans, no_trans, 1, 1, ld, 0, nullptr, ld, nullptr, 1, 2, &c, 1);
  CHECK_MESSAGE(c == 6, error());
  headlane_cblas_sgemm(row_major, no_trans, no_trans, 1, 1, ld, 0, nullptr, ld - 1, nullptr, 1, 2, &c, 1);
  CHECK(error() == "headlane_cblas_sgemm: lda is 2147483652, the minimum is 2147483653: a has 2147483653 columns");
}

// Enums of another cblas.h have the same values.
enum OtherOrder { OtherRowMajor = 101, OtherColumnMajor = 102 };
enum OtherTranspose { OtherNoTrans = 111, OtherTrans = 112, OtherConjTrans = 113 };

TEST_CASE("cblas_sgemm: the constants of another cblas.h") {
  const float a[] = {1, 2, 3, 4, 5, 6};
  float rows[4], columns[4];
  headlane_cblas_sgemm(OtherRowMajor, OtherNoTrans, OtherConjTrans, 2, 2, 3, 1, a, 3, a, 3, 0, rows, 2);
  headlane_cblas_sgemm(OtherColumnMajor, OtherTrans, OtherNoTrans, 2, 2, 3, 1, a, 3, a, 3, 0, columns, 2);
  check_four(rows, {14, 32, 32, 77});
  check_four(columns, {14, 32, 32, 77});
}

}  // namespace
}  // namespace headlane::test
