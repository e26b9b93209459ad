// GEMM: checks of the arguments, and PackedMatrix.
#include "check.hpp"
#include "dispatch.hpp"
#include "gemm.hpp"
#include "kernels/table.hpp"
#include "parallel.hpp"
#include "round.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <utility>

namespace headlane {
namespace {

double size(Index x, Index y) { return static_cast<double>(x) * static_cast<double>(y); }

/// A matrix that is only a shape: the packed operand in messages.
View<const float, 2> shape_of(const PackedMatrix& b) { return {b.data(), {b.rows(), b.columns()}}; }

void check_finish(const GemmOptions& options, const Operand& c) {
  require(options.activation <= Activation::erf, "gemm: activation is ", static_cast<Index>(options.activation),
          ", which is none of none … erf");
  if (options.bias.data != nullptr) {
    const Operand bias = operand("gemm", "bias", options.bias);
    check_operand(bias);
    check_same(bias, 0, "elements", c, 1, "columns");
    check_no_overlap(c, bias);
  }
  if (options.residual.data != nullptr) {
    const Operand residual = operand("gemm", "residual", options.residual);
    check_operand(residual);
    check_same(residual, 0, "rows", c, 0, "rows");
    check_same(residual, 1, "columns", c, 1, "columns");
    check_no_overlap(c, residual);
  }
}

/// The product of checked arguments.
Product product_of(const View<const float, 2>& a, const View<const float, 2>& b, const PackedMatrix* packed,
                   const View<float, 2>& c, const GemmOptions& options) {
  const View<const float, 1>& bias = options.bias;
  const View<const float, 2>& residual = options.residual;
  Product p{a, b, {}, c, options.alpha, options.beta, {}};
  if (packed != nullptr) p.packed = {packed->data(), round_up(packed->columns(), kernels::panel_columns), 0};
  p.finish = {bias.data, bias.strides[0], options.activation,  nullptr,
              0,         residual.data,   residual.strides[0], residual.strides[1]};
  // Vectors run along contiguous columns of c; where its rows are contiguous, cᵀ = bᵀ·aᵀ is the same sums of products.
  if (c.strides[1] != 1 && c.strides[0] == 1 && packed == nullptr && bias.data == nullptr) {
    p.a = b.transposed();
    p.b = a.transposed();
    p.c = c.transposed();
    std::swap(p.finish.row_step, p.finish.column_step);
  }
  return p;
}

void gemm_checked(const View<const float, 2>& a, const View<const float, 2>& b, const PackedMatrix* packed,
                  const View<float, 2>& c, const GemmOptions& options) {
  const Operand of_a = operand("gemm", "a", a), of_b = operand("gemm", "b", b), of_c = operand("gemm", "c", c);
  check_operand(of_a);
  check_operand(of_b);
  check_output(of_c);
  check_same(of_a, 1, "columns", of_b, 0, "rows");
  check_same(of_c, 0, "rows", of_a, 0, "rows");
  check_same(of_c, 1, "columns", of_b, 1, "columns");
  check_no_overlap(of_c, of_a);
  if (packed == nullptr) check_no_overlap(of_c, of_b);
  check_finish(options, of_c);
  check_threads("gemm", options.num_threads);
  const kernels::KernelTable& kernel = active();

  const Index m = c.shape[0], n = c.shape[1], k = a.shape[1];
  if (m == 0 || n == 0) return;
  const int threads = useful_threads(2.0 * size(m, n) * static_cast<double>(k), size(m, k) + size(k, n) + size(m, n),
                                     options.num_threads);
  const Batch batch{.first = product_of(a, b, packed, c, options)};
  run_gemm({&batch, 1}, kernel, threads);
}
}  // namespace

void gemm(View<const float, 2> a, View<const float, 2> b, View<float, 2> c, const GemmOptions& options) {
  gemm_checked(a, b, nullptr, c, options);
}

void gemm(View<const float, 2> a, const PackedMatrix& b, View<float, 2> c, const GemmOptions& options) {
  gemm_checked(a, shape_of(b), &b, c, options);
}

namespace {

/// Columns of b that a task packs.
constexpr Index columns_of_task = 128;

void pack_right(const View<const float, 2>& b, const kernels::KernelTable& kernel, int threads, float* packed) {
  const Index n = b.shape[1], width = round_up(n, kernels::panel_columns), tasks = ceil_div(n, columns_of_task);
  for (Index first = 0; first < b.shape[0]; first += kernels::block_size) {
    const Index k = std::min(kernels::block_size, b.shape[0] - first);
    parallel_for(tasks, threads, [&](Index task) {
      const Index column = task * columns_of_task;
      kernel.pack_panels({b.data + first * b.strides[0] + column * b.strides[1], k,
                          std::min(columns_of_task, n - column), b.strides[0], b.strides[1]},
                         packed + first * width + column * k);
    });
  }
}

}  // namespace

PackedMatrix::PackedMatrix(View<const float, 2> b, int num_threads) {
  const Operand of_b = operand("PackedMatrix", "b", b);
  check_operand(of_b);
  check_threads("PackedMatrix", num_threads);
  const kernels::KernelTable& kernel = active();
  rows_ = b.shape[0];
  columns_ = b.shape[1];
  if (bytes() == 0) return;
  constexpr std::size_t line = 64;
  data_.reset(static_cast<float*>(std::aligned_alloc(line, bytes())));
  if (!data_) throw std::bad_alloc();
  pack_right(b, kernel, useful_threads(0, size(rows_, columns_), num_threads), data_.get());
}

std::size_t PackedMatrix::bytes() const {
  return static_cast<std::size_t>(rows_ * round_up(columns_, kernels::panel_columns)) * sizeof(float);
}

void PackedMatrix::Free::operator()(float* p) const { std::free(p); }

}  // namespace headlane
