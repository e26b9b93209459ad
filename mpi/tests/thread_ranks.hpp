// Ranks that are threads of one process.
//
//   ThreadRanks  the transport of each; a message is copied when both sides have started it, so a
//                program that relies on buffered messages hangs here, and times out
//   run_ranks    runs a function on every rank; the first exception ends all of them
#pragma once

#include <headlane/mpi/transport.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace headlane::test {

/// What the ranks share.
struct ThreadRanks {
  struct Message {
    int from = 0, to = 0;
    const void* source = nullptr;
    void* target = nullptr;
    std::size_t sent = 0, expected = 0;
    [[nodiscard]] bool matched() const { return source != nullptr && target != nullptr; }
  };

  explicit ThreadRanks(int size_) : size(size_) {}

  /// Waits until `condition`, which another rank makes true.
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    const bool in_time = changed.wait_for(lock, std::chrono::seconds(60), [&] { return failed || condition(); });
    if (failed) throw std::runtime_error("another rank failed");
    if (!in_time) throw std::runtime_error("the ranks wait for each other");
  }

  /// Number of the message that this call starts, or that the other side has started.
  std::size_t start(int from, int to, bool sends, const void* source, void* target, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    std::size_t n = 0;
    for (; n < messages.size(); ++n) {
      const Message& m = messages[n];
      if (m.from == from && m.to == to && (sends ? m.source : m.target) == nullptr) break;
    }
    if (n == messages.size()) messages.push_back({.from = from, .to = to});
    Message& m = messages[n];
    static char nothing = 0;  // where empty messages point
    if (sends) {
      m.source = source == nullptr ? &nothing : source;
      m.sent = bytes;
    } else {
      m.target = target == nullptr ? &nothing : target;
      m.expected = bytes;
    }
    if (m.matched() && m.sent == m.expected) std::memcpy(m.target, m.source, bytes);
    changed.notify_all();
    return n;
  }

  int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Message> messages;
  std::map<std::uint64_t, std::vector<float*>> buffers;  // of each collective call
  std::map<std::uint64_t, int> done;
  bool failed = false;
};

class ThreadTransport final : public mpi::Transport {
 public:
  ThreadTransport(ThreadRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return ranks_.size; }

  void all_gather(float* buffer, std::span<const Index> begins) override {
    std::unique_lock lock(ranks_.mutex);
    const std::uint64_t call = calls_++;
    std::vector<float*>& buffers = ranks_.buffers[call];
    buffers.push_back(nullptr);  // one for each rank that has come
    by_rank_(call)[static_cast<std::size_t>(rank_)] = buffer;
    ranks_.changed.notify_all();
    ranks_.wait(lock, [&] { return buffers.size() == ranks_count(); });
    const std::vector<float*> all = by_rank_(call);
    lock.unlock();
    for (std::size_t r = 0; r < all.size(); ++r) {
      const auto count = static_cast<std::size_t>(begins[r + 1] - begins[r]);
      collective += count * sizeof(float);
      if (all[r] != buffer && count > 0) std::memcpy(buffer + begins[r], all[r] + begins[r], count * sizeof(float));
    }
    lock.lock();
    ++ranks_.done[call];
    ranks_.changed.notify_all();
    ranks_.wait(lock, [&] { return ranks_.done[call] == ranks_.size; });
  }

  [[nodiscard]] Ticket start_send(int to, const void* data, std::size_t bytes) override {
    sent += bytes;
    return static_cast<Ticket>(ranks_.start(rank_, to, true, data, nullptr, bytes));
  }
  [[nodiscard]] Ticket start_receive(int from, void* data, std::size_t bytes) override {
    received += bytes;
    return static_cast<Ticket>(ranks_.start(from, rank_, false, nullptr, data, bytes));
  }
  void wait(Ticket ticket) override {
    std::unique_lock lock(ranks_.mutex);
    const auto n = static_cast<std::size_t>(ticket);
    ranks_.wait(lock, [&] { return ranks_.messages[n].matched(); });
    const ThreadRanks::Message& m = ranks_.messages[n];
    if (m.sent != m.expected) throw std::runtime_error("a message has another size than its receiver expects");
  }
  void progress() override {}
  void broadcast(void* data, std::size_t bytes, int root) override {
    collective += bytes;
    if (rank_ != root) wait(ranks_ticket(ranks_.start(root, rank_, false, nullptr, data, bytes)));
    for (int to = 0; rank_ == root && to < ranks_.size; ++to)
      if (to != root) wait(ranks_ticket(ranks_.start(root, to, true, data, nullptr, bytes)));
  }

  /// Bytes of this rank so far, as SequencePlan counts them.
  std::size_t sent = 0, received = 0, collective = 0;

 private:
  static Ticket ranks_ticket(std::size_t n) { return static_cast<Ticket>(n); }
  [[nodiscard]] std::size_t ranks_count() const { return static_cast<std::size_t>(ranks_.size); }
  /// The buffers of a call by rank: behind those that count who has come.
  std::vector<float*>& by_rank_(std::uint64_t call) {
    std::vector<float*>& all = ranks_.buffers[call | std::uint64_t{1} << 63];
    all.resize(ranks_count());
    return all;
  }

  ThreadRanks& ranks_;
  int rank_;
  std::uint64_t calls_ = 0;
};

/// Runs f(transport) on every rank. Throws what the first rank that failed threw.
template <class F>
void run_ranks(int size, const F& f) {
  ThreadRanks ranks(size);
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ThreadTransport transport(ranks, rank);
      try {
        f(transport);
      } catch (...) {
        const std::lock_guard lock(ranks.mutex);
        if (!ranks.failed) first = std::current_exception();
        ranks.failed = true;
        ranks.changed.notify_all();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace headlane::test
