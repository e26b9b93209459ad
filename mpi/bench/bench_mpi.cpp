// Times headlane::mpi: bench_mpi CASE LENGTH [SECONDS], on any number of ranks; rank 0 prints one
// line of JSON. The driver is `./dev peers mpi`.
//
//   cyclic   causal self-attention, 8 heads of 64, pieces that go to the ranks in turn
//   zigzag   the same, with two pieces for each rank, one from either end
//   whole    the same, not causal, cut contiguously
//   decode   one query over a cache of LENGTH keys, 8 heads of 64
//   encoder  EncoderLayer of a team, d_model 512, 8 heads, d_ff 2048, 16 sequences of LENGTH tokens
#include <headlane/headlane.hpp>
#include <headlane/mpi/attention.hpp>
#include <headlane/mpi/communicator.hpp>
#include <headlane/mpi/kv_cache.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using headlane::Index;
using headlane::View;
using headlane::mpi::Communicator;
using headlane::mpi::SequenceCut;

constexpr Index heads = 8, dim = 64;

/// Numbers in [-1, 1), the same on every rank for the same position.
std::vector<float> numbers(Index count, std::uint64_t seed) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& x : result) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x = static_cast<float>(static_cast<std::int32_t>(seed >> 32)) * 0x1p-31f;
  }
  return result;
}

View<const float, 4> by_head(const std::vector<float>& rows, Index length) {
  return {rows.data(), {1, heads, length, dim}, {0, dim, heads * dim, 1}};
}

struct Timed {
  std::function<void()> call;
  double work;  // operations or bytes of all ranks together
  std::string unit;
};

SequenceCut zigzag(Index length, int ranks) {
  const Index blocks = (length + 511) / 512, count = 2 * Index{ranks};
  std::vector<headlane::mpi::SequencePiece> pieces;
  for (Index i = 0; i < count; ++i)
    pieces.push_back({.rank = static_cast<int>(i < ranks ? i : count - 1 - i),
                      .begin = std::min(length, blocks * i / count * 512),
                      .end = std::min(length, blocks * (i + 1) / count * 512)});
  return {ranks, std::move(pieces)};
}

Timed attention_case(Communicator& ranks, Index length, const std::string& name) {
  const bool causal = name != "whole";
  const SequenceCut cut = name == "zigzag" ? zigzag(length, ranks.size())
                          : causal         ? SequenceCut::cyclic(length, ranks.size())
                                           : SequenceCut::contiguous(length, ranks.size());
  const Index own = cut.length_of(ranks.rank());
  auto q = numbers(own * heads * dim, 1), k = numbers(own * heads * dim, 2), v = numbers(own * heads * dim, 3);
  std::vector<float> out(q.size());
  const double pairs = static_cast<double>(length) * static_cast<double>(length) * (causal ? 0.5 : 1.0);
  return {[=, &ranks]() mutable {
            const View<float, 4> to(out.data(), {1, heads, own, dim}, {0, dim, heads * dim, 1});
            headlane::mpi::attention(ranks, by_head(q, own), by_head(k, own), by_head(v, own), to,
                                     {.keys = cut, .queries = cut}, {.causal = causal});
          },
          4.0 * pairs * static_cast<double>(heads * dim), "flop"};
}

Timed decode_case(Communicator& ranks, Index length) {
  auto cache =
      std::make_shared<headlane::mpi::KvCache>(ranks, heads, dim, dim, headlane::KvCacheOptions{.page_size = 512});
  const Index sequence = cache->add();
  constexpr Index chunk = 1 << 16;
  const SequenceCut cut = SequenceCut::contiguous(length, ranks.size());
  // Each rank appends its own keys, all of them with the same numbers.
  const Index own = cut.length_of(ranks.rank());
  const std::vector<float> k = numbers(std::min(own, chunk) * heads * dim, 2);
  std::vector<float> all;
  for (Index at = 0; at < own; at += chunk)
    all.insert(all.end(), k.begin(), k.begin() + std::min(chunk, own - at) * heads * dim);
  const View<const float, 3> keys(all.data(), {heads, own, dim}, {dim, heads * dim, 1});
  cache->append(sequence, keys, keys, cut);
  auto q = numbers(heads * dim, 4);
  std::vector<float> out(q.size());
  return {[=, &ranks]() mutable {
            const View<const float, 4> from(q.data(), {1, heads, 1, dim});
            headlane::mpi::attention(ranks, from, *cache, {&sequence, 1}, {out.data(), {1, heads, 1, dim}});
          },
          static_cast<double>(length * heads * dim) * 2 * sizeof(float), "byte"};
}

/// An encoder layer of d_model 512 whose heads and columns are cut over the ranks, on 16 sequences
/// of `length` tokens.
Timed encoder_case(Communicator& ranks, Index length) {
  constexpr Index d = 512, hidden = 2048, batch = 16;
  const std::vector<std::pair<const char*, std::vector<Index>>> shapes{{"self_attn.in_proj_weight", {3 * d, d}},
                                                                       {"self_attn.out_proj.weight", {d, d}},
                                                                       {"linear1.weight", {hidden, d}},
                                                                       {"linear2.weight", {d, hidden}},
                                                                       {"norm1.weight", {d}},
                                                                       {"norm2.weight", {d}}};
  headlane::StateDict state;
  std::vector<std::vector<float>> tensors;
  for (const auto& [name, shape] : shapes) {
    const Index count = shape.size() == 2 ? shape[0] * shape[1] : shape[0];
    float* data = tensors.emplace_back(numbers(count, tensors.size() + 1)).data();
    if (shape.size() == 2) state.emplace(name, View<const float, 2>(data, {shape[0], shape[1]}));
    else state.emplace(name, View<const float, 1>(data, {d}));
  }
  auto layer = std::make_shared<headlane::EncoderLayer>(
      state, "", headlane::TransformerLayerOptions{.attention = {.heads = heads}, .team = &ranks});
  auto x = numbers(batch * length * d, 9);
  std::vector<float> y(x.size());
  const auto tokens = static_cast<double>(batch * length);
  const double products = 2.0 * tokens * static_cast<double>(4 * d * d + 2 * d * hidden);
  return {[=]() mutable {
            layer->forward(View<const float, 3>(x.data(), {batch, length, d}), {y.data(), {batch, length, d}});
          },
          products + 4.0 * tokens * static_cast<double>(length * d), "flop"};
}

Timed case_of(Communicator& ranks, const std::string& name, Index length) {
  if (name == "decode") return decode_case(ranks, length);
  if (name == "encoder") return encoder_case(ranks, length);
  return attention_case(ranks, length, name);
}

void run(const std::string& name, Index length, double seconds) {
  Communicator ranks;
  const Timed timed = case_of(ranks, name, length);
  std::vector<double> times;
  double total = 0;
  for (int go = 1; go != 0;) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    timed.call();
    MPI_Barrier(MPI_COMM_WORLD);
    const double time = MPI_Wtime() - start;
    if (total > 0 || seconds == 0) times.push_back(time);  // not the first call
    total += time;
    go = (times.size() < 3 || total < seconds) && seconds != 0 ? 1 : 0;
    ranks.broadcast(&go, sizeof go, 0);
  }
  std::sort(times.begin(), times.end());
  if (ranks.rank() != 0) return;
  std::printf(
      "{\"case\": \"%s\", \"length\": %td, \"ranks\": %d, \"threads\": %d, \"isa\": \"%s\", \"calls\": %zu, "
      "\"median\": %.9f, \"least\": %.9f, \"work\": %.0f, \"unit\": \"%s\"}\n",
      name.c_str(), length, ranks.size(), headlane::num_threads(), std::string(headlane::isa()).c_str(), times.size(),
      times[times.size() / 2], times.front(), timed.work, timed.unit.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  try {
    if (argc < 3) throw std::runtime_error("usage: bench_mpi CASE LENGTH [SECONDS]");
    run(argv[1], std::atol(argv[2]), argc > 3 ? std::atof(argv[3]) : 2.0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_mpi: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
