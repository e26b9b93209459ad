// The messages of one call, and what becomes of them if an exception ends it.
#pragma once

#include "floats.hpp"
#include "together.hpp"

#include <headlane/mpi/transport.hpp>

#include <cstddef>
#include <span>

namespace headlane::mpi::internal {

/// The functions of a Transport, which counts the messages under way.
class Messages {
 public:
  explicit Messages(Transport& transport) : transport_(transport), guard_(&transport) {}

  [[nodiscard]] int rank() const { return transport_.rank(); }
  [[nodiscard]] int size() const { return transport_.size(); }
  [[nodiscard]] Transport::Ticket start_send(int to, const void* data, std::size_t bytes) {
    ++under_way_;
    return transport_.start_send(to, data, bytes);
  }
  [[nodiscard]] Transport::Ticket start_receive(int from, void* data, std::size_t bytes) {
    ++under_way_;
    return transport_.start_receive(from, data, bytes);
  }
  void wait(Transport::Ticket ticket) {
    transport_.wait(ticket);
    --under_way_;
  }
  void progress() { transport_.progress(); }
  void broadcast(void* data, std::size_t bytes, int root) {
    ++under_way_;
    transport_.broadcast(data, bytes, root);
    --under_way_;
  }
  void all_gather(float* buffer, std::span<const Index> begins) {
    ++under_way_;
    transport_.all_gather(buffer, begins);
    --under_way_;
  }

  /// The number of messages that were started and not yet waited for.
  [[nodiscard]] std::size_t under_way() const { return under_way_; }

 private:
  Transport& transport_;
  StepGuard guard_;
  std::size_t under_way_ = 0;
};

/// Memory of messages of a call. If an exception leaves some of them under way, which can neither
/// be completed, since other ranks may have failed, nor cancelled by every transport, the memory is
/// never freed.
class MessageMemory {
 public:
  MessageMemory(const Messages& messages, Index count)
      : messages_(&messages), floats_(static_cast<std::size_t>(count)) {}
  ~MessageMemory() {
    if (messages_->under_way() > 0) floats_.abandon();
  }
  MessageMemory(MessageMemory&&) noexcept = default;
  MessageMemory& operator=(MessageMemory&&) = delete;

  [[nodiscard]] float* data() const { return floats_.data(); }

 private:
  const Messages* messages_;
  Floats floats_;
};

}  // namespace headlane::mpi::internal
