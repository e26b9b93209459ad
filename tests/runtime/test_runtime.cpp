// Choice of the instruction set and of the number of threads.
#include "core/dispatch.hpp"
#include "kernels/table.hpp"
#include "support/child.hpp"
#include "support/every_call.hpp"
#include "support/process.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

namespace headlane::test {

using namespace internal;
namespace {

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

bool lists_isas(const std::string& text) {
  const auto names = available_isas();
  return std::all_of(names.begin(), names.end(), [&](std::string_view name) { return contains(text, name); });
}

TEST_CASE("version is three numbers") {
  const std::string text(version());
  CHECK(std::count(text.begin(), text.end(), '.') == 2);
  CHECK(text.find_first_not_of("0123456789.") == std::string::npos);
}

TEST_CASE("isa: every available instruction set can be chosen") {
  const auto names = available_isas();
  const auto tables = available_tables();
  REQUIRE(names.size() == tables.size());
  REQUIRE(!names.empty());
  if (const char* forced = std::getenv("HEADLANE_ISA")) CHECK(isa() == forced);
  else CHECK(isa() == names.front());
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(names[i] == tables[i]->name);
    const IsaScope scope(names[i]);
    CHECK(isa() == names[i]);
    CHECK(&active() == tables[i]);
  }
}

TEST_CASE("isa: each table holds its own kernels") {
  const auto tables = available_tables();
  for (const auto* x : tables) {
    for (const auto* y : tables) {
      if (x == y) continue;
      CHECK((x->gemm_block != y->gemm_block));
      CHECK((x->softmax_rows != y->softmax_rows));
      CHECK((x->attention_block != y->attention_block));
      CHECK((x->exp != y->exp));
    }
  }
}

TEST_CASE("isa: an unknown name is an error that lists the available names, and changes nothing") {
  const std::string before(isa());
  for (const std::string name : {"nonsense", "", "AVX2", "avx2 ", "sse", "avx512,avx2"}) {
    const std::string message = message_of([&] { set_isa(name); });
    CHECK_MESSAGE(contains(message, name), message);
    CHECK_MESSAGE(lists_isas(message), message);
    CHECK(isa() == before);
  }
}

// ---- decided once per process, hence tested in a child ----

int print(const std::string& text) {
  std::printf("%s", text.c_str());
  return 0;
}

// Prints the number of threads of this process after a call with num_threads = 3, where the
// library's own number is 1.
int threads_after(const std::function<void(int)>& call) {
  set_num_threads(1);
  call(0);
  if (threads_of_process() != 1) return print("more than one without being asked");
  call(3);
  return print(std::to_string(threads_of_process()));
}

/// The functions without a message about HEADLANE_ISA, which is `name`.
std::string functions_that_compute(const std::string& name) {
  const EveryCall functions(7, 1, EveryCall::Calls::of_functions);
  std::vector<EveryCall::Call> calls = functions.calls();
  calls.push_back({"PackedMatrix", [](int) { PackedMatrix(Tensor<2>({3, 4}).view); }, {}});
  std::string names;
  for (const EveryCall::Call& call : calls) {
    const std::string message = message_of([&] { call.run(1); });
    if (!contains(message, "HEADLANE_ISA: ") || !contains(message, name) || !lists_isas(message))
      names += call.name + "\n";
  }
  return names;
}

const bool tasks_registered = [] {
  child_tasks()["threads of gemm"] = [] {
    const Tensor<2> a({300, 300}), b({300, 300}), c({300, 300});
    return threads_after([&](int threads) { gemm(a.view, b.view, c.view, {.num_threads = threads}); });
  };
  child_tasks()["threads of softmax"] = [] {
    const Tensor<2> x({3000, 300}), y({3000, 300});
    return threads_after([&](int threads) { softmax(x.view, y.view, {.num_threads = threads}); });
  };
  child_tasks()["threads of activate"] = [] {
    const Tensor<2> x({3000, 300}), y({3000, 300});
    return threads_after([&](int threads) { activate(x.view, y.view, Activation::gelu, {.num_threads = threads}); });
  };
  child_tasks()["threads of attention"] = [] {
    const AttentionTensors t({.q_heads = 8, .q_length = 200, .kv_length = 200, .head_dim = 16}, 1);
    return threads_after([&](int threads) {
      AttentionOptions options;
      options.num_threads = threads;
      t.run(options);
    });
  };
  child_tasks()["isa"] = [] { return print(std::string(isa())); };
  child_tasks()["isa message"] = [] { return print(message_of([] { isa(); })); };
  child_tasks()["functions that compute"] = [] { return print(functions_that_compute("nonsense")); };
  child_tasks()["threads"] = [] { return print(std::to_string(num_threads())); };
  return true;
}();

TEST_CASE("HEADLANE_ISA selects the instruction set; an unknown name is an error in every function") {
  if (!can_start_children()) return;
  for (const auto name : available_isas()) {
    CHECK(run_child("isa", {{"HEADLANE_ISA", std::string(name)}}).output == name);
  }
  for (const char* none : {"", empty_value})
    CHECK(run_child("isa", {{"HEADLANE_ISA", none}}).output == available_isas().front());
  const ChildResult message = run_child("isa message", {{"HEADLANE_ISA", "nonsense"}});
  CHECK(message.status == 0);
  CHECK_MESSAGE(contains(message.output, "nonsense"), message.output);
  CHECK_MESSAGE(lists_isas(message.output), message.output);
  const ChildResult functions = run_child("functions that compute", {{"HEADLANE_ISA", "nonsense"}});
  CHECK(functions.status == 0);
  CHECK(functions.output == "alibi_slopes\nt5_bucket\n");  // they have no kernel
}

TEST_CASE("threads: HEADLANE_NUM_THREADS, OMP_NUM_THREADS, set_num_threads") {
  if (!can_start_children()) return;
  const bool serial = run_child("threads", {{"HEADLANE_NUM_THREADS", ""}, {"OMP_NUM_THREADS", "5"}}).output == "1";
  const auto threads = [](const char* own, const char* omp) {
    return run_child("threads", {{"HEADLANE_NUM_THREADS", own}, {"OMP_NUM_THREADS", omp}}).output;
  };
  if (serial) {
    MESSAGE("built without OpenMP");
  } else {
    CHECK(threads("3", "") == "3");
    CHECK(threads("3", "5") == "3");
    CHECK(threads("", "5") == "5");
  }
  for (const std::string wrong : {"0", "-2", "many", "3x", "65537", "99999999999999999999"}) {
    CHECK_MESSAGE(threads(wrong.c_str(), "2") == (serial ? "1" : "2"), wrong);
  }
  if (!serial) CHECK(threads(empty_value, "2") == "2");
  const int before = num_threads();
  CHECK(before >= 1);
  set_num_threads(3);
  if (!serial) CHECK(num_threads() == 3);
  CHECK(contains(message_of([] { set_num_threads(-1); }), "-1"));
  if (!serial) CHECK(num_threads() == 3);
  CHECK(contains(message_of([] { set_num_threads(65537); }), "65537"));
  if (!serial) CHECK(num_threads() == 3);
  set_num_threads(65536);
  CHECK(num_threads() == max_threads());
  set_num_threads(0);
  CHECK(num_threads() == before);
}

TEST_CASE("threads: the option num_threads of a call") {
  if (!can_start_children()) return;
  if (run_child("threads", {{"HEADLANE_NUM_THREADS", ""}, {"OMP_NUM_THREADS", "5"}}).output == "1") return;
  for (const std::string function : {"gemm", "softmax", "activate", "attention"}) {
    CHECK_MESSAGE(run_child("threads of " + function).output == "3", function);
  }
}

}  // namespace
}  // namespace headlane::test
