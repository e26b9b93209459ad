// A program with headlane::mpi as an installed package. It runs without mpirun, as one rank.
#include <headlane/mpi/attention.hpp>
#include <headlane/mpi/communicator.hpp>
#include <headlane/mpi/kv_cache.hpp>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  bool right = false;
  {
    headlane::mpi::Communicator ranks;
    const auto cut = headlane::mpi::SequenceCut::contiguous(3, ranks.size());
    const std::vector<float> ones(12, 1.0f);
    std::vector<float> out(12);
    const headlane::View<const float, 4> x(ones.data(), {1, 1, 3, 4});
    headlane::mpi::attention(ranks, x, x, x, {out.data(), {1, 1, 3, 4}}, {.keys = cut});
    const headlane::mpi::KvCache cache(ranks, 1, 4, 4);
    right = ranks.size() == 1 && out == ones && cache.kv_heads() == 1;
  }
  MPI_Finalize();
  std::printf("one rank: %s\n", right ? "right" : "wrong");
  return right ? 0 : 1;
}
