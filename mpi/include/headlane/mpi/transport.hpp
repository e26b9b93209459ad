// Transport: messages between the ranks of a job. headlane::mpi is written on it; Communicator
// (communicator.hpp) is the one over MPI.
#pragma once

#include <headlane/export.h>
#include <headlane/index.hpp>
#include <headlane/team.hpp>

#include <cstddef>
#include <string_view>

namespace headlane::mpi {

/// Ranks that exchange messages. Elements are copied bit by bit: all ranks have the same byte
/// order.
///
/// Threads: one thread at a time uses a transport, the one that MPI allows.
/// Errors: std::runtime_error if a message cannot be sent or received. A rank that throws while
///   others wait for it has to end the job, as a program does whose main() an exception leaves.
///   An exception that not all ranks throw (std::bad_alloc, or one of the transport; not a refusal
///   of arguments) breaks the transport of the rank: messages may be under way, which no function
///   here can take back, and the next call would take them for its own. Every later call of
///   headlane::mpi, and of a layer or model of the team, throws std::runtime_error. The memory of
///   messages under way is never freed.
class HEADLANE_API Transport : public Team {
 public:
  /// A message under way.
  using Ticket = int;

  /// Begins to send `bytes` bytes to another rank. The data must stay as they are until wait().
  /// Messages from one rank to another arrive in the order in which they were started.
  [[nodiscard]] virtual Ticket start_send(int to, const void* data, std::size_t bytes) = 0;
  /// Begins to receive a message of exactly `bytes` bytes.
  [[nodiscard]] virtual Ticket start_receive(int from, void* data, std::size_t bytes) = 0;
  /// Returns when the message was sent or received. Each ticket is waited for once.
  virtual void wait(Ticket ticket) = 0;
  /// Lets messages under way make progress: called now and then during a computation.
  virtual void progress() = 0;
  /// Copies what rank `root` has in data to all ranks. Collective.
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;

  /// As Team::agree, by all_gather(). `what` has to be the same, too.
  void agree(std::string_view what, std::string_view mine) override;

  void abandoned() noexcept override { mark_broken(); }
  /// Called by headlane::mpi when an exception leaves this rank out of step with the others; an
  /// implementation may call it, too.
  void mark_broken() noexcept { broken_ = true; }
  [[nodiscard]] bool is_broken() const noexcept { return broken_; }
  /// Throws std::runtime_error, a message that begins with `what`, if it is broken.
  void require_intact(std::string_view what) const;

 private:
  bool broken_ = false;
};

}  // namespace headlane::mpi
