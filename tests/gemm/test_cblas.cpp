// headlane_cblas_sgemm: the bits of gemm for every layout, transposition and leading dimension; the oracle; errors as messages.
#include "support/allocation_count.hpp"
#include "support/child.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <doctest/doctest.h>
#include <headlane/cblas.h>
#include <headlane/gemm.hpp>

#include <cstdio>
#include <string>
#include <thread>

namespace headlane::test {
namespace {

static_assert(noexcept(headlane_cblas_sgemm(0, 0, 0, 0, 0, 0, 0, nullptr, 0, nullptr, 0, 0, nullptr, 0)));

constexpr int row_major = HEADLANE_CBLAS_ROW_MAJOR, column_major = HEADLANE_CBLAS_COLUMN_MAJOR;
constexpr int no_trans = HEADLANE_CBLAS_NO_TRANS, trans = HEADLANE_CBLAS_TRANS, conj_trans = HEADLANE_CBLAS_CONJ_TRANS;
constexpr float factors[] = {0.0f, 1.0f, -1.0f, 0.7f, 1.3f};

std::string error() {
  const char* text = headlane_cblas_error();
  return text == nullptr ? "" : text;
}

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

// op(x) of x as CBLAS stores it; the padding is full of sentinels.
struct Stored {
  Stored(int layout, int trans_x, Index rows, Index columns, Index padding, Random& random)
      : by_columns((layout == column_major) != (trans_x != no_trans)),
        tensor(random_tensor<2>({rows, columns}, random, {"", by_columns ? Order::columns : Order::rows, 1, padding})) {
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

// Against gemm on dense rows.
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
          f(Form{layout, trans_a, trans_b, padded * random.integer(1, 9), padded * random.integer(1, 9),
                 padded * random.integer(1, 9)});
}

TEST_CASE("cblas_sgemm: the bits of gemm") {
  Random random(1);
  for_each_form(random, [&](const Form& form) {
    for (const float alpha : factors)
      for (const float beta : factors)
        check_bits(form, {random.integer(0, 70), random.integer(0, 70), random.integer(0, 70)}, alpha, beta,
                   random.next());
  });
}

TEST_CASE("cblas_sgemm: the bits of gemm, more than one block along k, empty and single") {
  Random random(2);
  for_each_form(random, [&](const Form& form) {
    check_bits(form, {random.integer(1, 40), random.integer(1, 40), random.integer(513, 1100)}, 0.7f, 1.3f,
               random.next());
    for (const Sizes& s : {Sizes{0, 5, 3}, Sizes{5, 0, 3}, Sizes{5, 3, 0}, Sizes{0, 0, 0}, Sizes{1, 1, 1},
                           Sizes{1, 40, 600}, Sizes{40, 1, 600}, Sizes{40, 40, 1}})
      for (const float beta : {0.0f, 1.0f, 0.7f}) check_bits(form, s, 1.3f, beta, random.next());
  });
  if (!slow_isa()) check_bits({column_major, trans, no_trans, 3, 0, 5}, {500, 300, 1023}, 1, 0, 3);  // several threads
}

TEST_CASE("cblas_sgemm: columns are rows of the transposed problem") {
  Random random(3);
  for (int i = 0; i < 50; ++i) {
    const Sizes s{random.integer(1, 70), random.integer(1, 70), random.integer(1, 700)};
    const Problem p({column_major, i % 2 == 0 ? no_trans : trans, i % 4 < 2 ? no_trans : trans, i % 3, i % 5, i % 7}, s,
                    random.next());
    const Tensor<2> c({s.n, s.m}, {.name = "", .padding = p.c.ld() - s.m});
    copy<2>(p.c.tensor.view.transposed(), c.view);
    headlane_cblas_sgemm(row_major, p.form.trans_b, p.form.trans_a, s.n, s.m, s.k, 0.7f, p.b.data(), p.b.ld(),
                         p.a.data(), p.a.ld(), 1.3f, c.view.data, p.c.ld());
    p.run(0.7f, 1.3f);
    CHECK(different_bits(p.c.tensor.view.transposed(), c.view) == 0);
  }
}

// By the definition in terms of memory alone, without views.
TEST_CASE("cblas_sgemm: naive loops over stored elements") {
  Random random(4);
  for_each_form(random, [&](const Form& form) {
    const Sizes s{random.integer(1, 30), random.integer(1, 30), random.integer(1, 600)};
    const Problem p(form, s, random.next());
    const auto at = [&](const float* x, Index ld, bool transposed, Index i, Index j) {
      if (transposed) std::swap(i, j);
      return double{form.layout == row_major ? x[i * ld + j] : x[i + j * ld]};
    };
    const bool turned_a = form.trans_a != no_trans, turned_b = form.trans_b != no_trans;
    std::vector<double> value, magnitude;
    for (Index i = 0; i < s.m; ++i)
      for (Index j = 0; j < s.n; ++j) {
        value.push_back(double{1.3f} * at(p.c.data(), p.c.ld(), false, i, j));
        magnitude.push_back(std::abs(value.back()));
        for (Index q = 0; q < s.k; ++q) {
          const double product =
              double{0.7f} * at(p.a.data(), p.a.ld(), turned_a, i, q) * at(p.b.data(), p.b.ld(), turned_b, q, j);
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
    // c = beta · c, whatever a and b are.
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
  // A single row has no next one.
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
  // Pages that are not touched take no memory.
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
  // Sizes are not cut to 32 bits either.
  float c = 3;
  headlane_cblas_sgemm(row_major, no_trans, no_trans, 1, 1, ld, 0, nullptr, ld, nullptr, 1, 2, &c, 1);
  CHECK_MESSAGE(c == 6, error());
  headlane_cblas_sgemm(row_major, no_trans, no_trans, 1, 1, ld, 0, nullptr, ld - 1, nullptr, 1, 2, &c, 1);
  CHECK(error() == "headlane_cblas_sgemm: lda is 2147483652, the least is 2147483653: a has 2147483653 columns");
}

// As in any cblas.h: enums that are not of this header.
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

// ---- errors ----

// A good call to be made wrong in one argument: c [5, 9] = a [5, 7] · b [7, 9].
struct Call {
  int layout = row_major, trans_a = no_trans, trans_b = no_trans;
  Index m = 5, n = 9, k = 7;
  float alpha = 1;
  const float* a = nullptr;
  Index lda = 7;
  const float* b = nullptr;
  Index ldb = 9;
  float beta = 0;
  float* c = nullptr;
  Index ldc = 9;

  void run() const { headlane_cblas_sgemm(layout, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); }
};

class Errors {
 public:
  Errors() {
    good_.a = buffer_.view.data;
    good_.b = buffer_.view.data + 500;
    good_.c = c_.view.data;
  }

  [[nodiscard]] Call good() const { return good_; }

  // Fails with the words, writes nothing; then the good call clears the error.
  void check(const Call& call, const std::vector<std::string>& words) {
    call.run();
    const std::string message = error();
    CHECK_MESSAGE(message.starts_with("headlane_cblas_sgemm: "), message);
    CHECK_MESSAGE(message.find(" gemm") == std::string::npos, message);
    for (const std::string& word : words)
      CHECK_MESSAGE(message.find(word) != std::string::npos, "'", message, "' does not say '", word, "'");
    CHECK_MESSAGE(all_untouched(), message);
    float c[45];
    Call again = good_;
    again.c = c;
    again.run();
    CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
  }

 private:
  [[nodiscard]] bool all_untouched() const {
    bool all = c_.surroundings_untouched();
    for_each(c_.view, [&](float x) { all = all && is_sentinel(x); });
    for_each(buffer_.view, [&](float x) { all = all && x == 1; });
    return all;
  }
  static Tensor<1> ones(Index n) {
    Tensor<1> result({n});
    for_each(result.view, [](float& x) { x = 1; });
    return result;
  }

  Tensor<1> c_{{200}}, buffer_ = ones(1000);
  Call good_;
};

template <class T>
Call with(Call call, T Call::* member, std::type_identity_t<T> value) {
  call.*member = value;
  return call;
}

TEST_CASE("cblas_sgemm: each argument wrong") {
  Errors errors;
  const Call good = errors.good();
  constexpr Index lowest = std::numeric_limits<Index>::min();
  for (const int wrong : {0, -1, 100, 103, 111, 1 << 30})
    errors.check(with(good, &Call::layout, wrong), {"layout is " + std::to_string(wrong), "101", "102"});
  for (const int wrong : {0, -1, 110, 114, 101, int{'N'}, int{'T'}}) {
    errors.check(with(good, &Call::trans_a, wrong), {"trans_a is " + std::to_string(wrong), "111", "112", "113"});
    errors.check(with(good, &Call::trans_b, wrong), {"trans_b is " + std::to_string(wrong), "111", "112", "113"});
  }
  for (const Index wrong : {Index{-1}, lowest}) {
    const std::string value = " is " + std::to_string(wrong) + ", the least is 0";
    errors.check(with(good, &Call::m, wrong), {": m" + value});
    errors.check(with(good, &Call::n, wrong), {": n" + value});
    errors.check(with(good, &Call::k, wrong), {": k" + value});
  }
}

TEST_CASE("cblas_sgemm: leading dimensions") {
  Errors errors;
  const auto expect = [&](const char* name, Index ld, Index least, const char* lines) {
    const std::string matrix(name + 2);
    return std::vector<std::string>{": " + std::string(name) + " is " + std::to_string(ld) + ", the least is " +
                                    std::to_string(least) + ": " + matrix + " has " + std::to_string(least) + " " +
                                    lines};
  };
  // Of each form the least leading dimensions, from the definition: stored rows or columns.
  struct Least {
    int layout, trans_a, trans_b;
    Index lda, ldb, ldc;
  };
  for (const Least& least :
       {Least{row_major, no_trans, no_trans, 7, 9, 9}, Least{row_major, trans, no_trans, 5, 9, 9},
        Least{row_major, no_trans, trans, 7, 7, 9}, Least{row_major, conj_trans, trans, 5, 7, 9},
        Least{column_major, no_trans, no_trans, 5, 7, 5}, Least{column_major, trans, no_trans, 7, 7, 5},
        Least{column_major, no_trans, conj_trans, 5, 9, 5}, Least{column_major, trans, trans, 7, 9, 5}}) {
    Call call = errors.good();
    call.layout = least.layout;
    call.trans_a = least.trans_a;
    call.trans_b = least.trans_b;
    call.lda = least.lda;
    call.ldb = least.ldb;
    call.ldc = least.ldc;
    const char* lines = least.layout == row_major ? "columns" : "rows";
    for (const Index less : {Index{1}, Index{1000}}) {
      errors.check(with(call, &Call::lda, least.lda - less), expect("lda", least.lda - less, least.lda, lines));
      errors.check(with(call, &Call::ldb, least.ldb - less), expect("ldb", least.ldb - less, least.ldb, lines));
      errors.check(with(call, &Call::ldc, least.ldc - less), expect("ldc", least.ldc - less, least.ldc, lines));
    }
    float c[45];
    with(call, &Call::c, c).run();
    CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
  }
  // At least 1, also without elements, and before the quick return.
  for (const int layout : {row_major, column_major}) {
    Call empty = with(errors.good(), &Call::layout, layout);
    empty.m = empty.n = empty.k = 0;
    empty.lda = empty.ldb = empty.ldc = 1;
    errors.check(with(empty, &Call::lda, 0), {"lda is 0, the least is 1", "0 "});
    errors.check(with(empty, &Call::ldb, 0), {"ldb is 0, the least is 1", "0 "});
    errors.check(with(empty, &Call::ldc, 0), {"ldc is 0, the least is 1", "0 "});
    empty.run();
    CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
  }
}

TEST_CASE("cblas_sgemm: in CBLAS's order") {
  Errors errors;
  Call call = errors.good();
  call.layout = call.trans_a = call.trans_b = 0;
  call.m = call.n = call.k = -1;
  call.lda = call.ldb = call.ldc = 0;
  errors.check(call, {": layout is 0"});
  call.layout = row_major;
  errors.check(call, {": trans_a is 0"});
  call.trans_a = trans;
  errors.check(call, {": trans_b is 0"});
  call.trans_b = trans;
  errors.check(call, {": m is -1"});
  call.m = 5;
  errors.check(call, {": n is -1"});
  call.n = 9;
  errors.check(call, {": k is -1"});
  call.k = 7;
  errors.check(call, {": lda is 0"});
  call.lda = 5;
  errors.check(call, {": ldb is 0"});
  call.ldb = 7;
  errors.check(call, {": ldc is 0"});
  call.ldc = 9;
  call.c = nullptr;
  errors.check(call, {": c has ", "null"});
}

TEST_CASE("cblas_sgemm: gemm's own checks, under the name that was called") {
  Errors errors;
  const Call good = errors.good();
  const auto next_byte = [](const auto* p) { return reinterpret_cast<std::uintptr_t>(p) + 1; };
  errors.check(with(good, &Call::a, nullptr), {"a has shape [5, 7]", "null"});
  errors.check(with(good, &Call::b, nullptr), {"b has shape [7, 9]", "null"});
  errors.check(with(good, &Call::c, nullptr), {"c has shape [5, 9]", "null"});
  errors.check(with(good, &Call::a, reinterpret_cast<const float*>(next_byte(good.a))), {"a is misaligned", "4"});
  errors.check(with(good, &Call::b, reinterpret_cast<const float*>(next_byte(good.b))), {"b is misaligned", "4"});
  errors.check(with(good, &Call::c, reinterpret_cast<float*>(next_byte(good.c))), {"c is misaligned", "4"});
  for (const Index shift : {0, 1, 30}) {
    errors.check(with(good, &Call::a, good.c + shift), {"c of shape [5, 9] overlaps a of shape [5, 7]"});
    errors.check(with(good, &Call::b, good.c + shift), {"c of shape [5, 9] overlaps b of shape [7, 9]"});
  }
  constexpr Index far = Index{1} << 61;
  errors.check(with(good, &Call::lda, far), {"a of shape [5, 7] does not fit"});
  errors.check(with(good, &Call::ldb, far), {"b of shape [7, 9] does not fit"});
  errors.check(with(good, &Call::ldc, far), {"c of shape [5, 9] does not fit"});
  // c in the gaps of a: no error.
  std::vector<float> shared(5 * 16, 1.0f);
  Call call = good;
  call.a = shared.data();
  call.c = shared.data() + 7;
  call.lda = call.ldc = 16;
  call.run();
  CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
  CHECK(shared[7] == 7);
  CHECK(shared[0] == 1);
}

TEST_CASE("cblas_sgemm: an error belongs to the thread that made it") {
  Errors errors;
  const Call good = errors.good(), wrong = with(good, &Call::lda, 3);
  wrong.run();
  const char* text = headlane_cblas_error();
  const std::string before = error();
  CHECK(before == "headlane_cblas_sgemm: lda is 3, the least is 7: a has 7 columns");
  std::thread([&] {
    CHECK(headlane_cblas_error() == nullptr);
    with(good, &Call::m, -8).run();
    CHECK(error() == "headlane_cblas_sgemm: m is -8, the least is 0");
  }).join();
  CHECK(headlane_cblas_error() == text);
  CHECK(error() == before);
  float c[45];
  with(good, &Call::c, c).run();
  CHECK(headlane_cblas_error() == nullptr);
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("cblas_sgemm: without memory for a message it says so; a good call takes none") {
  Errors errors;
  const Call good = errors.good(), wrong = with(good, &Call::lda, 3);
  no_memory = true;
  wrong.run();
  no_memory = false;
  CHECK(error() == "headlane_cblas_sgemm: out of memory");
  float c[45];
  const Call warm = with(good, &Call::c, c);
  warm.run();
  const long before = allocations;
  no_memory = true;
  warm.run();
  no_memory = false;
  CHECK(allocations == before);
  CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
}
#endif

const bool task_registered = [] {
  child_tasks()["cblas message"] = [] {
    const float one = 1;
    float c = 5;
    headlane_cblas_sgemm(row_major, no_trans, no_trans, 1, 1, 1, 1, &one, 1, &one, 1, 0, &c, 1);
    std::printf("%s", error().c_str());
    return c == 5 ? 0 : 1;
  };
  return true;
}();

TEST_CASE("cblas_sgemm: a message that is too long ends with a whole character") {
  const ChildResult child = run_child("cblas message", {{"HEADLANE_ISA", "nonsense"}});
  if (child.status == not_started) return;
  CHECK(child.status == 0);
  CHECK_MESSAGE(child.output.starts_with("headlane_cblas_sgemm: HEADLANE_ISA: "), child.output);
  CHECK_MESSAGE(child.output.find("nonsense") != std::string::npos, child.output);
  std::size_t longest = 0;
  for (std::size_t shift = 0; shift < 4; ++shift) {
    std::string name(shift, 'x');
    for (int i = 0; i < 300; ++i) name += "\u20ac";  // 3 bytes
    const std::string text = run_child("cblas message", {{"HEADLANE_ISA", name}}).output;
    const std::size_t begin = text.find(std::string("'").append(name, 0, shift + 3));
    REQUIRE(begin != std::string::npos);
    const std::size_t length = text.size() - begin - 1;
    CHECK((length - shift) % 3 == 0);
    CHECK(text.substr(begin + 1) == name.substr(0, length));
    longest = std::max(longest, text.size());
  }
  CHECK(longest == 511);
}

}  // namespace
}  // namespace headlane::test
