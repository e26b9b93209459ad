/* gemm.hpp for C (C99) and for callers of CBLAS: the arguments of cblas_sgemm under other names, so
 * that any cblas.h can be included as well. Link headlane as in C++; with CMake, the project's
 * LANGUAGES are C and CXX. */
#ifndef HEADLANE_CBLAS_H
#define HEADLANE_CBLAS_H

#include <headlane/export.h>

#include <stdint.h>

#ifdef __cplusplus
#define HEADLANE_CBLAS_NOEXCEPT noexcept
extern "C" {
#else
#define HEADLANE_CBLAS_NOEXCEPT
#endif

/* The values of CBLAS: CblasRowMajor and so on, of any cblas.h, may be passed as well. */
enum {
  HEADLANE_CBLAS_ROW_MAJOR = 101,
  HEADLANE_CBLAS_COLUMN_MAJOR = 102,
  HEADLANE_CBLAS_NO_TRANS = 111,
  HEADLANE_CBLAS_TRANS = 112,
  HEADLANE_CBLAS_CONJ_TRANS = 113 /* for real numbers the same as HEADLANE_CBLAS_TRANS */
};

/* c = alpha · op(a) · op(b) + beta · c, where op(x) is x or its transpose.
 *
 * Shapes: op(a) [m, k], op(b) [k, n], c [m, n]; a is stored as [m, k], or as [k, m] if transposed.
 *   Element [i, j] of a as stored is
 *     row major      a[i·lda + j], lda at least the number of its columns
 *     column major   a[i + j·lda], lda at least the number of its rows
 *   and lda is at least 1. The same for b and c. Sizes may be 0.
 * Reads: c only if beta is not 0, so that otherwise a NaN in c is overwritten; a and b only if
 *   neither alpha nor k is 0. Nothing is written if m or n is 0, or if beta is 1 and alpha or k is
 *   0. An array that is neither read nor written may be null.
 * Aliasing: a and b may overlap each other; c must overlap neither, but with the same leading
 *   dimension it may lie in their gaps.
 * Arithmetic and error: those of gemm (gemm.hpp), with the same bits for every layout,
 *   transposition, leading dimension, instruction set and number of threads.
 * Threads: may be called from several at once. A call uses as many as HEADLANE_NUM_THREADS says,
 *   else OMP_NUM_THREADS or the number of cores (runtime.hpp); inside the caller's own OpenMP
 *   parallel region only the calling one.
 * Errors: headlane_cblas_error() then returns a message; nothing is printed, no exception leaves,
 *   and c is unchanged. Only if memory for scratch runs out, c may have been written in part.
 *   Checked in this order: layout, trans_a, trans_b, m, n, k, lda, ldb, ldc; then as in gemm: null,
 *   misaligned, beyond the address space, overlap (with the sizes of op(a) and op(b)). */
HEADLANE_API void headlane_cblas_sgemm(int layout, int trans_a, int trans_b, int64_t m, int64_t n,
                                       int64_t k, float alpha, const float* a, int64_t lda,
                                       const float* b, int64_t ldb, float beta, float* c,
                                       int64_t ldc) HEADLANE_CBLAS_NOEXCEPT;

/* The error of the calling thread's last headlane_cblas_sgemm, such as
 *   "headlane_cblas_sgemm: lda is 3, the minimum is 4: a has 4 columns"
 * or NULL if it succeeded or there was none. Valid until the thread ends or calls
 * headlane_cblas_sgemm again. */
HEADLANE_API const char* headlane_cblas_error(void) HEADLANE_CBLAS_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#undef HEADLANE_CBLAS_NOEXCEPT

#endif
