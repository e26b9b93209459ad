// Which instruction set runs and how many threads; floating-point state; no allocation once warm; memory of a long
// sequence.
#include "core/dispatch.hpp"
#include "kernels/table.hpp"
#include "support/allocation_count.hpp"
#include "support/child.hpp"
#include "support/floating_point_state.hpp"
#include "support/mask_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <malloc.h>
namespace headlane::test {

using namespace internal;
namespace {

// One call of every function that computes, several blocks and heads large.
struct Work {
  Random random{1};
  Tensor<2> a = random_tensor<2>({70, 600}, random), b = random_tensor<2>({600, 130}, random), c{{70, 130}};
  Tensor<2> x = random_tensor<2>({200, 300}, random), y{{200, 300}};
  AttentionTensors t{{.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 70, .kv_length = 600}, 2};
  Mask mask = random_mask({1, 1, 1, 600}, random, 3);
  Tensor<4> bias = random_bias({1, 1, 70, 600}, random, 3);
  Tensor<3> m = random_tensor<3>({1, 40, 128}, random), m_out{{1, 40, 128}};

  PackedMatrix packed{b.view};
  void run_gemm() const {
    gemm(a.view, b.view, c.view, {0.5f, 0.0f});
    gemm(a.view, packed, c.view, {.bias = b.view.select(0, 0), .activation = Activation::gelu});
  }
  void run_softmax() const {
    softmax(x.view, y.view);
    softmax(x.view, y.view, {.scale = 2, .log = true});
    SoftmaxOptions along_rows{.axis = 0};
    along_rows.bias = x.view;
    softmax(x.view, y.view, along_rows);
    softmax(x.view, y.view, {.causal = true});
  }
  void run_attention() const {
    t.run();
    t.run(causal(530));
    t.run(with_bias(with_mask({}, stretched<const bool>(mask.view, {2, 4, 70, 600})),
                    stretched<const float>(bias.view, {2, 4, 70, 600})));
  }
  void run_activate() const {
    activate(x.view, y.view, Activation::gelu);
    activate(x.view.transposed(), y.view.transposed(), Activation::tanh);
    activate(b.view.transposed().slice(1, 0, 300), y.view.slice(0, 0, 130), Activation::silu);
  }
  void run_multi_head() const { multi_head_attention(m.view, m.view, m.view, m_out.view, 2); }
  void run() const {
    run_gemm();
    run_softmax();
    run_activate();
    run_attention();
    run_multi_head();
  }
};

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

TEST_CASE("isa: every available one can be chosen and then runs") {
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

TEST_CASE("isa: an unknown name is an error that lists what there is, and changes nothing") {
  const std::string before(isa());
  for (const std::string name : {"nonsense", "", "AVX2", "avx2 ", "sse", "avx512,avx2"}) {
    const std::string message = message_of([&] { set_isa(name); });
    CHECK_MESSAGE(contains(message, name), message);
    CHECK_MESSAGE(lists_isas(message), message);
    CHECK(isa() == before);
  }
}

// ---- decided once per process: seen in a child ----

int print(const std::string& text) {
  std::printf("%s", text.c_str());
  return 0;
}

// The threads that this process has after a call that may use three, where the library may use one.
int threads_after(const std::function<void(int)>& call) {
  set_num_threads(1);
  const auto count = [] {
    const std::filesystem::directory_iterator threads("/proc/self/task");
    return std::distance(begin(threads), end(threads));
  };
  call(0);
  if (count() != 1) return print("more than one without being asked");
  call(3);
  return print(std::to_string(count()));
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
  child_tasks()["gemm message"] = [] { return print(message_of([] { Work().run_gemm(); })); };
  child_tasks()["softmax message"] = [] { return print(message_of([] { Work().run_softmax(); })); };
  child_tasks()["activate message"] = [] { return print(message_of([] { Work().run_activate(); })); };
  child_tasks()["attention message"] = [] { return print(message_of([] { Work().run_attention(); })); };
  child_tasks()["multi_head message"] = [] { return print(message_of([] { Work().run_multi_head(); })); };
  child_tasks()["threads"] = [] { return print(std::to_string(num_threads())); };
  return true;
}();

bool can_start_children() {
  const bool can = run_child("threads").status != not_started;
  if (!can) MESSAGE("this program cannot start itself again here: skipped");
  return can;
}

TEST_CASE("HEADLANE_ISA is honoured, and an unknown one stops every function that computes") {
  if (!can_start_children()) return;
  for (const auto name : available_isas()) {
    CHECK(run_child("isa", {{"HEADLANE_ISA", std::string(name)}}).output == name);
  }
  for (const char* none : {"", empty_value})
    CHECK(run_child("isa", {{"HEADLANE_ISA", none}}).output == available_isas().front());
  for (const std::string task : {"isa message", "gemm message", "softmax message", "activate message",
                                 "attention message", "multi_head message"}) {
    const ChildResult child = run_child(task, {{"HEADLANE_ISA", "nonsense"}});
    CHECK_MESSAGE(child.status == 0, task);
    CHECK_MESSAGE(contains(child.output, "nonsense"), task, ": ", child.output);
    CHECK_MESSAGE(lists_isas(child.output), task, ": ", child.output);
  }
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

// ---- floating-point state ----

#if defined(HEADLANE_TEST_HAS_STATE)
TEST_CASE("the caller's floating-point state is the same after each call, whatever it was") {
  const State original = state();
  const Work work;
  for (const auto name : available_isas()) {
    const IsaScope scope(name);
    for (const State wanted : all_states) {
      set_state(wanted);
      work.run_gemm();
      const State after_gemm = state();
      work.run_softmax();
      const State after_softmax = state();
      work.run_activate();
      const State after_activate = state();
      work.run_attention();
      const State after_attention = state();
      work.run_multi_head();
      const State after_multi_head = state();
      set_state(original);
      CHECK(after_gemm == wanted);
      CHECK(after_softmax == wanted);
      CHECK(after_activate == wanted);
      CHECK(after_attention == wanted);
      CHECK(after_multi_head == wanted);
    }
  }
}
#endif

// ---- memory ----

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("no allocation once warm") {
  const Work work;
  for (const int threads : {1, 2}) {
    const ThreadsScope scope(threads);
    for (int i = 0; i < 3; ++i) work.run();
    const auto bytes = static_cast<std::ptrdiff_t>(mallinfo2().uordblks);
    const auto allocated_by = [&](void (Work::*call)() const) {
      const long start = allocations;
      (work.*call)();
      return allocations - start;
    };
    const std::array<long, 5> counts{allocated_by(&Work::run_gemm), allocated_by(&Work::run_softmax),
                                     allocated_by(&Work::run_attention), allocated_by(&Work::run_multi_head),
                                     allocated_by(&Work::run_activate)};
    const auto grown = static_cast<std::ptrdiff_t>(mallinfo2().uordblks) - bytes;
    const std::array<std::string, 5> names{"gemm", "softmax", "attention", "multi_head_attention", "activate"};
    for (std::size_t i = 0; i < counts.size(); ++i) {
      CHECK_MESSAGE(counts[i] == 0, names[i], ", ", threads, " threads");
    }
    CHECK_MESSAGE(std::abs(grown) < 1024, threads, " threads");  // libomp's own moves; scratch is never so small
  }
  const long before = allocations;
  void* volatile p = ::operator new(1);
  ::operator delete(p);
  CHECK(allocations == before + 1);  // it does count
}

// In MiB, from the kernel.
double status_of(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    double kib = 0;
    if (word == key + ":" && file >> kib) return kib / 1024;
  }
  return 0;
}

const bool memory_registered = [] {
  child_tasks()["memory"] = [] {
    const AttentionTensors t({.q_heads = 4, .kv_heads = 2, .q_length = 16384, .kv_length = 16384}, 1);
    const double before = status_of("VmRSS");
    t.run(causal(0));
    return print(std::to_string(status_of("VmHWM") - before));
  };
  return true;
}();

TEST_CASE("causal attention at L = 16384 needs at most 64 MiB beyond inputs and outputs") {
  if (slow_isa() || !can_start_children()) return;
  const ChildResult child = run_child("memory");
  const double mib = std::atof(child.output.c_str());
  MESSAGE("attention, 4 heads, L = 16384: ", mib, " MiB beyond inputs and outputs");
  CHECK(child.status == 0);
  CHECK(mib > 0);
  CHECK(mib <= 64);
}
#endif

}  // namespace
}  // namespace headlane::test
