#include "attention/plan.hpp"

#include "attention/visible_keys.hpp"
#include "core/check.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"

#include <algorithm>

namespace headlane::internal {
namespace {

using kernels::block_size;
using kernels::panel_columns;

/// Packed keys and values in work at a time, unless one kv head alone takes more.
constexpr Index most_packed = Index{32} << 20 >> 2;  // 32 MiB in floats
/// A kv head of at most so much is packed by the task that uses it, into its own L2; a larger one by all threads.
constexpr Index own_packed = Index{1} << 20 >> 2;  // 1 MiB in floats
/// Values that no more rows see are read where they stand: too few uses pay for no packing. With rows side by side that goes well for
/// longer (8 heads of 64 × 64: 4 %, of 2048 × 64: -1 %).
constexpr Index most_direct_rows = 24, most_direct_rows_side_by_side = 256;
/// The next kv head is fetched ahead if it does not displace the present one, and all of them do not fit into the L2 anyway (Zen 5: 64 × 8
/// heads of 32 × 64 60 to 100 GFLOP/s; 8 heads of 64 × 64, which are there, 176 to 168).
constexpr Index most_fetched = Index{256} << 10 >> 2, least_fetched = Index{1} << 20 >> 2;  // 256 KiB, 1 MiB in floats
/// Tasks for each thread, so that the last ones end at about the same time.
constexpr Index tasks_of_thread = 4;

/// Behind these no query sees a key.
Index visible(const AttentionProblem& p, Index keys, Index queries) {
  if (p.keys.cache != nullptr || p.given.causal_offsets) return keys;
  return keys_at(p, bounded_offset(p.given.causal_offset) + queries - 1, keys).end;
}

/// A page, in floats: parts of the memory start on one.
Index whole_pages(Index floats) { return round_up(floats, 1024); }

}  // namespace

AttentionCut::AttentionCut(const AttentionProblem& p) {
  const View<const float, 4>&k = p.keys.k, &v = p.keys.v;
  const Index group = group_of(p), pairs = pairs_of(p);
  const Index queries =
      std::max<Index>(longest_of(p.given.query_starts, p.q.shape[2]), 1);  // of an element: all may be empty
  longest = visible(p, longest_of(p.given.key_starts, k.shape[2]), queries);
  blocks = ceil_div(longest, block_size);
  value_width = round_up(v.shape[3], panel_columns);
  heads_together = queries == 1 && group > 1;

  const bool values_direct = v.strides[3] == 1 && v.shape[3] % kernels::lanes == 0;
  const bool few = heads_together ? group <= p.kernel.tile_rows : group == 1 && queries <= p.kernel.tile_rows;
  const Index longest_block = std::min(block_size, round_up(longest, panel_columns));
  key_block = longest_block * k.shape[3];
  const bool side_by_side = v.strides[2] == v.shape[3];
  const Index uses = std::min(queries, p.left + p.right + 1) * group;  // rows that see a value
  const bool few_uses = uses <= (side_by_side ? most_direct_rows_side_by_side : most_direct_rows);
  value_block = values_direct && few_uses ? 0 : longest_block * value_width;
  at_once = key_parts = 1;
  rows_of_task = std::min(heads_together ? group : queries, most_rows);
  if (p.keys.cache != nullptr || (few && values_direct && k.strides[3] == 1 && k.strides[2] != 0)) {
    way = Way::in_place;
    key_block = value_block = 0;
  } else {
    const bool balanced = p.threads == 1 || pairs % p.threads == 0 || pairs >= tasks_of_thread * p.threads;
    way = p.threads == 1 || (balanced && packed() <= own_packed) ? Way::by_head : Way::by_rows;
  }
  if (way == Way::by_rows) at_once = std::clamp<Index>(most_packed / std::max<Index>(packed(), 1), 1, pairs);
  if (way != Way::by_head && !heads_together) {
    const Index rows = (way == Way::by_rows ? at_once : pairs) * group * queries;
    rows_of_task = std::min(rows_of_task, round_up(ceil_div(rows, tasks_of_thread * p.threads), p.kernel.tile_rows));
  }
  parts = heads_together ? ceil_div(group, rows_of_task) : ceil_div(queries, rows_of_task);
  tasks = way == Way::by_head ? pairs : pairs * parts * (heads_together ? 1 : group);
  if (way == Way::in_place && tasks < tasks_of_thread * p.threads && tasks % p.threads != 0)
    key_parts = std::clamp<Index>(ceil_div(tasks_of_thread * p.threads, tasks), 1, std::max<Index>(blocks, 1));
  tasks *= key_parts;
  const double inputs = static_cast<double>(pairs) * static_cast<double>(group * queries * k.shape[3]) +
                        static_cast<double>(pairs) * static_cast<double>(longest * (k.shape[3] + v.shape[3]));
  fetches = way == Way::by_head && packed() <= most_fetched && inputs > static_cast<double>(least_fetched);
}

AttentionMemory::AttentionMemory(const AttentionProblem& p, const AttentionCut& cut) : p_(p) {
  using Way = AttentionCut::Way;
  const bool one_pass = cut.parts == 1 && (cut.heads_together || group_of(p) == 1);
  q_ = whole_pages(cut.rows_of_task * kernels::row_stride);
  scores_ = whole_pages(kernels::max_tile_rows * kernels::row_stride);
  state_ = whole_pages(cut.part());
  per_row_ = whole_pages(2 * most_rows);
  const bool relative = p.given.relative_bias.table.data != nullptr;
  distances_ = relative ? whole_pages(relative_floats(most_rows, cut.heads_together ? cut.rows_of_task : 1)) : 0;
  turned_ = cut.way == Way::in_place && p.keys.cache == nullptr ? whole_pages(kernels::turned_keys * p.q.shape[3]) : 0;
  packed_ = cut.way != Way::by_head ? 0 : whole_pages(one_pass ? cut.key_block + cut.value_block : cut.packed());
  shared_floats_ = cut.way == Way::by_rows ? whole_pages(cut.at_once * cut.packed())
                   : cut.key_parts > 1     ? whole_pages(cut.tasks / cut.key_parts * cut.blocks * cut.part())
                                           : 0;
}

Index AttentionMemory::thread_floats() const {
  return q_ + scores_ + state_ + per_row_ + distances_ + turned_ + packed_;
}

std::size_t AttentionMemory::bytes() const {
  constexpr Index line = 16;  // floats, to begin with one
  return static_cast<std::size_t>(shared_floats_ + p_.threads * thread_floats() + line) * sizeof(float);
}

void AttentionMemory::open(const char* function) {
  const std::span<std::byte> given = p_.given.workspace;
  if (given.data() != nullptr) {
    require(given.size() >= bytes(), function, ": workspace has ", static_cast<Index>(given.size()), " bytes, ",
            static_cast<Index>(bytes()), " are needed with ", Index{p_.threads}, " threads");
    const auto address = reinterpret_cast<std::uintptr_t>(given.data());
    given_ = reinterpret_cast<float*>(given.data() + (64 - address % 64) % 64);
    shared_ = given_;
  } else if (shared_floats_ > 0) {
    shared_ = scratch(Purpose::shared, shared_floats_);
  }
}

AttentionBuffers AttentionMemory::of_thread(int thread) const {
  float* at =
      given_ == nullptr ? scratch(Purpose::rows, thread_floats()) : given_ + shared_floats_ + thread * thread_floats();
  const auto next = [&](Index floats) {
    float* here = at;
    at += floats;
    return here;
  };
  AttentionBuffers b{};
  b.q = next(q_);
  b.scores = next(scores_);
  b.state = next(state_);
  b.per_row = next(per_row_);
  b.distances = next(distances_);
  b.turned = next(turned_);
  b.packed = next(packed_);
  return b;
}

}  // namespace headlane::internal
