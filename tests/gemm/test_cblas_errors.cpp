// Errors of headlane_cblas_sgemm: each argument wrong, messages, threads, no memory.
#include "support/allocation_count.hpp"
#include "support/cblas_case.hpp"
#include "support/child.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace headlane::test {
namespace {

// The arguments of a legal call, c [5, 9] = a [5, 7] · b [7, 9], of which tests change one.
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

  // The call fails with a message that contains the words, and writes nothing; a legal call then
  // clears the error.
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
    const std::string value = " is " + std::to_string(wrong) + ", the minimum is 0";
    errors.check(with(good, &Call::m, wrong), {": m" + value});
    errors.check(with(good, &Call::n, wrong), {": n" + value});
    errors.check(with(good, &Call::k, wrong), {": k" + value});
  }
}

TEST_CASE("cblas_sgemm: leading dimensions") {
  Errors errors;
  const auto expect = [&](const char* name, Index ld, Index least, const char* lines) {
    const std::string matrix(name + 2);
    return std::vector<std::string>{": " + std::string(name) + " is " + std::to_string(ld) + ", the minimum is " +
                                    std::to_string(least) + ": " + matrix + " has " + std::to_string(least) + " " +
                                    lines};
  };
  // The smallest leading dimensions, from the definition: stored rows or columns.
  struct Smallest {
    int layout, trans_a, trans_b;
    Index lda, ldb, ldc;
  };
  for (const Smallest& min :
       {Smallest{row_major, no_trans, no_trans, 7, 9, 9}, Smallest{row_major, trans, no_trans, 5, 9, 9},
        Smallest{row_major, no_trans, trans, 7, 7, 9}, Smallest{row_major, conj_trans, trans, 5, 7, 9},
        Smallest{column_major, no_trans, no_trans, 5, 7, 5}, Smallest{column_major, trans, no_trans, 7, 7, 5},
        Smallest{column_major, no_trans, conj_trans, 5, 9, 5}, Smallest{column_major, trans, trans, 7, 9, 5}}) {
    Call call = errors.good();
    call.layout = min.layout;
    call.trans_a = min.trans_a;
    call.trans_b = min.trans_b;
    call.lda = min.lda;
    call.ldb = min.ldb;
    call.ldc = min.ldc;
    const char* lines = min.layout == row_major ? "columns" : "rows";
    for (const Index less : {Index{1}, Index{1000}}) {
      errors.check(with(call, &Call::lda, min.lda - less), expect("lda", min.lda - less, min.lda, lines));
      errors.check(with(call, &Call::ldb, min.ldb - less), expect("ldb", min.ldb - less, min.ldb, lines));
      errors.check(with(call, &Call::ldc, min.ldc - less), expect("ldc", min.ldc - less, min.ldc, lines));
    }
    float c[45];
    with(call, &Call::c, c).run();
    CHECK_MESSAGE(headlane_cblas_error() == nullptr, error());
  }
  // At least 1, also for empty matrices, and checked before the early return.
  for (const int layout : {row_major, column_major}) {
    Call empty = with(errors.good(), &Call::layout, layout);
    empty.m = empty.n = empty.k = 0;
    empty.lda = empty.ldb = empty.ldc = 1;
    errors.check(with(empty, &Call::lda, 0), {"lda is 0, the minimum is 1", "0 "});
    errors.check(with(empty, &Call::ldb, 0), {"ldb is 0, the minimum is 1", "0 "});
    errors.check(with(empty, &Call::ldc, 0), {"ldc is 0, the minimum is 1", "0 "});
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
  // c in the padding of a is legal.
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
  CHECK(before == "headlane_cblas_sgemm: lda is 3, the minimum is 7: a has 7 columns");
  std::thread([&] {
    CHECK(headlane_cblas_error() == nullptr);
    with(good, &Call::m, -8).run();
    CHECK(error() == "headlane_cblas_sgemm: m is -8, the minimum is 0");
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
