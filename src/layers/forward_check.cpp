#include "layers/forward_check.hpp"

#include "attention/check.hpp"

#include <iterator>

namespace headlane::internal {

void check_forward(const Operand& x, Index in, const Operand& y, Index out, bool in_place, int num_threads) {
  const Caller caller = x.caller;
  check_operand(x);
  check_output(y);
  check_same(x, 0, "batch elements", y, 0, "batch elements");
  check_same(x, 1, "rows a batch element", y, 1, "rows a batch element");
  caller.require(x.shape[2] == in, "x is ", x, ", the layer takes rows of ", in);
  caller.require(y.shape[2] == out, "y is ", y, ", the layer returns rows of ", out);
  if (in_place && in == out) check_elementwise(x, y);
  else check_no_overlap(y, x);
  check_threads(caller, num_threads);
}

void check_layer_options(Caller caller, const AttentionOptions& options, const Operand& x, const Operand& y) {
  for_each_input(caller, options, [&](const Operand& input) {
    check_operand(input);
    check_no_overlap(y, input);
  });
  caller.require(!options.sum, "parts for merge() (sum) are not for layers");
  caller.require(options.workspace.empty(), "workspace has ", std::ssize(options.workspace),
                 " bytes, a layer works in memory of its own");
  if (!options.lse) return;
  const Operand lse = caller.operand("lse", options.lse);
  check_output(lse);
  check_no_overlap(y, lse);
  check_no_overlap(lse, x);  // x is the residual, read after lse is written
}

}  // namespace headlane::internal
