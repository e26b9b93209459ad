#include "recurrent/linear_attention_check.hpp"

#include <headlane/limits.hpp>

#include <cmath>
#include <limits>

namespace headlane::internal {
namespace {

void check_dim(const Operand& operand, const char* what) {
  operand.require(operand.shape[3] >= 1 && operand.shape[3] <= max_head_dim, " has ", what, " ", operand.shape[3],
                  ", it must be 1 to ", max_head_dim);
}

/// The first three axes of an option are those of v.
void check_tokens(const Operand& option, const Operand& v) {
  check_same(option, 0, "batch elements", v, 0, "batch elements");
  check_same(option, 1, "heads", v, 1, "heads");
  check_same(option, 2, "tokens", v, 2, "tokens");
}

void check_shapes(const LinearAttentionOperands& x) {
  for (const Operand* input : {&x.q, &x.k, &x.v}) check_operand(*input);
  check_dim(x.q, "key_dim");
  check_dim(x.v, "value_dim");
  check_same_rows(x.k, x.q);
  check_same(x.k, 3, "elements a head (key_dim)", x.q, 3, "elements a head (key_dim)");
  check_same(x.v, 0, "batch elements", x.q, 0, "batch elements");
  check_same(x.v, 2, "tokens", x.q, 2, "tokens");
  x.v.require(x.k.shape[1] > 0 ? x.v.shape[1] % x.k.shape[1] == 0 : x.v.shape[1] == 0, " has ", x.v.shape[1],
              " heads, k has ", x.k.shape[1], ", which does not divide them");
  check_output(x.out);
  check_same_rows(x.out, x.v);
  check_same(x.out, 3, "elements a head (value_dim)", x.v, 3, "elements a head (value_dim)");
}

void check_state(const LinearAttentionOperands& x, const Operand& state) {
  check_output(state);
  check_same(state, 0, "batch elements", x.v, 0, "batch elements");
  check_same(state, 1, "heads", x.v, 1, "heads");
  check_same(state, 2, "rows", x.k, 3, "elements a head (key_dim)");
  check_same(state, 3, "columns", x.v, 3, "elements a head (value_dim)");
  for (const Operand* other : {&x.q, &x.k, &x.v, &x.out}) check_no_overlap(state, *other);
}

void check_gates(const LinearAttentionOperands& x, const LinearAttentionOptions& options, const Operand& a_log,
                 const Operand& dt_bias) {
  const Caller caller = x.out.caller;
  if (a_log) {
    caller.require(static_cast<bool>(options.log_decay), "a_log is given without log_decay");
    check_operand(a_log);
    check_same(a_log, 0, "elements", x.v, 1, "heads");
  }
  if (dt_bias) {
    caller.require(static_cast<bool>(a_log), "dt_bias is given without a_log");
    check_operand(dt_bias);
    const int most = options.log_decay.rank - 2;
    dt_bias.require(dt_bias.rank >= 1 && dt_bias.rank <= most, " has rank ", dt_bias.rank, ", it may be 1",
                    most > 1 ? " or 2" : "");
    check_same(dt_bias, 0, dt_bias.rank == 1 ? "elements" : "rows", x.v, 1, "heads");
    if (dt_bias.rank == 2) check_same(dt_bias, 1, "elements a head", x.k, 3, "elements a head (key_dim)");
  }
  caller.require(!options.discretize || a_log, "discretize is given without a_log");
  caller.require(!options.discretize || options.log_decay.rank == 3, "discretize is given with a log_decay of rank ",
                 options.log_decay.rank, ", it must be 3");
  const float least = options.min_step, most = options.max_step;
  caller.require(options.discretize || (least == 0 && most == std::numeric_limits<float>::infinity()),
                 "min_step or max_step is given without discretize");
  caller.require(least >= 0 && least <= most && std::isfinite(least), "min_step is ", least, ", max_step ", most,
                 ": they are no limits from 0 on");
  caller.require(!options.sigmoid_beta || options.beta, "sigmoid_beta is given without beta");
}

}  // namespace

void check_linear_attention(const LinearAttentionOperands& x, const LinearAttentionOptions& options) {
  const Caller caller = x.out.caller;
  const Operand state = caller.operand("state", options.state), beta = caller.operand("beta", options.beta),
                decay = caller.operand("log_decay", options.log_decay), a_log = caller.operand("a_log", options.a_log),
                dt_bias = caller.operand("dt_bias", options.dt_bias), skip = caller.operand("skip", options.skip);
  check_shapes(x);
  for (const Operand* input : {&x.q, &x.k, &x.v}) check_no_overlap(x.out, *input);
  if (state) check_state(x, state);
  if (beta) {
    check_operand(beta);
    check_tokens(beta, x.v);
  }
  if (decay) {
    check_operand(decay);
    decay.require(decay.rank == 3 || decay.rank == 4, " has rank ", decay.rank, ", it may be 3 or 4");
    check_tokens(decay, x.v);
    if (decay.rank == 4) check_same(decay, 3, "elements a token", x.k, 3, "elements a head (key_dim)");
  }
  check_gates(x, options, a_log, dt_bias);
  if (skip) {
    check_operand(skip);
    check_same(skip, 0, "elements", x.v, 1, "heads");
  }
  for (const Operand* option : {&beta, &decay, &a_log, &dt_bias, &skip}) {
    if (!*option) continue;
    check_no_overlap(x.out, *option);
    if (state) check_no_overlap(state, *option);
  }
  caller.require(!options.normalize || (options.eps >= 0 && std::isfinite(options.eps)), "eps is ", options.eps,
                 ", which is no number from 0 on");
  check_threads(caller, options.num_threads);
}

}  // namespace headlane::internal
