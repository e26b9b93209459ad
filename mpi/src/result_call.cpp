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
#include <utility>
#include <vector>

namespace headlane::mpi::internal {
namespace {

/// The keys that each rank holds.
struct Owned {
  Index blocks = 0;  // of keys
  Index pieces = 0;
  std::size_t sent = 0, received = 0;  // pieces that another one follows, and that follow another one
};

std::vector<Owned> owned_by_ranks(const SequenceCall& call) {
  std::vector<Owned> ranks(static_cast<std::size_t>(call.cut.keys.ranks()));
  const std::span<const SequencePiece> pieces = call.cut.keys.pieces();
  for (const SequencePiece& piece : pieces) {
    Owned& of_rank = ranks[static_cast<std::size_t>(piece.rank)];
    of_rank.blocks += blocks_of(piece);
    ++of_rank.pieces;
    of_rank.sent += &piece == &pieces.back() ? 0 : 1;
    of_rank.received += &piece == &pieces.front() ? 0 : 1;
  }
  return ranks;
}

/// By the rank with the most blocks of keys, so that all ranks divide the queries alike.
Index rows_at_a_time(const SequenceCall& call, const std::vector<Owned>& ranks) {
  Index most = 1;
  for (const Owned& of_rank : ranks) most = std::max(most, of_rank.blocks);
  return std::max<Index>(partial_floats / std::max<Index>(most * call.batch() * call.floats_of_state(), 1), 1);
}

/// Queries that are computed at a time, and the rank that has them; -1: all ranks.
struct RowGroup {
  Rows rows;
  int rank;
};

/// Adjacent queries of a rank, or of all.
std::vector<RowGroup> pieces_of_queries(const SequenceCall& call) {
  if (!call.cut.queries) return {{{0, 0, call.q.shape[2]}, -1}};
  std::vector<RowGroup> pieces;
  for (const SequencePiece& piece : call.cut.queries->pieces())
    pieces.push_back({{piece.begin, piece.local, piece.size()}, piece.rank});
  return pieces;
}

std::vector<RowGroup> groups_of(const SequenceCall& call, Index size) {
  std::vector<RowGroup> pieces = pieces_of_queries(call), groups;
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return std::pair(a.rank, a.rows.local) < std::pair(b.rank, b.rows.local);
  });
  for (const auto& [rows, rank] : pieces)
    for (Index first = 0; first < rows.count; first += size)
      groups.push_back({{rows.position + first, rows.local + first, std::min(size, rows.count - first)}, rank});
  return groups;
}

/// All queries: those of a rank as it has them, [batch, q_heads, rows, head_dim].
class AllQueries {
 public:
  AllQueries(Messages& messages, const SequenceCall& call)
      : call_(call),
        of_row_(call.batch() * call.q_heads() * call.head_dim()),
        memory_(messages, call.cut.queries ? call.cut.queries->length() * of_row_ : 0) {
    if (!call.cut.queries) return;
    begins_.push_back(0);
    lengths_ = lengths_of(*call.cut.queries);
    for (const Index length : lengths_) begins_.push_back(begins_.back() + length * of_row_);
    copy(call.q, of_rank(call.rank));
    messages.all_gather(memory_.data(), begins_);
  }

  [[nodiscard]] View<const float, 4> rows(const RowGroup& group) {
    const View<const float, 4> all = group.rank < 0 ? call_.q : of_rank(group.rank);
    return all.slice(2, group.rows.local, group.rows.local + group.rows.count);
  }

 private:
  [[nodiscard]] View<float, 4> of_rank(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return {memory_.data() + begins_[r], {call_.batch(), call_.q_heads(), lengths_[r], call_.head_dim()}};
  }

  const SequenceCall& call_;
  Index of_row_;
  MessageMemory memory_;
  std::vector<Index> lengths_, begins_;
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
void deliver(Messages& messages, const SequenceCall& call, const RowGroup& group, int from, EndResults& results) {
  float* data = results.data(0);
  const std::size_t bytes = results.bytes(0, call.batch());
  if (group.rank < 0) messages.broadcast(data, bytes, from);
  else if (from != group.rank && call.rank == from) messages.wait(messages.start_send(group.rank, data, bytes));
  else if (from != group.rank && call.rank == group.rank) messages.wait(messages.start_receive(from, data, bytes));
  if (group.rank < 0 || call.rank == group.rank) results.copy_to(call.out, call.options.lse, group.rows.local);
}

}  // namespace

std::vector<SequencePlan> plans_of_result_chain(const SequenceCall& call) {
  const std::vector<Owned> ranks = owned_by_ranks(call);
  std::vector<SequencePlan> plans(ranks.size(), {.travels = Travels::results});
  if (call.cut.keys.pieces().empty()) return plans;
  const bool is_cut = call.cut.queries.has_value();
  const Index all = is_cut ? call.cut.queries->length() : call.q.shape[2], size = rows_at_a_time(call, ranks);
  Index longest = 0;
  for (const RowGroup& piece : pieces_of_queries(call)) longest = std::max(longest, std::min(size, piece.rows.count));
  const std::vector<Index> queries = is_cut ? lengths_of(*call.cut.queries) : std::vector<Index>();
  const Index of_result = call.q_heads() * (call.value_dim() + (is_given(call.options.lse) ? 1 : 0));
  const auto bytes_of = [&](Index rows, Index floats) {
    return static_cast<std::size_t>(call.batch() * rows * floats) * sizeof(float);
  };
  const auto last = static_cast<std::size_t>(call.cut.keys.pieces().back().rank);
  for (std::size_t r = 0; r < plans.size(); ++r) {
    SequencePlan& plan = plans[r];
    plan.bytes_sent = ranks[r].sent * bytes_of(all, call.floats_of_state());
    plan.bytes_received = ranks[r].received * bytes_of(all, call.floats_of_state());
    if (!is_cut) plan.bytes_collective = bytes_of(all, of_result);
    else if (r == last) plan.bytes_sent += bytes_of(all - queries[r], of_result);
    else plan.bytes_received += bytes_of(queries[r], of_result);
    plan.memory = bytes_of(longest, call.floats_of_state() * (ranks[r].blocks + ranks[r].pieces) + of_result);
    if (ranks[r].received > 0)
      plan.memory += static_cast<std::size_t>(longest * call.floats_of_state()) * sizeof(float);
    if (!is_cut) continue;
    plan.bytes_collective += bytes_of(all, call.q_heads() * call.head_dim());
    plan.memory += bytes_of(all, call.q_heads() * call.head_dim());
  }
  return plans;
}

void run_result_chain(Messages& messages, const SequenceCall& call) {
  AllQueries queries(messages, call);
  const std::vector<Owned> ranks = owned_by_ranks(call);
  const std::vector<RowGroup> groups = groups_of(call, rows_at_a_time(call, ranks));
  Index longest = 0;
  for (const RowGroup& group : groups) longest = std::max(longest, group.rows.count);
  const Index own_blocks = ranks[static_cast<std::size_t>(call.rank)].blocks;
  KeptMemory memory(messages, Slot::blocks, own_blocks * call.batch() * call.floats_of_state() * longest);
  const int last = call.cut.keys.pieces().back().rank;
  for (const RowGroup& group : groups) {
    const std::vector<ChainElement> elements = compute(call, queries.rows(group), group.rows, memory);
    const ResultChain chain(messages, elements, call.options.num_threads);
    EndResults results(messages, call.batch(), call.q_heads(), group.rows.count, call.value_dim(),
                       is_given(call.options.lse));
    const AttentionOptions& o = call.options;
    for (Index b = 0; call.rank == last && b < call.batch(); ++b)
      results.finish(b, chain.result(static_cast<std::size_t>(b)), o.sinks, group.rows, o.query_lengths, o.num_threads);
    deliver(messages, call, group, last, results);
  }
}

}  // namespace headlane::mpi::internal
