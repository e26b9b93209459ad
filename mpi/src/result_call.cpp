// Attention in which partial results travel: each rank attends to its own keys, with all queries.
#include "block_results.hpp"
#include "description.hpp"
#include "end_result.hpp"
#include "grid.hpp"
#include "kept_memory.hpp"
#include "result_chain.hpp"
#include "sequence_call.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace headlane::mpi::internal {
namespace {

/// Blocks of keys that the rank has.
Index own_blocks(const SequenceCall& call) {
  Index blocks = 0;
  for (const SequencePiece& piece : call.cut.keys.pieces()) blocks += piece.rank == call.rank ? blocks_of(piece) : 0;
  return blocks;
}

/// The blocks of keys of the rank that has most: so that all ranks divide the queries alike.
Index most_blocks(const SequenceCall& call) {
  Index most = 1;
  std::vector<Index> blocks(static_cast<std::size_t>(call.cut.keys.ranks()), 0);
  for (const SequencePiece& piece : call.cut.keys.pieces())
    most = std::max(most, blocks[static_cast<std::size_t>(piece.rank)] += blocks_of(piece));
  return most;
}

Index rows_at_a_time(const SequenceCall& call) {
  const Index floats = std::max<Index>(most_blocks(call) * call.batch() * call.floats_of_state(), 1);
  return std::max<Index>(partial_floats / floats, 1);
}

/// Queries that are computed at a time, and the rank that has them; -1: all ranks.
struct RowGroup {
  Rows rows;
  int rank;
};

std::vector<RowGroup> groups_of(const SequenceCall& call) {
  std::vector<RowGroup> groups;
  const Index size = rows_at_a_time(call);
  const bool is_cut = call.cut.queries.has_value();
  for (int rank = 0; rank < (is_cut ? call.cut.keys.ranks() : 1); ++rank)
    for (const Rows& rows : call.rows_of(rank))
      for (Index first = 0; first < rows.count; first += size)
        groups.push_back(
            {{rows.position + first, rows.local + first, std::min(size, rows.count - first)}, is_cut ? rank : -1});
  return groups;
}

/// All queries: those of a rank as it has them, [batch, q_heads, rows, head_dim].
class AllQueries {
 public:
  AllQueries(Transport& transport, const SequenceCall& call) : call_(call) {
    if (!call.cut.queries) return;
    const Index of_row = call.batch() * call.q_heads() * call.head_dim();
    begins_.push_back(0);
    for (int rank = 0; rank < transport.size(); ++rank)
      begins_.push_back(begins_.back() + call.cut.queries->length_of(rank) * of_row);
    memory_.resize(static_cast<std::size_t>(begins_.back()));
    copy(call.q, of_rank(call.rank));
    transport.all_gather(memory_.data(), begins_);
  }

  [[nodiscard]] View<const float, 4> rows(const RowGroup& group) {
    const View<const float, 4> all = group.rank < 0 ? call_.q : of_rank(group.rank);
    return all.slice(2, group.rows.local, group.rows.local + group.rows.count);
  }

 private:
  [[nodiscard]] View<float, 4> of_rank(int rank) {
    return {memory_.data() + begins_[static_cast<std::size_t>(rank)],
            {call_.batch(), call_.q_heads(), call_.cut.queries->length_of(rank), call_.head_dim()}};
  }

  const SequenceCall& call_;
  std::vector<Index> begins_;
  std::vector<float> memory_;
};

/// The partial results of the rank's own blocks of keys, for some queries: an element of the chain
/// for each batch element.
std::vector<ChainElement> compute(const SequenceCall& call, const View<const float, 4>& q, const Rows& rows,
                                  KeptMemory& memory) {
  const PartialResult state{nullptr, 1, call.q_heads(), rows.count, call.value_dim()};
  float* at = memory.data();
  std::vector<ChainElement> elements;
  for (Index b = 0; b < call.batch(); ++b) {
    ChainElement& element = elements.emplace_back(ChainElement{call.cut.keys.pieces(), state, {}});
    const AttentionOptions options = of_element(call.options, b);
    for (const SequencePiece& piece : element.pieces) {
      if (piece.rank != call.rank) continue;
      PartialResult& blocks = element.blocks.emplace_back(state);
      blocks.count = blocks_of(piece);
      blocks.data = at;
      at += blocks.size();
      const auto own = [&](const View<const float, 4>& x) {
        return x.slice(0, b, b + 1).slice(2, piece.local, piece.local + piece.size());
      };
      compute_blocks(q.slice(0, b, b + 1), own(call.k), own(call.v), options, rows, piece, blocks);
    }
  }
  return elements;
}

/// Brings the end results from rank `from` to those that have the queries.
void deliver(Transport& transport, const SequenceCall& call, const RowGroup& group, int from, EndResults& results) {
  float* data = results.data(0);
  const std::size_t bytes = results.bytes(0, call.batch());
  if (group.rank < 0) transport.broadcast(data, bytes, from);
  else if (from != group.rank && call.rank == from) transport.wait(transport.start_send(group.rank, data, bytes));
  else if (from != group.rank && call.rank == group.rank) transport.wait(transport.start_receive(from, data, bytes));
  if (group.rank < 0 || call.rank == group.rank) results.copy_to(call.out, call.options.lse, group.rows.local);
}

std::size_t bytes_of(Index floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

}  // namespace

SequencePlan plan_result_chain(const SequenceCall& call) {
  SequencePlan plan{.travels = Travels::results};
  const std::span<const SequencePiece> pieces = call.cut.keys.pieces();
  if (pieces.empty()) return plan;
  const int last = pieces.back().rank;
  const Index batch = call.batch();
  for (const RowGroup& group : groups_of(call)) {
    const Index rows = batch * group.rows.count;
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      if (pieces[i].rank == call.rank) plan.bytes_sent += bytes_of(rows * call.floats_of_state());
      if (pieces[i + 1].rank == call.rank) plan.bytes_received += bytes_of(rows * call.floats_of_state());
    }
    const std::size_t result =
        bytes_of(rows * call.q_heads() * (call.value_dim() + (is_given(call.options.lse) ? 1 : 0)));
    if (group.rank < 0) plan.bytes_collective += result;
    else if (group.rank != last && call.rank == last) plan.bytes_sent += result;
    else if (group.rank != last && call.rank == group.rank) plan.bytes_received += result;
    const Index partial = rows * call.floats_of_state() * (own_blocks(call) + 4);
    plan.memory = std::max(plan.memory, bytes_of(partial) + result);
  }
  if (!call.cut.queries) return plan;
  const std::size_t queries = bytes_of(call.cut.queries->length() * batch * call.q_heads() * call.head_dim());
  plan.bytes_collective += queries;
  plan.memory += queries;
  return plan;
}

void run_result_chain(Transport& transport, const SequenceCall& call) {
  AllQueries queries(transport, call);
  const std::vector<RowGroup> groups = groups_of(call);
  Index longest = 0;
  for (const RowGroup& group : groups) longest = std::max(longest, group.rows.count);
  KeptMemory memory(Slot::blocks, own_blocks(call) * call.batch() * call.floats_of_state() * longest);
  const int last = call.cut.keys.pieces().back().rank;
  for (const RowGroup& group : groups) {
    const std::vector<ChainElement> elements = compute(call, queries.rows(group), group.rows, memory);
    const ResultChain chain(transport, elements, call.options.num_threads);
    EndResults results(call.batch(), call.q_heads(), group.rows.count, call.value_dim(), is_given(call.options.lse));
    const AttentionOptions& o = call.options;
    for (Index b = 0; call.rank == last && b < call.batch(); ++b)
      results.finish(b, chain.result(static_cast<std::size_t>(b)), o.sinks, group.rows, o.query_lengths, o.num_threads);
    deliver(transport, call, group, last, results);
  }
}

}  // namespace headlane::mpi::internal
