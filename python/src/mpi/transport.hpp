// The ranks of a headlane.mpi.Communicator, and cuts of sequences.
#pragma once

#include "core/call.hpp"

#include <headlane/mpi/sequence_cut.hpp>
#include <headlane/mpi/transport.hpp>

namespace headlane::python {

/// Sends and receives by the methods of a Python object, which take addresses: see
/// headlane/mpi/_communicator.py. Called without the GIL.
class PythonTransport final : public mpi::Transport {
 public:
  /// Throws TypeError unless the object has these methods.
  PythonTransport(const Call& call, const char* name, nb::handle object);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_gather(float* buffer, std::span<const Index> begins) override;
  [[nodiscard]] Ticket start_send(int to, const void* data, std::size_t bytes) override;
  [[nodiscard]] Ticket start_receive(int from, void* data, std::size_t bytes) override;
  void wait(Ticket ticket) override;
  void progress() override;
  void broadcast(void* data, std::size_t bytes, int root) override;

 private:
  nb::object object_;
  int rank_ = 0, size_ = 1;
};

/// The team of a layer or model: an object of the class MpiTeam, which must outlive it; null if
/// None.
mpi::Transport* team_of(const Call& call, nb::handle given);

/// A headlane.mpi.SequenceCut, or anything with its `ranks` and `pieces`.
mpi::SequenceCut cut_of(const Call& call, const char* name, nb::handle given);

}  // namespace headlane::python
