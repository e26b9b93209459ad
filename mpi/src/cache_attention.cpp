// attention() over a cache that is cut over ranks: partial results travel.
#include "attention_check.hpp"
#include "block_results.hpp"
#include "core/floating_point_scope.hpp"
#include "description.hpp"
#include "end_result.hpp"
#include "grid.hpp"
#include "kept_memory.hpp"
#include "kv_cache_state.hpp"
#include "result_chain.hpp"
#include "together.hpp"

#include <headlane/attention.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace headlane::mpi {

using namespace internal;

namespace {

/// One sequence of the call. The options are those of tensors: causal_offset is the position of the
/// first query.
struct Element {
  std::span<const SequencePiece> pieces;
  std::span<const Index> blocks;  // own ones
  AttentionOptions options;
};

struct CacheCall {
  View<const float, 4> q;
  const headlane::KvCache& own;
  View<float, 4> out;
  const AttentionOptions& options;
  int rank;
  std::vector<Element> elements;

  [[nodiscard]] Index heads() const { return q.shape[1]; }
};

/// A checksum of the cut of a sequence: ranks compare it for every token, and a cut may have
/// thousands of runs.
std::uint64_t checksum(std::span<const SequencePiece> pieces) {
  std::uint64_t sum = 0;
  for (const SequencePiece& piece : pieces) {
    sum = (sum ^ static_cast<std::uint64_t>(piece.end)) * 0x9e3779b97f4a7c15u;  // Fibonacci hashing (Knuth 1998)
    sum = (sum ^ (sum >> 32) ^ static_cast<std::uint64_t>(piece.rank)) * 0x9e3779b97f4a7c15u;
  }
  return sum;
}

Index value_at(const View<const Index, 1>& values, Index i, Index otherwise) { return values ? values(i) : otherwise; }

/// The keys of element e alone, with the position of its first query.
AttentionOptions options_of(const AttentionOptions& whole, Index e, Index keys, Index queries) {
  AttentionOptions o = of_element(whole, e);
  o.causal_offset =
      keys - queries + std::clamp(value_at(whole.causal_offsets, e, whole.causal_offset), -beyond, beyond);
  o.causal_offsets = {};
  return o;
}

/// Describes what must match on all ranks, including the cache: a rank may have appended other
/// keys.
template <class State>
std::string description_of(const State& state, const View<const float, 4>& q, std::span<const Index> sequences,
                           const AttentionOptions& options) {
  const headlane::KvCache& own = state.own;
  std::ostringstream text;
  text << "q " << q.shape[0] << ' ' << q.shape[1] << ' ' << q.shape[2] << ' ' << q.shape[3] << ", a cache of "
       << state.ranks << " ranks, " << name_of(own.type()) << ", " << own.kv_heads() << " kv heads, head_dim "
       << own.head_dim() << ", value_dim " << own.value_dim() << ", sequences";
  for (const Index number : sequences) {
    const auto found = state.sequences.find(number);
    if (found == state.sequences.end()) text << ' ' << number << " that is not there";
    else
      text << ' ' << number << " of " << found->second.length() << " keys in " << found->second.pieces.size()
           << " runs (checksum " << std::hex << checksum(found->second.pieces) << std::dec << ')';
  }
  describe(text, options);
  return text.str();
}

/// The ranks of the transport are those of the cache.
template <class State>
void check_ranks(const Transport& transport, const State& state) {
  refuse_unless(transport.size() == state.ranks, "the cache is cut over ", state.ranks, " ranks, the transport has ",
                transport.size());
  refuse_unless(transport.rank() == state.rank, "the cache is that of rank ", state.rank,
                ", in the transport this is rank ", transport.rank());
}

void check(const CacheCall& call, std::span<const Index> sequences, const std::vector<Index>& lengths) {
  const AttentionOptions& o = call.options;
  refuse_unless(!o.query_starts && !o.key_starts, "query_starts or key_starts is given with a cache");
  check_options_of_ranks(o);
  const auto batch = static_cast<Index>(sequences.size());
  refuse_unless(call.q.shape[0] == batch, "q has ", call.q.shape[0], " batch elements, there are ", batch,
                " sequences");
  const Index longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const View<const float, 4> k(nullptr, {batch, call.own.kv_heads(), longest, call.own.head_dim()}),
      v(nullptr, {batch, call.own.kv_heads(), longest, call.own.value_dim()});
  (void)headlane::plan_attention(call.q, k, v, call.out, o);
  for (Index e = 0; o.key_lengths && e < batch; ++e) {
    const Index length = lengths[static_cast<std::size_t>(e)];
    refuse_unless(o.key_lengths(e) <= length, "key_lengths[", e, "] is ", o.key_lengths(e), ", its sequence has ",
                  length, " keys");
  }
  if (batch == 0 || call.q.shape[1] == 0 || call.q.shape[2] == 0) return;
  refuse_unless(call.q.data != nullptr, "q has no data");
  check_outputs(call.out, {{"q", call.q}}, o);
}

/// Partial results of own blocks of a piece, which are sequences of the rank's cache.
void compute_piece(const CacheCall& call, const View<const float, 4>& q, const Element& element, const Rows& rows,
                   const SequencePiece& piece, std::span<const Index> blocks, const PartialResult& to) {
  const Index whole = piece.size() / grid, middle = whole * grid;
  const auto run = [&](Index first, Index count, const Keys& keys) {
    if (count == 0 || keys.count() == 0) return;
    const PartOptions part(element.options, rows, {piece.begin + keys.first, piece.begin + keys.end});
    const Index size = keys.count() / count;
    BlockOptions of_blocks(part.options, count, size);
    AttentionOptions& o = of_blocks.options;
    // Positions count from the end of a sequence in a cache.
    const Index queries = o.query_lengths ? o.query_lengths(0) : rows.count;
    std::vector<Index> offsets;
    for (Index b = 0; b < count; ++b)
      offsets.push_back(o.causal_offsets(b) + queries - value_at(o.key_lengths, b, size));
    o.causal_offsets = {offsets.data(), {count}};
    o.lse = to.max().slice(0, first, first + count);
    o.sum = to.sum().slice(0, first, first + count);
    View<const float, 4> same_queries = q;
    same_queries.shape[0] = count;
    same_queries.strides[0] = 0;
    headlane::attention(same_queries, call.own,
                        blocks.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                        to.out().slice(0, first, first + count), o);
  };
  run(0, whole, {0, middle});
  run(whole, 1, {middle, piece.size()});
}

std::vector<Index> blocks_of_ranks(const CacheCall& call, int ranks) {
  std::vector<Index> blocks(static_cast<std::size_t>(ranks), 0);
  for (const Element& element : call.elements)
    for (const SequencePiece& piece : element.pieces) blocks[static_cast<std::size_t>(piece.rank)] += blocks_of(piece);
  return blocks;
}

/// The partial results of the rank's own blocks, for some queries.
std::vector<ChainElement> compute(const CacheCall& call, const Rows& rows, KeptMemory& memory) {
  const PartialResult state{nullptr, 1, call.heads(), rows.count, call.own.value_dim()};
  float* at = memory.data();
  std::vector<ChainElement> chain;
  for (std::size_t e = 0; e < call.elements.size(); ++e) {
    const Element& element = call.elements[e];
    ChainElement& link = chain.emplace_back(ChainElement{element.pieces, state, {}});
    const auto b = static_cast<Index>(e);
    const View<const float, 4> q = call.q.slice(0, b, b + 1).slice(2, rows.local, rows.local + rows.count);
    std::size_t done = 0;
    for (const SequencePiece& piece : element.pieces) {
      if (piece.rank != call.rank) continue;
      PartialResult& to = link.blocks.emplace_back(state);
      to.count = blocks_of(piece);
      to.data = at;
      at += to.size();
      compute_piece(call, q, element, rows, piece, element.blocks.subspan(done, static_cast<std::size_t>(to.count)),
                    to);
      done += static_cast<std::size_t>(to.count);
    }
  }
  return chain;
}

/// A partial result over no key.
class NoKeys {
 public:
  explicit NoKeys(const PartialResult& shape) : result_(shape), memory_(static_cast<std::size_t>(shape.size()), 0.0f) {
    result_.data = memory_.data();
    for (Index i = 0; i < shape.states(); ++i) result_.max().data[i] = -std::numeric_limits<float>::infinity();
  }
  [[nodiscard]] AttentionPart part() const { return result_.part(0); }

 private:
  PartialResult result_;
  std::vector<float> memory_;
};

/// Divides the results whose last block is this rank's, and broadcasts each run of sequences that
/// end on the same rank.
void finish(Messages& messages, const CacheCall& call, const std::vector<ChainElement>& chain,
            const ResultChain& merged, const Rows& rows, EndResults& results) {
  const AttentionOptions& o = call.options;
  const auto owner = [&](std::size_t e) { return chain[e].pieces.empty() ? 0 : chain[e].pieces.back().rank; };
  for (std::size_t e = 0; e < chain.size(); ++e) {
    if (owner(e) != call.rank) continue;
    const auto number = static_cast<Index>(e);
    const bool no_keys = chain[e].pieces.empty();
    const NoKeys nothing(no_keys ? chain[e].state : PartialResult{});
    results.finish(number, no_keys ? nothing.part() : merged.result(e), o.sinks, rows, o.query_lengths, o.num_threads);
  }
  for (std::size_t first = 0, end = 0; first < chain.size(); first = end) {
    while (end < chain.size() && owner(end) == owner(first)) ++end;
    const auto begin = static_cast<Index>(first);
    messages.broadcast(results.data(begin), results.bytes(begin, static_cast<Index>(end)), owner(first));
  }
}

}  // namespace

void attention(Transport& transport, View<const float, 4> q, const KvCache& cache, std::span<const Index> sequences,
               View<float, 4> out, const AttentionOptions& options) {
  const headlane::internal::FloatingPointScope scope;
  std::vector<Index> lengths;
  check_together(
      transport, attention_name,
      [&] { return cache.state_ == nullptr ? "" : description_of(*cache.state_, q, sequences, options); },
      [&] {
        KvCache::State& of_rank = cache.state("attention");
        check_ranks(transport, of_rank);
        for (const Index sequence : sequences) lengths.push_back(of_rank.at("attention", sequence).length());
        check({q, of_rank.own, out, options, of_rank.rank, {}}, sequences, lengths);
      });
  Messages messages(transport);
  KvCache::State& state = *cache.state_;
  CacheCall call{q, state.own, out, options, state.rank, {}};
  for (std::size_t e = 0; e < sequences.size(); ++e) {
    const KvCache::State::Sequence& sequence = state.sequences.at(sequences[e]);
    const auto number = static_cast<Index>(e);
    const Index keys = value_at(options.key_lengths, number, sequence.length()),
                queries = value_at(options.query_lengths, number, q.shape[2]);
    call.elements.push_back({sequence.pieces, sequence.blocks, options_of(options, number, keys, queries)});
  }
  const Index of_row = std::max<Index>(call.heads() * (state.own.value_dim() + 2), 1);
  const std::vector<Index> blocks = blocks_of_ranks(call, transport.size());
  const Index most = *std::max_element(blocks.begin(), blocks.end());  // all ranks divide the queries alike
  const Index at_a_time = std::max<Index>(partial_floats / (of_row * std::max<Index>(most, 1)), 1);
  const Index own_blocks = blocks[static_cast<std::size_t>(state.rank)];
  KeptMemory memory(messages, Slot::blocks, own_blocks * of_row * std::min(at_a_time, q.shape[2]));
  for (Index first = 0; first < q.shape[2] && q.shape[0] * q.shape[1] > 0; first += at_a_time) {
    const Rows rows{first, first, std::min(at_a_time, q.shape[2] - first)};
    const std::vector<ChainElement> chain = compute(call, rows, memory);
    const ResultChain merged(messages, chain, options.num_threads);
    EndResults results(messages, q.shape[0], call.heads(), rows.count, state.own.value_dim(), is_given(options.lse));
    finish(messages, call, chain, merged, rows, results);
    results.copy_to(out, options.lse, rows.local);
  }
}

}  // namespace headlane::mpi
