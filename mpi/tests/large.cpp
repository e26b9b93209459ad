// Long sequences over many ranks: mpi_large prints hashes of what attention returns, which must not
// depend on the number of ranks, their instruction sets and threads. `./dev large` compares them.
// mpi_large --isas: the instruction sets that this machine has.
//
//   prefill  causal self-attention over 65,536 positions, 2 heads of 64 on 1
//   decode   a query over caches of 1,048,576 keys, in float32, bfloat16 and int8
#include <headlane/mpi/attention.hpp>
#include <headlane/mpi/communicator.hpp>
#include <headlane/mpi/kv_cache.hpp>
#include <headlane/runtime.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

using headlane::DType;
using headlane::Index;
using headlane::View;
using headlane::mpi::Communicator;
using headlane::mpi::SequenceCut;

constexpr Index dim = 64, q_heads = 2;

std::uint64_t mixed(std::uint64_t x) {  // SplitMix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The numbers of a tensor at one position, in [-1, 1): the same, whichever rank has it.
void fill(float* row, Index count, Index position, std::uint64_t tensor) {
  std::uint64_t state = mixed(static_cast<std::uint64_t>(position) << 3 | tensor);
  for (Index i = 0; i < count; ++i) {
    state = mixed(state);
    row[i] = static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31f;
  }
}

/// The rows [positions, floats] that a rank has.
std::vector<float> rows_of(const SequenceCut& cut, int rank, Index floats, std::uint64_t tensor) {
  std::vector<float> rows(static_cast<std::size_t>(cut.length_of(rank) * floats));
  for (const auto& piece : cut.pieces())
    for (Index i = 0; piece.rank == rank && i < piece.size(); ++i)
      fill(rows.data() + (piece.local + i) * floats, floats, piece.begin + i, tensor);
  return rows;
}

std::uint64_t hash_of(const float* row, Index count, Index position) {
  std::uint64_t hash = mixed(static_cast<std::uint64_t>(position));
  for (Index i = 0; i < count; ++i) hash = mixed(hash ^ std::bit_cast<std::uint32_t>(row[i]));
  return hash;
}

/// The sum over all ranks.
std::uint64_t total(Communicator& ranks, std::uint64_t mine) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks.size()));
  std::vector<Index> begins;
  for (Index r = 0; r <= ranks.size(); ++r) begins.push_back(2 * r);  // floats
  all[static_cast<std::size_t>(ranks.rank())] = mine;
  ranks.all_gather(reinterpret_cast<float*>(all.data()), begins);
  std::uint64_t sum = 0;
  for (const std::uint64_t one : all) sum += one;
  return sum;
}

void print(const Communicator& ranks, const char* what, std::uint64_t hash) {
  if (ranks.rank() == 0) std::printf("%s %016llx\n", what, static_cast<unsigned long long>(hash));
}

void prefill(Communicator& ranks) {
  const SequenceCut cut = SequenceCut::cyclic(65536, ranks.size());
  const int me = ranks.rank();
  const Index own = cut.length_of(me);
  const std::vector<float> q = rows_of(cut, me, q_heads * dim, 1), k = rows_of(cut, me, dim, 2);
  const std::vector<float> v = rows_of(cut, me, dim, 3);
  std::vector<float> out(q.size());
  const auto shaped = [&](auto* data, Index heads) {
    return View<std::remove_pointer_t<decltype(data)>, 4>(data, {1, heads, own, dim}, {0, dim, heads * dim, 1});
  };
  headlane::mpi::attention(ranks, shaped(q.data(), q_heads), shaped(k.data(), 1), shaped(v.data(), 1),
                           shaped(out.data(), q_heads), {.keys = cut, .queries = cut}, {.causal = true});
  std::uint64_t hash = 0;
  for (const auto& piece : cut.pieces())
    for (Index i = 0; piece.rank == me && i < piece.size(); ++i)
      hash += hash_of(out.data() + (piece.local + i) * q_heads * dim, q_heads * dim, piece.begin + i);
  print(ranks, "prefill", total(ranks, hash));
}

void decode(Communicator& ranks, DType type, const char* name) {
  constexpr Index length = 1 << 20;
  const SequenceCut cut = SequenceCut::contiguous(length, ranks.size());
  headlane::mpi::KvCache cache(ranks, 1, dim, dim, {.page_size = 512, .type = type});
  const Index sequence = cache.add();
  {
    const std::vector<float> k = rows_of(cut, ranks.rank(), dim, 4), v = rows_of(cut, ranks.rank(), dim, 5);
    const Index own = cut.length_of(ranks.rank());
    cache.append(sequence, {k.data(), {1, own, dim}}, {v.data(), {1, own, dim}}, cut);
  }
  std::vector<float> q(q_heads * dim), out(q.size());
  fill(q.data(), q_heads * dim, 0, 6);
  for (float& x : q) x *= 8;  // scores that differ
  headlane::mpi::attention(ranks, {q.data(), {1, q_heads, 1, dim}}, cache, {&sequence, 1},
                           {out.data(), {1, q_heads, 1, dim}});
  const std::uint64_t hash = hash_of(out.data(), q_heads * dim, 0);
  if (total(ranks, hash) != hash * static_cast<std::uint64_t>(ranks.size()))
    throw std::runtime_error("the ranks have different results");
  print(ranks, name, hash);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--isas") {
    for (const std::string_view isa : headlane::available_isas()) std::printf("%s\n", std::string(isa).c_str());
    return 0;
  }
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  try {
    Communicator ranks;
    prefill(ranks);
    decode(ranks, DType::float32, "decode");
    decode(ranks, DType::bfloat16, "decode_bfloat16");
    decode(ranks, DType::int8, "decode_int8");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_large: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
