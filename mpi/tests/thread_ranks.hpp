// Ranks that are threads of one process.
//
//   ThreadTransport  the transport of each; a message is copied when both sides have started it, so
//                    a program that relies on buffered messages hangs here, and times out; messages
//                    under way must not overlap
//   run_transports   runs a function on every rank; the first exception ends all of them
//   message_of_all   what every rank says when it refuses a call
#pragma once

#include "guarded_messages.hpp"
#include "support/thread_team.hpp"

#include <doctest/doctest.h>
#include <headlane/mpi/transport.hpp>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace headlane::test {

/// Messages between the ranks.
class Mailbox {
 public:
  struct Message {
    int from = 0, to = 0;
    const void* source = nullptr;
    void* target = nullptr;
    std::size_t sent = 0, expected = 0;
    [[nodiscard]] bool matched() const { return source != nullptr && target != nullptr; }
  };

  /// The number of the message that this call starts, or that the other side has started.
  int start_send(int from, int to, const void* source, std::size_t bytes) {
    return start(from, to, true, [&](Message& m) {
      m.source = source == nullptr ? &nothing_ : source;
      m.sent = bytes;
    });
  }
  int start_receive(int from, int to, void* target, std::size_t bytes) {
    return start(from, to, false, [&](Message& m) {
      m.target = target == nullptr ? &nothing_ : target;
      m.expected = bytes;
    });
  }

  /// Returns when the message was copied.
  void wait(int number) {
    std::unique_lock lock(mutex_);
    const auto n = static_cast<std::size_t>(number);
    const auto matched = [&] { return messages_[n].matched(); };
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_ || matched(); }))
      throw std::runtime_error("the ranks wait for each other");
    if (!matched()) throw std::runtime_error("another rank failed");
    if (messages_[n].sent != messages_[n].expected)
      throw std::runtime_error("a message has another size than its receiver expects");
  }

  /// A rank has failed: the others would wait forever.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

 private:
  template <class Fill>
  int start(int from, int to, bool sends, const Fill& fill) {
    const std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (; n < messages_.size(); ++n) {
      const Message& m = messages_[n];
      if (m.from == from && m.to == to && (sends ? m.source : m.target) == nullptr) break;
    }
    if (n == messages_.size()) messages_.push_back({.from = from, .to = to});
    Message& m = messages_[n];
    fill(m);
    if (m.matched() && m.sent == m.expected) std::memcpy(m.target, m.source, m.sent);
    changed_.notify_all();
    return static_cast<int>(n);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;
  char nothing_ = 0;  // where empty messages point
  bool ended_ = false;
};

class ThreadTransport final : public mpi::Transport {
 public:
  ThreadTransport(TeamHub& hub, Mailbox& mailbox, int rank) : hub_(hub), team_(hub, rank), mailbox_(mailbox) {}

  [[nodiscard]] int rank() const override { return team_.rank(); }
  [[nodiscard]] int size() const override { return team_.size(); }

  void all_gather(float* buffer, std::span<const Index> begins) override {
    collective += static_cast<std::size_t>(begins.back()) * sizeof(float);
    team_.all_gather(buffer, begins);
  }
  [[nodiscard]] Ticket start_send(int to, const void* data, std::size_t bytes) override {
    sent += bytes;
    check_apart(data, bytes, false);
    const Ticket ticket = mailbox_.start_send(rank(), to, data, bytes);
    under_way_.push_back({ticket, false, data, bytes});
    return ticket;
  }
  [[nodiscard]] Ticket start_receive(int from, void* data, std::size_t bytes) override {
    received += bytes;
    check_apart(data, bytes, true);
    const Ticket ticket = mailbox_.start_receive(from, rank(), data, bytes);
    under_way_.push_back({ticket, true, data, bytes});
    return ticket;
  }
  void wait(Ticket ticket) override {
    mailbox_.wait(ticket);
    std::erase_if(under_way_, [&](const UnderWay& m) { return m.ticket == ticket; });
  }
  void progress() override {}
  void broadcast(void* data, std::size_t bytes, int root) override {
    collective += bytes;
    if (rank() != root) mailbox_.wait(mailbox_.start_receive(root, rank(), data, bytes));
    for (int to = 0; rank() == root && to < size(); ++to)
      if (to != root) mailbox_.wait(mailbox_.start_send(root, to, data, bytes));
  }

  /// Ends what ranks wait for: this one will not send it.
  void end() {
    hub_.end();
    mailbox_.end();
  }

  /// Bytes of this rank so far, as SequencePlan counts them.
  std::size_t sent = 0, received = 0, collective = 0;

 private:
  struct UnderWay {
    Ticket ticket;
    bool receive;
    const void* data;
    std::size_t bytes;
  };

  /// As MPI wants it: nothing is received into what a message under way has.
  void check_apart(const void* data, std::size_t bytes, bool receive) const {
    const auto* const first = static_cast<const std::byte*>(data);
    for (const UnderWay& m : under_way_) {
      const auto* const other = static_cast<const std::byte*>(m.data);
      if ((receive || m.receive) && first < other + m.bytes && other < first + bytes)
        throw std::logic_error("a message is received into memory of another one that is under way");
    }
  }

  TeamHub& hub_;
  ThreadTeam team_;
  Mailbox& mailbox_;
  std::vector<UnderWay> under_way_;
};

/// Runs f(transport) on every rank. Throws what the first rank that failed threw.
template <class F>
void run_transports(int size, const F& f) {
  TeamHub hub(size);
  Mailbox mailbox;
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ThreadTransport transport(hub, mailbox, rank);
      try {
        f(transport);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        transport.end();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  if (writes_before_messages > 0) throw std::logic_error("something was written before the memory of messages");
}

/// The message with which every one of three ranks refuses a call.
template <class F>
std::string message_of_all(const F& f) {
  std::vector<std::string> messages(3);
  run_transports(3, [&](ThreadTransport& transport) {
    try {
      f(transport);
    } catch (const std::invalid_argument& error) {
      messages[static_cast<std::size_t>(transport.rank())] = error.what();
    }
  });
  CHECK(messages[0] == messages[1]);
  CHECK(messages[0] == messages[2]);
  return messages[0];
}

inline void check_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) CHECK_MESSAGE(text.find(word) != std::string::npos, word, " in: ", text);
}

}  // namespace headlane::test
