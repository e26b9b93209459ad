// A program of several ranks, run by mpirun: attention and caches over MPI have the bits of one
// process, and send the bytes that the plan tells, counted by the profiling interface of MPI.
// mpi_ranks [--quick]: with fewer calls. A rank that finds a fault says so and ends the job.
#define DOCTEST_CONFIG_IMPLEMENT  // for what the headers of the tests use
#include "cache_case.hpp"
#include "guarded_messages.hpp"
#include "sequence_case.hpp"

#include <headlane/mpi/communicator.hpp>
#include <headlane/runtime.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>

namespace {

/// Bytes of this rank, as MPI was asked to move them.
struct Counted {
  std::size_t sent = 0, received = 0, collective = 0;
} counted;

std::size_t size_of(MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return static_cast<std::size_t>(size);
}

}  // namespace

// The profiling interface: MPI's own functions are PMPI_….
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): each MPI has its own names
extern "C" {
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  counted.sent += static_cast<std::size_t>(count) * size_of(type);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  counted.received += static_cast<std::size_t>(count) * size_of(type);
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  counted.collective += static_cast<std::size_t>(count) * size_of(type);
  return PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Allgatherv(const void* from, int count, MPI_Datatype type, void* to, const int* counts, const int* offsets,
                   MPI_Datatype to_type, MPI_Comm comm) {
  int ranks = 1;
  MPI_Comm_size(comm, &ranks);
  for (int r = 0; r < ranks; ++r) counted.collective += static_cast<std::size_t>(counts[r]) * size_of(to_type);
  return PMPI_Allgatherv(from, count, type, to, counts, offsets, to_type, comm);
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

namespace headlane::test {
namespace {

using mpi::Communicator;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Random calls of attention; the bytes of each are those of the plan.
void attention_of_random_calls(Communicator& ranks, bool quick) {
  Random random(11);
  for (int i = 0; i < (quick ? 6 : 25); ++i) {
    AttentionSizes s{.batch = random.integer(1, 2),
                     .q_heads = 4,
                     .kv_heads = random.pick(std::vector<Index>{1, 4}),
                     .q_length = random.integer(1, 40),
                     .kv_length = random.integer(0, 6000),
                     .head_dim = 16,
                     .value_dim = random.pick(std::vector<Index>{16, 33})};
    if (i % 3 == 0) s.q_length = s.kv_length = random.integer(1, 4000);
    RandomOptions given(s);
    AttentionOptions options = given.draw(random, {.one_in = 4});
    options.num_threads = 0;
    const SequenceProblem problem(s, static_cast<std::uint64_t>(i), options);
    mpi::AttentionCut cut{.keys = random_cut(s.kv_length, ranks.size(), random)};
    if (i % 2 == 0) cut.queries = random_cut(s.q_length, ranks.size(), random);
    counted = {};
    check_ranks(ranks, problem, cut, 1);
    if (ranks.size() == 1 || s.kv_length == 0) continue;
    const auto own = [&](View<const float, 4> view, const std::optional<mpi::SequenceCut>& by) {
      if (by) view.shape[2] = by->length_of(ranks.rank());
      return view;
    };
    options.lse = problem.tensors.lse.view;
    const AttentionTensors& t = problem.tensors;
    const mpi::SequencePlan plan = mpi::plan_attention(ranks.rank(), own(t.q.view, cut.queries),
                                                       own(t.k.view, cut.keys), own(t.v.view, cut.keys), cut, options);
    require(counted.sent == plan.bytes_sent, problem.text + ": bytes sent");
    require(counted.received == plan.bytes_received, problem.text + ": bytes received");
    require(counted.collective == plan.bytes_collective + 16 * static_cast<std::size_t>(ranks.size()),
            problem.text + ": bytes of collective calls");
  }
}

void caches(Communicator& ranks, bool quick) {
  for (std::uint64_t seed = 0; seed < (quick ? 1 : 5); ++seed) check_cache(ranks, 31 * seed, 12);
}

/// Decoding sends what the header of the cache says.
void bytes_of_caches(Communicator& ranks, bool /*quick*/) {
  Random random(5);
  const Index heads = 4, dim = 8, value_dim = 16;
  mpi::KvCache cache(ranks, 2, dim, value_dim);
  for (const Index keys : {1, 700, 2048, 5000}) {
    const Index sequence = cache.add();
    const Tensor<3> k = random_tensor<3>({2, keys, dim}, random), v = random_tensor<3>({2, keys, value_dim}, random);
    cache.append(sequence, k.view, v.view);
    cache.append(sequence, k.view, v.view);
  }
  for (const Index queries : {1, 3})
    for (const bool with_lse : {false, true}) {
      const std::vector<Index> sequences{0, 1, 2, 3};
      const Tensor<4> q = random_tensor<4>({4, heads, queries, dim}, random), out({4, heads, queries, value_dim});
      const Tensor<3> lse({4, heads, queries});
      std::size_t partials_sent = 0, partials_received = 0;
      for (const Index sequence : sequences) {
        const mpi::SequenceCut cut = cache.cut(sequence);
        for (std::size_t i = 1; i < cut.pieces().size(); ++i) {
          partials_sent += cut.pieces()[i - 1].rank == ranks.rank() ? 1 : 0;
          partials_received += cut.pieces()[i].rank == ranks.rank() ? 1 : 0;
        }
      }
      counted = {};
      mpi::attention(ranks, q.view, cache, sequences, out.view, {.lse = with_lse ? lse.view : View<float, 3>()});
      const auto bytes = [&](Index floats) {
        return static_cast<std::size_t>(heads * queries * floats) * sizeof(float);
      };
      require(counted.sent == partials_sent * bytes(value_dim + 2), "bytes sent over a cache");
      require(counted.received == partials_received * bytes(value_dim + 2), "bytes received over a cache");
      require(counted.collective ==
                  bytes(4 * (value_dim + (with_lse ? 1 : 0))) + 16 * static_cast<std::size_t>(ranks.size()),
              "bytes of collective calls over a cache");
    }
}

void messages_of_every_size(Communicator& ranks, bool /*quick*/) {
  if (ranks.size() == 1) return;
  const int right = (ranks.rank() + 1) % ranks.size(), left = (ranks.rank() + ranks.size() - 1) % ranks.size();
  for (const std::size_t bytes : {0u, 1u, 5000u, 3000000u}) {
    std::vector<unsigned char> sent(bytes), received(bytes), from_root(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      sent[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(ranks.rank()));
    if (ranks.rank() == 1) from_root = sent;
    const auto receive = ranks.start_receive(left, received.data(), bytes);
    const auto send = ranks.start_send(right, sent.data(), bytes);
    ranks.progress();
    ranks.wait(receive);
    ranks.wait(send);
    ranks.broadcast(from_root.data(), bytes, 1);
    for (std::size_t i = 0; i < bytes; ++i) {
      require(received[i] == static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(left)), "a byte differs");
      require(from_root[i] == static_cast<unsigned char>(i * 7 + 1), "a broadcast byte differs");
    }
  }
}

void ranks_that_differ(Communicator& ranks, bool /*quick*/) {
  std::string message;
  try {
    ranks.agree("test", ranks.rank() == 0 ? "one thing" : "another thing");
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  if (ranks.size() == 1) return require(message.empty(), "one rank differs from itself");
  require(message.find("rank 0 has one thing") != std::string::npos, "it says: " + message);
  require(message.find("another thing") != std::string::npos, "it says: " + message);
}

void run(bool quick) {
  const std::pair<const char*, std::function<void(Communicator&, bool)>> tests[] = {
      {"attention", attention_of_random_calls}, {"caches", caches},
      {"bytes of caches", bytes_of_caches},     {"messages", messages_of_every_size},
      {"ranks that differ", ranks_that_differ},
  };
  Communicator ranks;
  for (const auto& [name, test] : tests) {
    try {
      test(ranks, quick);
      require(writes_before_messages == 0, "something was written before the memory of messages");
    } catch (const std::exception& error) {
      // Other ranks may wait for this one.
      std::fprintf(stderr, "rank %d of %d, %s, isa %s: %s\n", ranks.rank(), ranks.size(), name,
                   std::string(isa()).c_str(), error.what());
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (ranks.rank() == 0) std::printf("%s: passed on %d ranks\n", name, ranks.size());
  }
}

}  // namespace
}  // namespace headlane::test

// mpi_ranks [--quick [ISA]]: this instruction set, if the CPU has it.
int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  for (const std::string_view isa : headlane::available_isas())
    if (argc > 2 && isa == argv[2]) headlane::set_isa(isa);
  headlane::test::run(argc > 1 && std::string(argv[1]) == "--quick");
  MPI_Finalize();
  return 0;
}
