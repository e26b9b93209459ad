// gemm_batch of a list of products: the entries.
#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "core/overlap.hpp"
#include "core/parallel.hpp"
#include "core/scratch.hpp"
#include "core/view_rows.hpp"
#include "gemm/check.hpp"
#include "gemm/half.hpp"

#include <headlane/gemm_batch.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller("gemm_batch");

/// A problem of 16-bit numbers, by their bits.
using HalfProblem = GemmProblemOf<std::uint16_t>;

/// The operands of a problem of a list.
template <class T>
struct Operands {
  using Problem = GemmProblemOf<T>;
  Operand a, b, c, bias, residual;

  explicit Operands(const Problem& p)
      : a(caller.operand("a", p.a)),
        b(caller.operand("b", p.b)),
        c(caller.operand("c", p.c)),
        bias(caller.operand("bias", p.options.bias)),
        residual(caller.operand("residual", p.options.residual)) {}

  void check(const Problem& p) const {
    check_gemm_by(a, b, p.packed, c, bias, residual, p.options.activation, p.options.activations);
  }

  template <class F>
  void for_each_input(const Problem& p, const F& f) const {
    f(a);
    if (p.packed == nullptr) f(b);
    if (bias) f(bias);
    if (residual) f(residual);
  }
};

/// Calls f(), and adds the number of the problem to the message of an error.
template <class F>
void numbered(std::size_t problem, const F& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    const std::string prefix = std::string(caller.function()) + ": ", text = error.what();
    const std::string rest = text.starts_with(prefix) ? text.substr(prefix.size()) : text;
    throw std::invalid_argument(prefix + "problem " + std::to_string(problem) + ": " + rest);
  }
}

template <class T>
void check_problems(std::span<const GemmProblemOf<T>> problems) {
  auto& extents = kept_object<std::vector<Extent>>();
  extents.clear();
  const auto add = [&](const Operand& o, bool written) {
    if (!is_empty(o)) extents.push_back(extent_of(o, written));
  };
  for (std::size_t i = 0; i < problems.size(); ++i)
    numbered(i, [&] {
      const Operands<T> operands(problems[i]);
      operands.check(problems[i]);
      add(operands.c, true);
      operands.for_each_input(problems[i], [&](const Operand& input) { add(input, false); });
    });
  if (surely_apart(extents)) return;
  for (std::size_t i = 0; i < problems.size(); ++i)
    for (std::size_t j = 0; j < problems.size(); ++j)
      if (i != j)
        numbered(i, [&] {
          const Operands<T> one(problems[i]), other(problems[j]);
          check_no_overlap(one.c, other.c);
          other.for_each_input(problems[j], [&](const Operand& input) { check_no_overlap(one.c, input); });
        });
}

/// Computes problems that are checked.
void run_problems(std::span<const GemmProblem> problems, int num_threads) {
  const kernels::KernelTable& kernel = active();
  HalfCopies residuals(kernel, num_threads, Purpose::option);
  for (const GemmProblem& p : problems)
    if (is_half(p.options.residual)) residuals.reserve(half_input(p.options.residual));
  residuals.allocate();
  const auto batches = scratch_array<Batch>(Purpose::batches, std::ssize(problems));
  std::size_t count = 0;
  double operations = 0, elements = 0;
  for (const GemmProblem& p : problems) {
    if (p.c.shape[0] == 0 || p.c.shape[1] == 0) continue;
    const View<const float, 2> b = p.packed != nullptr ? shape_of(*p.packed) : p.b;
    GemmOptions options = p.options;
    if (is_half(options.residual)) options.residual = as_view<2>(residuals.add(half_input(options.residual)));
    batches[count++] = {.first = product_of(p.a, b, p.packed, p.c, options)};
    const Work work = work_of(p.c.shape[0], p.c.shape[1], p.a.shape[1]);
    operations += work.operations;
    elements += work.elements;
  }
  run_gemm({batches, count}, kernel, useful_threads(operations, elements, num_threads));
}

/// Checks problems of 16-bit numbers and computes them by way of copies.
void run_problems(std::vector<HalfProblem>& problems, DType type, int num_threads) {
  check_problems(std::span<const HalfProblem>(problems));
  check_threads(caller, num_threads);
  std::erase_if(problems, [](const HalfProblem& p) { return is_empty(p.c); });
  HalfCopies copies(active(), num_threads);
  for (HalfProblem& p : problems) {
    p.a = with_safe_strides(p.a);
    p.b = p.packed != nullptr ? View<const std::uint16_t, 2>() : with_safe_strides(p.b);
    for (const View<const std::uint16_t, 2>& x : {p.a, p.b, View<const std::uint16_t, 2>(p.c)}) copies.reserve(x);
  }
  copies.allocate();
  auto& wide = kept_object<std::vector<GemmProblem>>();
  wide.clear();
  for (const HalfProblem& p : problems) {
    const bool reads_product = p.options.alpha != 0;
    const View<const float, 2> a = copy_of(copies, p.a, type, reads_product),
                               b = copy_of(copies, p.b, type, reads_product);
    wide.push_back({a, b, p.packed, copy_of(copies, p.c, type, p.options.beta != 0), p.options});
  }
  run_problems(wide, num_threads);
  for (std::size_t i = 0; i < problems.size(); ++i)
    copies.round(AnyView<const float>(wide[i].c), {AnyView<std::uint16_t>(problems[i].c), type});
}

template <class T>
void run_halves(std::span<const GemmProblemOf<T>> problems, int num_threads) {
  const CallScope scope;
  auto& bits = kept_object<std::vector<HalfProblem>>();
  bits.clear();
  for (const GemmProblemOf<T>& p : problems)
    bits.push_back({bits_of(p.a), bits_of(p.b), p.packed, bits_of(p.c), p.options});
  run_problems(bits, type_of<T>, num_threads);
}

}  // namespace

void gemm_batch(std::span<const GemmProblem> problems, int num_threads) {
  const CallScope scope;
  check_problems(problems);
  check_threads(caller, num_threads);
  run_problems(problems, num_threads);
}
void gemm_batch(std::span<const GemmProblemOf<bfloat16>> problems, int num_threads) {
  run_halves(problems, num_threads);
}
void gemm_batch(std::span<const GemmProblemOf<float16>> problems, int num_threads) {
  run_halves(problems, num_threads);
}

}  // namespace headlane
