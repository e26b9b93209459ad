// The ranks of a headlane.mpi.Communicator, and cuts of sequences.
#pragma once

#include "core/call.hpp"

#include <headlane/mpi/sequence_cut.hpp>
#include <headlane/mpi/transport.hpp>

#include <string>
#include <string_view>

namespace headlane::python {

/// Sends and receives by the methods of a Python object, which take addresses: see
/// headlane/mpi/_communicator.py. Called without the GIL.
class PythonTransport final : public mpi::Transport {
 public:
  /// Throws TypeError unless the object has these methods.
  PythonTransport(const Call& call, const char* name, nb::handle object);

  /// A collective call of Python begins, or has thrown the exception that is being handled. If it
  /// has before the ranks compared what they do, the others are told, and all throw; if it has
  /// while they computed, the communicator refuses further calls.
  void begin() { stage_ = Stage::begun; }
  void failed(const Call& call, const char* function);
  /// This rank refuses its arguments: throws on all ranks, unless all of them say the same.
  void refuse(const Call& call, const char* function, const std::string& reason);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void agree(std::string_view what, std::string_view mine) override;
  void abandoned() noexcept override {}  // failed() marks the Python object, which others may share
  void all_gather(float* buffer, std::span<const Index> begins) override;
  [[nodiscard]] Ticket start_send(int to, const void* data, std::size_t bytes) override;
  [[nodiscard]] Ticket start_receive(int from, void* data, std::size_t bytes) override;
  void wait(Ticket ticket) override;
  void progress() override;
  void broadcast(void* data, std::size_t bytes, int root) override;

 private:
  /// Of a call: nothing was compared; the ranks agree, or may; all of them know that they refuse.
  enum class Stage { begun, computing, refused };

  nb::object object_;
  int rank_ = 0, size_ = 1;
  Stage stage_ = Stage::refused;
};

/// Calls body(), which converts the arguments of a collective call and makes it; the call compares
/// before it sends anything else. `function`: its name in the library.
template <class F>
auto on_ranks(const Call& call, Team* team, const char* function, const F& body) {
  if (team == nullptr || team->size() == 1) return body();
  auto& ranks = static_cast<PythonTransport&>(*team);  // Python makes no other team
  ranks.begin();
  try {
    return body();
  } catch (...) {
    ranks.failed(call, function);
    throw;
  }
}

/// The team of a layer or model: an object of the class MpiTeam, which must outlive it; null if
/// None.
mpi::Transport* team_of(const Call& call, nb::handle given);

/// A headlane.mpi.SequenceCut, or anything with its `ranks` and `pieces`.
mpi::SequenceCut cut_of(const Call& call, const char* name, nb::handle given);

}  // namespace headlane::python
