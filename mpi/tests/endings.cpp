// A program of several ranks, run by mpirun: how jobs begin and end that are not as they should be.
//   level   a Communicator before MPI is initialised, without threads, and after MPI is finalised
//   kinds   communicators that are refused, and a message that is too long
//   killed  rank 1 dies by SIGKILL while keys are under way; mpirun ends the others and says why
//   thrown  rank 1 throws there, its next call is refused, and it ends the job
#include <headlane/mpi/attention.hpp>
#include <headlane/mpi/communicator.hpp>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using headlane::Index;
using headlane::View;
using headlane::mpi::Communicator;

bool refuses(const std::string& words, MPI_Comm comm = MPI_COMM_WORLD) {
  std::string message = "it is not refused";
  try {
    const Communicator ranks(comm);
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  if (message.find(words) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' is not in: %s\n", words.c_str(), message.c_str());
  return false;
}

int level(int argc, char** argv) {
  int given = 0;
  bool right = refuses("MPI is not initialised: call MPI_Init_thread first");
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &given);
  // An MPI may give more than was asked for.
  if (given == MPI_THREAD_SINGLE) right = refuses("MPI was initialised for programs without threads") && right;
  else std::fprintf(stderr, "this MPI has no MPI_THREAD_SINGLE\n");
  MPI_Finalize();
  right = refuses("MPI was finalised") && right;
  return right ? 0 : 1;
}

/// Two ranks: communicators that are refused, and a message that is longer than expected.
int kinds(int argc, char** argv) {
  int given = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm own = MPI_COMM_NULL, both = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &own);
  MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - rank, 0, &both);
  bool right = refuses("MPI_COMM_NULL", MPI_COMM_NULL);
  right = refuses("connects two groups", both) && right;
  MPI_Comm_free(&both);
  MPI_Comm_free(&own);
  {
    Communicator ranks;
    std::vector<char> data(100);
    try {
      ranks.wait(rank == 0 ? ranks.start_send(1, data.data(), 100) : ranks.start_receive(0, data.data(), 50));
      right = rank == 0 && right;
    } catch (const std::runtime_error& error) {
      const std::string message = error.what();
      right = rank == 1 && message.starts_with("mpi::Communicator: MPI_Wait: ") &&
              message.find("IN_STATUS") == std::string::npos && right;
    }
  }
  MPI_Finalize();
  return right ? 0 : 1;
}

/// Rank 1 is killed, or throws, when it waits for the third time.
class Ending final : public headlane::mpi::Transport {
 public:
  explicit Ending(bool kills) : kills_(kills) {}
  [[nodiscard]] int rank() const override { return ranks_.rank(); }
  [[nodiscard]] int size() const override { return ranks_.size(); }
  void all_gather(float* buffer, std::span<const Index> begins) override { ranks_.all_gather(buffer, begins); }
  [[nodiscard]] Ticket start_send(int to, const void* data, std::size_t bytes) override {
    return ranks_.start_send(to, data, bytes);
  }
  [[nodiscard]] Ticket start_receive(int from, void* data, std::size_t bytes) override {
    return ranks_.start_receive(from, data, bytes);
  }
  void wait(Ticket ticket) override {
    if (rank() == 1 && ++waited_ == 3) {
      if (kills_) std::raise(SIGKILL);
      throw std::runtime_error("something is wrong");
    }
    ranks_.wait(ticket);
  }
  void progress() override { ranks_.progress(); }
  void broadcast(void* data, std::size_t bytes, int root) override { ranks_.broadcast(data, bytes, root); }

 private:
  Communicator ranks_;
  bool kills_;
  int waited_ = 0;
};

void attend(Ending& ranks) {
  const auto cut = headlane::mpi::SequenceCut::cyclic(16384, ranks.size());
  const Index own = cut.length_of(ranks.rank());
  std::vector<float> in(static_cast<std::size_t>(own * 512)), out(in.size());
  const View<const float, 4> x(in.data(), {1, 8, own, 64});
  headlane::mpi::attention(ranks, x, x, x, {out.data(), x.shape}, {.keys = cut, .queries = cut}, {.num_threads = 1});
}

int end(int argc, char** argv, bool kills) {
  int given = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
  Ending ranks(kills);
  for (int call = 0; call < 2; ++call) {
    try {
      attend(ranks);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "call %d of rank %d: %s\n", call, ranks.rank(), error.what());
    }
  }
  MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "level") return level(argc, argv);
  if (what == "kinds") return kinds(argc, argv);
  if (what == "killed" || what == "thrown") return end(argc, argv, what == "killed");
  std::fprintf(stderr, "usage: mpi_endings level|kinds|killed|thrown\n");
  return 2;
}
