// Communicator: a Transport over MPI.
#pragma once

#include <headlane/export.h>
#include <headlane/mpi/transport.hpp>

#include <cstddef>
#include <memory>
#include <mpi.h>
#include <span>

namespace headlane::mpi {

/// The ranks of an MPI communicator, which is duplicated: messages of headlane do not meet others.
///
/// Threads: MPI_THREAD_FUNNELED is enough. Only the thread that initialised MPI, on which all calls
///   are made, sends and receives; OpenMP's threads compute.
/// Errors: the constructor throws std::invalid_argument if MPI is not initialised, if it was
///   finalised, if its thread level is MPI_THREAD_SINGLE, for MPI_COMM_NULL and a communicator of
///   two groups, or if the ranks have different versions of the library; an error of MPI is a
///   std::runtime_error with MPI's text and breaks the communicator (Transport), whose functions
///   that send or receive then throw.
class HEADLANE_API Communicator final : public Transport {
 public:
  /// Collective over `comm`. Destroy it before MPI_Finalize.
  explicit Communicator(MPI_Comm comm = MPI_COMM_WORLD);
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  void all_gather(float* buffer, std::span<const Index> begins) override;
  [[nodiscard]] Ticket start_send(int to, const void* data, std::size_t bytes) override;
  [[nodiscard]] Ticket start_receive(int from, void* data, std::size_t bytes) override;
  void wait(Ticket ticket) override;
  void progress() override;
  void broadcast(void* data, std::size_t bytes, int root) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headlane::mpi
