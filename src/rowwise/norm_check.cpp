#include "rowwise/norm_check.hpp"

#include <cmath>

namespace headlane::internal {
namespace {

void check_vector(const Norm& norm, const char* name, const View<const float, 1>& vector, const Operand& x,
                  const Operand& y) {
  if (!vector) return;
  const Operand given = norm.caller.operand(name, vector);
  check_operand(given);
  const Index n = x.shape[x.rank - 1];
  given.require(vector.size(0) == n, " has ", vector.size(0), " elements, x has ", n, " along its last axis");
  check_no_overlap(y, given);
  if (norm.sum) check_no_overlap(norm.caller.operand("sum", norm.sum), given);
}

}  // namespace

void check_norm(const Norm& norm, const Operand& x, const Operand& y) {
  const Operand residual = norm.caller.operand("residual", norm.residual);
  const Operand sum = norm.caller.operand("sum", norm.sum);
  check_elementwise(x, y);
  if (norm.residual) check_elementwise(residual, y);
  if (norm.sum) {
    check_elementwise(x, sum);
    if (norm.residual) check_elementwise(residual, sum);
    check_no_overlap(y, sum);
  }
  check_vector(norm, "weight", norm.weight, x, y);
  check_vector(norm, "bias", norm.bias, x, y);
  norm.caller.require(norm.eps >= 0 && std::isfinite(norm.eps), "eps is ", norm.eps, ", which is no number from 0 on");
  check_threads(norm.caller, norm.num_threads);
}

}  // namespace headlane::internal
