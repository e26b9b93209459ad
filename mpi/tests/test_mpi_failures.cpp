// A rank that throws in the middle of a call, with ranks that are threads: nobody hangs, no message
// is written to memory that was freed, and later calls are refused.
#include "sequence_case.hpp"
#include "support/allocation_count.hpp"
#include "thread_ranks.hpp"

#include <doctest/doctest.h>
#include <headlane/layers.hpp>
#include <headlane/mpi/kv_cache.hpp>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace headlane::test {
namespace {

/// A transport whose n-th operation throws: before it does something, or afterwards.
class FailingTransport final : public mpi::Transport {
 public:
  explicit FailingTransport(ThreadTransport& of) : of_(of) {}
  long until_failure = -1;
  bool afterwards = false;

  [[nodiscard]] int rank() const override { return of_.rank(); }
  [[nodiscard]] int size() const override { return of_.size(); }
  void all_gather(float* buffer, std::span<const Index> begins) override {
    run([&] { return of_.all_gather(buffer, begins), 0; });
  }
  [[nodiscard]] Ticket start_send(int to, const void* data, std::size_t bytes) override {
    return run([&] { return of_.start_send(to, data, bytes); });
  }
  [[nodiscard]] Ticket start_receive(int from, void* data, std::size_t bytes) override {
    return run([&] { return of_.start_receive(from, data, bytes); });
  }
  void wait(Ticket ticket) override {
    run([&] { return of_.wait(ticket), 0; });
  }
  void progress() override {
    run([&] { return of_.progress(), 0; });
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    run([&] { return of_.broadcast(data, bytes, root), 0; });
  }

 private:
  template <class F>
  Ticket run(const F& f) {
    const bool fails = until_failure == 0;
    if (until_failure >= 0) --until_failure;
    if (fails && !afterwards) throw std::runtime_error("the network is down");
    const Ticket ticket = f();
    if (fails) throw std::runtime_error("the network is down");
    return ticket;
  }

  ThreadTransport& of_;
};

/// A call of a rank, and whether its results have the bits of one process.
class Attempt {
 public:
  virtual ~Attempt() = default;
  virtual void run(mpi::Transport& transport) = 0;
  [[nodiscard]] virtual bool is_right() const = 0;
};
using Call = std::function<std::unique_ptr<Attempt>(mpi::Transport&)>;

class CutAttempt final : public Attempt {
 public:
  CutAttempt(const SequenceProblem& p, const mpi::AttentionCut& cut, int rank)
      : cut_(cut),
        rows_(positions_of(*cut.queries, rank)),
        keys_(positions_of(cut.keys, rank)),
        q_(p.tensors.q.view, rows_),
        k_(p.tensors.k.view, keys_),
        v_(p.tensors.v.view, keys_),
        expected_(p.tensors.out.view, rows_),
        local_(p.options, rows_),
        out_(expected_.view.shape) {
    local_.options.num_threads = 1;
  }
  void run(mpi::Transport& transport) override {
    mpi::attention(transport, q_.view, k_.view, v_.view, out_.view, cut_, local_.options);
  }
  [[nodiscard]] bool is_right() const override { return first_difference(out_.view, expected_.view).empty(); }

 private:
  mpi::AttentionCut cut_;
  std::vector<Index> rows_, keys_;
  LocalRows<float> q_, k_, v_, expected_;
  LocalOptions local_;
  Tensor<4> out_;
};

/// 1100 keys in three chunks, cut over three ranks, and some queries.
Call cut_call(Index queries, const AttentionOptions& options, mpi::Travels travels) {
  const AttentionSizes s{.batch = 2,
                         .q_heads = 8,
                         .kv_heads = 8,
                         .q_length = queries,
                         .kv_length = 1100,
                         .head_dim = 128,
                         .value_dim = 128};
  const auto problem = std::make_shared<SequenceProblem>(s, 1, options);
  const mpi::AttentionCut cut{.keys = mpi::SequenceCut::contiguous(1100, 3),
                              .queries = mpi::SequenceCut::contiguous(queries, 3)};
  const auto rows = [](Index heads, Index count) { return View<const float, 4>(nullptr, {2, heads, count, 128}); };
  const auto plan = mpi::plan_attention(0, rows(8, cut.queries->length_of(0)), rows(8, cut.keys.length_of(0)),
                                        rows(8, cut.keys.length_of(0)), cut, options);
  CHECK(plan.travels == travels);
  return [=](mpi::Transport& t) { return std::make_unique<CutAttempt>(*problem, cut, t.rank()); };
}

class CacheAttempt final : public Attempt {
 public:
  explicit CacheAttempt(mpi::Transport& t) : cache_(t, 2, 8, 8) {
    Random random(3);
    const Tensor<3> k = random_tensor<3>({2, 2100, 8}, random);
    KvCache whole(2, 8, 8);
    const Index all[] = {whole.add(), whole.add()};
    for (const Index sequence : all) {
      (void)cache_.add();
      whole.append(sequence, k.view, k.view);
      cache_.append(sequence, k.view, k.view);
    }
    for (Index i = 0; i < 2 * 4 * 8; ++i) q_.view.data[i] = random.normal();
    headlane::attention(q_.view, whole, all, expected_.view);
  }
  void run(mpi::Transport& transport) override {
    const Index all[] = {0, 1};
    mpi::attention(transport, q_.view, cache_, all, out_.view, {.num_threads = 1});
  }
  [[nodiscard]] bool is_right() const override { return first_difference(out_.view, expected_.view).empty(); }

 private:
  mpi::KvCache cache_;
  Tensor<4> q_{{2, 4, 1, 8}}, out_{{2, 4, 1, 8}}, expected_{{2, 4, 1, 8}};
};

std::vector<std::pair<std::string, Call>> calls() {
  static const bool visible = true;
  const AttentionOptions masked{.mask = {&visible, {2, 8, 5, 1100}, {0, 0, 0, 0}}};  // cut queries: keys travel
  return {{"keys travel", cut_call(5, masked, mpi::Travels::keys)},
          {"results travel", cut_call(5, {}, mpi::Travels::results)},
          {"a cache", [](mpi::Transport& t) { return std::make_unique<CacheAttempt>(t); }}};
}

/// What a rank does after it has thrown.
void check_broken(ThreadTransport& ranks, FailingTransport& transport, Attempt& attempt, const std::string& error) {
  if (error == "the ranks wait for each other") throw std::runtime_error(error);
  // The other ranks go on as far as they can, and send to where this rank wanted to receive.
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ranks.end();
  if (!transport.is_broken()) throw std::runtime_error("not broken, after: " + error);
  try {
    attempt.run(transport);
  } catch (const std::runtime_error& refused) {
    const std::string words = refused.what();
    if (words.starts_with("mpi::attention: an earlier call on this transport ended with an exception")) return;
    throw std::runtime_error("the next call says: " + words);
  }
  throw std::runtime_error("the next call is not refused");
}

/// Makes the call on three ranks after prepare(transport), and some of them may throw. Returns
/// whether one did. Throws if that is not as it has to be.
template <class Prepare>
bool fails(const Call& call, const Prepare& prepare) {
  std::atomic<bool> failed = false;
  std::barrier ready(3);
  run_transports(3, [&](ThreadTransport& ranks) {
    FailingTransport transport(ranks);
    const std::unique_ptr<Attempt> attempt = call(transport);
    ready.arrive_and_wait();
    prepare(transport);
    ready.arrive_and_wait();
    std::optional<std::string> error;
    bool refused = false;
    try {
      attempt->run(transport);
    } catch (const std::exception& thrown) {
      failed = true;
      refused = !transport.is_broken();
      error = thrown.what();
    }
    messages_until_failure = -1;
    if (refused) attempt->run(transport);  // all ranks have: they are in step
    else if (error) return check_broken(ranks, transport, *attempt, *error);
    if (!attempt->is_right()) throw std::runtime_error("other bits");
  });
  return failed;
}

/// Lets operation n of one rank after the other fail, n = 0, 1, 2 … until the call succeeds:
/// prepare(transport, n) is told -1 on the other ranks.
template <class Prepare>
void fail_everywhere(const Call& call, const Prepare& prepare) {
  for (const int rank : {0, 1, 2}) {
    CAPTURE(rank);
    long n = 0;
    for (bool failed = true; failed && n < 200; ++n) {
      CAPTURE(n);
      CHECK_NOTHROW(failed = fails(call, [&](FailingTransport& transport) {
                      prepare(transport, transport.rank() == rank ? n : -1);
                    }));
    }
    CHECK(n > 3);
    CHECK(n < 200);
  }
}

TEST_CASE("mpi::attention: a transport that fails at any operation") {
  for (const auto& [name, call] : calls()) {
    CAPTURE(name);
    for (const bool afterwards : {false, true})
      fail_everywhere(call, [&](FailingTransport& transport, long n) {
        transport.afterwards = afterwards;
        transport.until_failure = n;
      });
  }
}

TEST_CASE("mpi::attention: no memory for messages on one rank") {
  for (const auto& [name, call] : calls()) {
    CAPTURE(name);
    fail_everywhere(call, [](FailingTransport&, long n) { messages_until_failure = n; });
  }
}

/// A layer of two heads, one for each of two ranks; the keys of rank 1 have the weight `key`.
MultiHeadAttention two_heads(Team& team, float key) {
  Tensor<2> in({3 * 64, 64}), out({64, 64});
  for_each(in.view, [](float& x) { x = 0.5f; });
  for_each(out.view, [](float& x) { x = 0.5f; });
  for_each(in.view.slice(0, 64 + 32, 2 * 64), [&](float& x) { x = key; });
  return {{{"in_proj_weight", AnyView<const float>(in.view)}, {"out_proj.weight", AnyView<const float>(out.view)}},
          "",
          {.heads = 2, .team = &team}};
}

TEST_CASE("a layer of a team: one rank that throws has its later calls refused") {
  std::array<std::string, 2> first, second;
  CHECK_NOTHROW(run_transports(2, [&](ThreadTransport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    const MultiHeadAttention layer = two_heads(transport, 1e38f);
    KvCache cache(layer.kv_heads(), 32, 32, {.type = DType::int8});
    const Index sequence = cache.add();
    Tensor<3> x({1, 1, 64}), y({1, 1, 64});
    for_each(x.view, [](float& value) { value = 1; });
    for (std::string* message : {&first[rank], &second[rank]}) {
      try {
        layer.forward(x.view, cache, {&sequence, 1}, y.view);
      } catch (const std::exception& error) {
        *message = error.what();
      }
      transport.end();
    }
    CHECK(transport.is_broken());
  }));
  check_words(first[1], {"not finite"});
  for (const std::string& message : second)
    check_words(message, {"MultiHeadAttention::forward: an earlier call on this transport ended"});
}

#if !defined(HEADLANE_TEST_SANITIZED)  // sanitizers bring their own operator new
TEST_CASE("mpi::attention: no memory for anything else") {
  for (const auto& [name, call] : calls()) {
    CAPTURE(name);
    long n = 0;
    for (bool failed = true; failed && n < 2000; n += n < 60 ? 1 : 7) {
      CAPTURE(n);
      CHECK_NOTHROW(failed = fails(call, [&](const FailingTransport& transport) {
                      if (transport.rank() == 0) until_failure = n;
                    }));
      until_failure = -1;
    }
    CHECK(n > 50);
    CHECK(n < 2000);
  }
}
#endif

}  // namespace
}  // namespace headlane::test
