// Illegal calls of operations whose state passes from call to call (illegal.hpp).
#pragma once

#include "support/illegal.hpp"
#include "support/linear_attention_case.hpp"

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <vector>

namespace headlane::test {

inline constexpr const char* linear = "linear_attention";

/// Legal operands with all options, and illegal calls.
template <class Tensors, class Call>
struct Operands {
  Tensors t;
  std::vector<float> state = elements(t.state.view);
  Tensor<1> shared{{600}};
  std::vector<Illegal> calls{};

  template <class Value>
  [[nodiscard]] Call with(Value Call::* member, const std::type_identity_t<Value>& value) const {
    Call call = t.call();
    call.*member = value;
    return call;
  }
  void push(const std::string& what, const Call& call, const std::vector<std::string>& words) {
    calls.push_back({what, [=] { call.run(); }, words});
  }
  /// All errors of one operand.
  template <class Value, class Wrong>
  void views(const char* function, const char* name, Value Call::* member, const Wrong& wrong) {
    add(calls, function, name, wrong, [this, member](const auto& view) { this->with(member, view).run(); });
  }
  void check(const View<float, 4>& out, Index min_count) const {
    const Index before = illegal_calls();
    check_illegal(calls, [&] {
      return all_sentinels(out) && elements(t.state.view) == state && all_sentinels(shared.view) &&
             shared.surroundings_untouched() && t.surroundings_untouched();
    });
    CHECK(illegal_calls() - before >= min_count);
  }
};

using Linear = Operands<LinearTensors, LinearCall>;

inline Linear linear_operands(Decay decay) {
  return {.t = LinearTensors({.batch = 2,
                              .key_heads = 2,
                              .heads = 4,
                              .length = 3,
                              .key_dim = 5,
                              .value_dim = 6,
                              .decay = decay,
                              .beta = true,
                              .state = true,
                              .normalize = true})};
}
}  // namespace headlane::test
