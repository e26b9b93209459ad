// headlane_cblas_sgemm: turns CBLAS's arguments into views, and exceptions into a message that the
// calling thread keeps.
#include <headlane/cblas.h>

#include "core/call_scope.hpp"
#include "gemm/check.hpp"

#include <headlane/gemm.hpp>

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>

namespace headlane {

using namespace internal;

namespace {

static_assert(sizeof(Index) == sizeof(int64_t), "int64_t has to fit into an Index");

constexpr std::string_view function = "headlane_cblas_sgemm: ";

/// The message of the calling thread; empty: none. Its size is fixed, since it may have to say that
/// there is no memory.
constexpr std::size_t max_text = 512;
thread_local constinit char last_error[max_text] = "";

void clear_error() noexcept { last_error[0] = '\0'; }

/// Keeps as much as fits, in whole UTF-8 characters.
void set_error(std::string_view message) noexcept {
  constexpr std::string_view of_gemm = "gemm: ";
  if (message.starts_with(of_gemm)) message.remove_prefix(of_gemm.size());
  const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u; };
  std::size_t length = std::min(message.size(), max_text - 1 - function.size());
  while (length > 0 && length < message.size() && continues(message[length])) --length;
  char* end = std::copy(function.begin(), function.end(), last_error);
  end = std::copy_n(message.begin(), length, end);
  *end = '\0';
}

bool is_column_major(int layout) {
  require(layout == HEADLANE_CBLAS_ROW_MAJOR || layout == HEADLANE_CBLAS_COLUMN_MAJOR, "layout is ", layout,
          ", which is neither ", HEADLANE_CBLAS_ROW_MAJOR, " (row major) nor ", HEADLANE_CBLAS_COLUMN_MAJOR,
          " (column major)");
  return layout == HEADLANE_CBLAS_COLUMN_MAJOR;
}

bool is_transposed(const char* name, int trans) {
  require(trans == HEADLANE_CBLAS_NO_TRANS || trans == HEADLANE_CBLAS_TRANS || trans == HEADLANE_CBLAS_CONJ_TRANS, name,
          " is ", trans, ", which is none of ", HEADLANE_CBLAS_NO_TRANS, " (not transposed), ", HEADLANE_CBLAS_TRANS,
          " (transposed), ", HEADLANE_CBLAS_CONJ_TRANS, " (conjugate transposed)");
  return trans != HEADLANE_CBLAS_NO_TRANS;
}

void check_size(const char* name, Index size) { require(size >= 0, name, " is ", size, ", the minimum is 0"); }

/// op(x) as a view of x.
template <class T>
View<T, 2> view_of(const char* name, T* data, Index rows, Index columns, bool column_major, bool transposed, Index ld) {
  const bool columns_lie_dense = column_major != transposed;
  const Index width = columns_lie_dense ? rows : columns, min_ld = std::max<Index>(width, 1);
  require(ld >= min_ld, "ld", name, " is ", ld, ", the minimum is ", min_ld, ": ", name, " has ", width,
          column_major ? " rows" : " columns");
  const Index lines = columns_lie_dense ? columns : rows;
  const Index step = lines > 1 ? ld : min_ld;  // a single line may have any ld, which no address may be computed with
  return {data, {rows, columns}, {columns_lie_dense ? 1 : step, columns_lie_dense ? step : 1}};
}

}  // namespace
}  // namespace headlane

void headlane_cblas_sgemm(int layout, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                          const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
                          int64_t ldc) noexcept {
  using namespace headlane;
  const CallScope scope;
  clear_error();
  try {
    const bool column_major = is_column_major(layout);
    const bool transposed_a = is_transposed("trans_a", trans_a), transposed_b = is_transposed("trans_b", trans_b);
    check_size("m", m);
    check_size("n", n);
    check_size("k", k);
    View<const float, 2> of_a = view_of("a", a, m, k, column_major, transposed_a, lda);
    View<const float, 2> of_b = view_of("b", b, k, n, column_major, transposed_b, ldb);
    const View<float, 2> of_c = view_of("c", c, m, n, column_major, false, ldc);
    const bool no_product = alpha == 0.0f || k == 0;
    if (m == 0 || n == 0 || (no_product && beta == 1.0f)) return;
    if (no_product) {  // a and b are not read: they may be null or overlap c
      of_a = {nullptr, {m, 0}};
      of_b = {nullptr, {0, n}};
    }
    gemm_in_scope(of_a, of_b, nullptr, of_c, {.alpha = alpha, .beta = beta});
  } catch (const std::bad_alloc&) {
    set_error("out of memory");
  } catch (const std::exception& error) {
    set_error(error.what());
  } catch (...) {
    set_error("unknown error");
  }
}

const char* headlane_cblas_error() noexcept { return headlane::last_error[0] == '\0' ? nullptr : headlane::last_error; }
