// Simulates products, attention and decoding on more cores than this machine has: the tasks are
// those that the library makes for so many threads, the machine is a model. Prints CSV, which is
// docs/data/scaling.csv; docs/site/scaling.md states the model.
//
// Usage: headlane_scaling GFLOPS GBYTES MICROSECONDS, of one core: the speed of its products, the
// bandwidth it reads memory with, and the cost of a parallel region of two threads.
#include "core/parallel.hpp"
#include "gemm/problem.hpp"

#include <headlane/attention.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <queue>
#include <string>
#include <vector>

namespace {

using headlane::Index;
using headlane::View;

/// A socket: cores, and the most that all of them together read from memory, in bytes per second.
struct Socket {
  int cores;
  double bandwidth;
};
constexpr std::array<Socket, 5> sockets{{{1, 100e9}, {2, 100e9}, {8, 100e9}, {64, 400e9}, {192, 600e9}}};

struct Machine {
  double flops, bandwidth, region;  // of a core, per second; seconds of a region of two threads
};

/// A call of the library, divided for a number of threads.
struct Call {
  std::vector<double> tasks;  // seconds of each on one core
  double work = 0;            // seconds on one core, without what tasks do in addition
  double bytes = 0;           // of the operands
  double bytes_apart = 0;     // that tasks read and write if they share nothing through a cache
  int threads = 1;
};

/// Each core takes the next task of the queue when it has ended one.
double schedule(const std::vector<double>& tasks, int cores) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int i = 0; i < cores; ++i) free.push(0);
  double end = 0;
  for (const double task : tasks) {
    const double done = free.top() + task;
    free.pop();
    free.push(done);
    end = std::max(end, done);
  }
  return end;
}

/// A task of a product takes as long as Partition estimates.
Call gemm(Index m, Index n, Index k, int cores, const Machine& machine) {
  using headlane::internal::Partition;
  constexpr double panel = headlane::internal::kernels::panel_columns;
  const headlane::internal::Work work = headlane::internal::work_of(m, n, k);
  Call call;
  call.work = work.operations / machine.flops;
  call.bytes = work.elements * sizeof(float);
  call.threads = headlane::internal::useful_threads(work.operations, work.elements, cores);
  const Partition partition(m, n, k, 1, 1, call.threads);
  for (Index i = 0; i < partition.count(); ++i) {
    const headlane::internal::Region region = partition.region(i);
    const double panels = std::ceil(static_cast<double>(region.columns) / panel) + Partition::extra_panels;
    const double rows = static_cast<double>(region.rows) + Partition::extra_rows;
    call.tasks.push_back(2 * rows * panels * panel * static_cast<double>(k) / machine.flops);
    call.bytes_apart += headlane::internal::work_of(region.rows, region.columns, k).elements * sizeof(float);
  }
  return call;
}

/// Tasks of attention are alike. One that reads keys in place takes as long as a core reads them.
Call attention(Index batch, Index heads, Index queries, Index keys, int cores, const Machine& machine) {
  constexpr Index dim = 64;
  const View<const float, 4> q(nullptr, {batch, heads, queries, dim}), kv(nullptr, {batch, heads, keys, dim});
  const View<float, 4> out(nullptr, {batch, heads, queries, dim});
  const headlane::AttentionPlan plan = plan_attention(q, kv, kv, out, {.num_threads = cores});
  const double pairs = static_cast<double>(batch * heads * queries) * static_cast<double>(keys);
  const double kv_bytes = 2.0 * static_cast<double>(batch * heads * keys * dim) * sizeof(float);
  const double q_bytes = 2.0 * static_cast<double>(batch * heads * queries * dim) * sizeof(float);
  const double seconds = std::max(4 * pairs * dim / machine.flops, plan.packs_keys ? 0 : kv_bytes / machine.bandwidth);
  const auto tasks = static_cast<double>(plan.tasks), kv_heads = static_cast<double>(batch * heads);
  Call call;
  call.tasks.assign(static_cast<std::size_t>(plan.tasks), seconds / tasks);
  call.work = seconds;
  call.bytes = kv_bytes + q_bytes;
  call.bytes_apart =
      q_bytes + kv_bytes * (plan.key_parts > 1 ? 1 : tasks / kv_heads);  // parts of the keys are distinct
  call.threads = plan.threads;
  return call;
}

/// A region starts and joins its threads in a tree.
double seconds(const Call& call, double bytes, const Socket& socket, const Machine& machine) {
  const double region = call.threads > 1 ? machine.region * std::log2(call.threads) : 0;
  const double memory = bytes / std::min(socket.bandwidth, call.threads * machine.bandwidth);
  return std::max(schedule(call.tasks, call.threads), memory) + region;
}

/// The time, and the share of the socket's limit: of its arithmetic or its bandwidth.
void print(const std::string& name, const Machine& machine, const std::function<Call(int cores)>& make) {
  for (const Socket& socket : sockets) {
    const Call call = make(socket.cores);
    const double bandwidth = std::min(socket.bandwidth, socket.cores * machine.bandwidth);
    const double arithmetic = call.work / socket.cores, memory = call.bytes / bandwidth;
    const double limit = std::max(arithmetic, memory);
    const double time = seconds(call, call.bytes, socket, machine);
    const double apart = seconds(call, call.bytes_apart, socket, machine);
    std::printf("%s,%d,%.4g,%.4g,%.4g,%.4g,%d,%zu,%s,%.4g,%.3f,%.3f\n", name.c_str(), socket.cores, machine.flops / 1e9,
                machine.bandwidth / 1e9, socket.bandwidth / 1e9, machine.region * 1e6, call.threads, call.tasks.size(),
                arithmetic > memory ? "arithmetic" : "memory", time * 1e6, limit / time, limit / apart);
  }
}

}  // namespace

int main(int count, char** words) try {
  if (count != 4) return std::fprintf(stderr, "usage: headlane_scaling GFLOPS GBYTES MICROSECONDS\n"), 2;
  const Machine machine{std::atof(words[1]) * 1e9, std::atof(words[2]) * 1e9, std::atof(words[3]) * 1e-6};
  setenv("HEADLANE_MAX_THREADS", "192", 1);  // NOLINT(concurrency-mt-unsafe): no other thread yet
  std::printf(
      "case,cores,core_gflops,core_gbytes,socket_gbytes,region_microseconds,threads,tasks,limit,microseconds,"
      "share,share_apart\n");
  for (const auto& [m, n, k] : {std::array<Index, 3>{512, 2048, 512}, {2048, 2048, 2048}, {8192, 8192, 8192}})
    print("gemm " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k), machine,
          [=, &machine](int cores) { return gemm(m, n, k, cores, machine); });
  struct Shape {
    const char* name;
    Index batch, heads, queries, keys;
  };
  for (const Shape& s : {Shape{"attention L=512", 1, 8, 512, 512},
                         {"attention L=2048", 1, 8, 2048, 2048},
                         {"attention L=2048 32 heads", 1, 32, 2048, 2048},
                         {"attention 64xL=32", 64, 8, 32, 32},
                         {"decode 8x1024 keys", 8, 8, 1, 1024},
                         {"decode 32768 keys", 1, 8, 1, 32768},
                         {"decode 64x4096 keys", 64, 8, 1, 4096}})
    print(s.name, machine, [&](int cores) { return attention(s.batch, s.heads, s.queries, s.keys, cores, machine); });
  return 0;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
