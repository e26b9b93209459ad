// Attention in which keys and values travel: from their owner around the ring of ranks, in chunks,
// in the order of their positions. Every rank resumes the partial result of its own queries with
// each chunk, as attention() goes through its blocks of keys.
#include "grid.hpp"
#include "kept_memory.hpp"
#include "partial_result.hpp"
#include "sequence_call.hpp"

#include <headlane/attention.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace headlane::mpi::internal {
namespace {

/// Keys and values of a chunk: large enough that loading and storing the partial results is little
/// beside its products.
constexpr Index chunk_floats = Index{8} << 20 >> 2;
/// The transport makes progress after about this many operations of a thread: 200 ms.
constexpr double operations_between = 2e10;

/// Adjacent keys of one rank, which has them from `local` on.
struct Segment {
  Keys keys;
  int owner;
  Index local;
};

/// Adjacent keys that are computed at a time.
struct Chunk {
  Keys keys;
  std::vector<Segment> segments;
};

Index keys_of_chunk(const SequenceCall& call) {
  return std::max<Index>(chunk_floats / std::max<Index>(call.floats_of_key(), 1) / grid, 1) * grid;
}

std::vector<Chunk> chunks_of(const SequenceCall& call) {
  std::vector<Chunk> chunks;
  const Index size = keys_of_chunk(call);
  for (const SequencePiece& piece : call.cut.keys.pieces())
    for (Index first = piece.begin; first < piece.end;) {
      if (first % size == 0) chunks.push_back({{first, first}, {}});
      const Index end = std::min((first / size + 1) * size, piece.end);
      chunks.back().segments.push_back({{first, end}, piece.rank, piece.local + first - piece.begin});
      chunks.back().keys.end = first = end;
    }
  return chunks;
}

/// Keys of the longest chunk.
Index longest(const std::vector<Chunk>& chunks) {
  Index keys = 0;
  for (const Chunk& chunk : chunks) keys = std::max(keys, chunk.keys.count());
  return keys;
}

/// Keys and values of a chunk, position after position, so that a segment is contiguous.
struct Message {
  View<float, 4> k, v;

  Message(const SequenceCall& call, float* data, Index keys) {
    const Index heads = call.kv_heads(), dim = call.head_dim(), value_dim = call.value_dim();
    const Index of_key = call.floats_of_key();
    k = {data, {call.batch(), heads, keys, dim}, {heads * dim, dim, of_key, 1}};
    float* values = data + call.batch() * heads * dim;
    v = {values, {call.batch(), heads, keys, value_dim}, {heads * value_dim, value_dim, of_key, 1}};
  }
};

/// The messages of the ring. A rank sends its own segments of a chunk at once, and passes on those
/// that it receives from the left neighbour, unless the right one has sent them: so they arrive in
/// the order of their owners' distance. Two buffers: one is computed while the other is received.
class Ring {
 public:
  Ring(Messages& messages, const SequenceCall& call, const std::vector<Chunk>& chunks)
      : messages_(messages),
        call_(call),
        chunks_(chunks),
        longest_(longest(chunks)),
        memory_(messages, Slot::chunk, longest_ * call.floats_of_key()),
        other_memory_(messages, Slot::other_chunk, longest_ * call.floats_of_key()) {
    buffers_[0].data = memory_.data();
    buffers_[1].data = other_memory_.data();
    if (!chunks.empty()) start(0);
  }

  /// Chunk n, for n = 0, 1, …; the next one is then under way.
  Message next(std::size_t n) {
    Buffer& buffer = buffers_[n % 2];
    for (const auto& [segment, ticket] : buffer.received) {
      messages_.wait(ticket);
      if (segment->owner != right()) send(n, *segment);
    }
    buffer.received.clear();
    if (n > 0) finish_sends(n - 1);  // whose buffer is that of chunk n + 1
    if (n + 1 < chunks_.size()) start(n + 1);
    return {call_, begin(n), chunks_[n].keys.count()};
  }

  void finish() {
    if (!chunks_.empty()) finish_sends(chunks_.size() - 1);
  }

 private:
  struct Buffer {
    float* data = nullptr;
    std::vector<std::pair<const Segment*, Transport::Ticket>> received;
    std::vector<Transport::Ticket> sent;
  };

  [[nodiscard]] int right() const { return (call_.rank + 1) % messages_.size(); }
  /// Chunks end where their buffer does: what is received beyond one, a fault, is beyond the other.
  [[nodiscard]] float* begin(std::size_t n) {
    return buffers_[n % 2].data + (longest_ - chunks_[n].keys.count()) * call_.floats_of_key();
  }
  [[nodiscard]] float* at(std::size_t n, const Segment& segment) {
    return begin(n) + (segment.keys.first - chunks_[n].keys.first) * call_.floats_of_key();
  }
  [[nodiscard]] std::size_t bytes(const Segment& segment) const {
    return static_cast<std::size_t>(segment.keys.count() * call_.floats_of_key()) * sizeof(float);
  }
  void send(std::size_t n, const Segment& segment) {
    buffers_[n % 2].sent.push_back(messages_.start_send(right(), at(n, segment), bytes(segment)));
  }

  /// Begins to receive the segments of chunk n, and sends the rank's own.
  void start(std::size_t n) {
    const int ranks = messages_.size();
    for (int distance = 1; distance < ranks; ++distance) {
      const int owner = (call_.rank - distance + ranks) % ranks, left = (call_.rank - 1 + ranks) % ranks;
      for (const Segment& segment : chunks_[n].segments)
        if (segment.owner == owner)
          buffers_[n % 2].received.emplace_back(&segment,
                                                messages_.start_receive(left, at(n, segment), bytes(segment)));
    }
    for (const Segment& segment : chunks_[n].segments) {
      if (segment.owner != call_.rank) continue;
      const Message to(call_, at(n, segment), segment.keys.count());
      copy(call_.k.slice(2, segment.local, segment.local + segment.keys.count()), to.k);
      copy(call_.v.slice(2, segment.local, segment.local + segment.keys.count()), to.v);
      send(n, segment);
    }
  }

  void finish_sends(std::size_t n) {
    std::vector<Transport::Ticket>& sent = buffers_[n % 2].sent;
    for (const Transport::Ticket ticket : sent) messages_.wait(ticket);
    sent.clear();
  }

  Messages& messages_;
  const SequenceCall& call_;
  const std::vector<Chunk>& chunks_;
  Index longest_;
  KeptMemory memory_, other_memory_;
  std::array<Buffer, 2> buffers_;
};

/// The rank's queries, so many at a time that the transport makes progress between them.
std::vector<Rows> parts_of_rows(const SequenceCall& call) {
  const double of_row = 2.0 * static_cast<double>(call.batch() * call.q_heads() * keys_of_chunk(call)) *
                        static_cast<double>(call.head_dim() + call.value_dim());
  const auto most = static_cast<Index>(std::clamp(operations_between / std::max(of_row, 1.0), 1.0, 1e9));
  const Index size = round_up(std::max<Index>(most, grid), grid);
  std::vector<Rows> parts;
  for (const Rows& rows : call.rows_of(call.rank))
    for (Index first = 0; first < rows.count; first += size)
      parts.push_back({rows.position + first, rows.local + first, std::min(size, rows.count - first)});
  return parts;
}

/// Whether no query sees a key of the chunk.
bool is_invisible(const AttentionOptions& o, const Rows& rows, const Keys& keys) {
  if (!o.causal || o.causal_offsets) return false;
  return keys.first > rows.position + rows.count - 1 + std::min(o.causal_offset, keys.first);
}

/// Divides the partial results of the rank's queries.
void finish(const SequenceCall& call, const PartialResult& states) {
  const AttentionOptions& o = call.options;
  const AttentionPart part{states.out(), states.max(), states.sum()};
  merge({&part, 1}, call.out, {.lse = o.lse, .sinks = o.sinks, .num_threads = o.num_threads});
  if (!o.sinks || !o.query_lengths) return;
  for (Index b = 0; b < call.batch(); ++b)
    for (const Rows& own : call.rows_of(call.rank)) {
      const auto rows = [&](const auto& view) { return view.select(0, b).slice(1, own.local, own.local + own.count); };
      clear_padding(rows(call.out), o.lse ? rows(o.lse) : View<float, 2>(), own, o.query_lengths(b));
    }
}

}  // namespace

std::vector<SequencePlan> plans_of_key_ring(const SequenceCall& call) {
  const std::vector<Index> keys = lengths_of(call.cut.keys), queries = lengths_of(*call.cut.queries);
  const Index all = call.cut.keys.length(), of_chunk = std::min(keys_of_chunk(call), all);
  const auto bytes_of = [](Index floats) { return static_cast<std::size_t>(floats) * sizeof(float); };
  std::vector<SequencePlan> plans;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    const Index states = call.batch() * queries[r] * call.floats_of_state();
    plans.push_back({.travels = Travels::keys,
                     .bytes_sent = bytes_of((all - keys[(r + 1) % keys.size()]) * call.floats_of_key()),
                     .bytes_received = bytes_of((all - keys[r]) * call.floats_of_key()),
                     .memory = bytes_of(2 * of_chunk * call.floats_of_key() + states)});
  }
  return plans;
}

void run_key_ring(Messages& messages, const SequenceCall& call) {
  const std::vector<Chunk> chunks = chunks_of(call);
  const std::vector<Rows> parts = parts_of_rows(call);
  // Not in out: merge() writes to other memory than it reads.
  PartialResult states{nullptr, call.batch(), call.q_heads(), call.q.shape[2], call.value_dim()};
  KeptMemory memory(messages, Slot::states, states.size());
  states.data = memory.data();
  Ring ring(messages, call, chunks);
  for (std::size_t n = 0; n < chunks.size(); ++n) {
    const Message keys = ring.next(n);
    for (const Rows& rows : parts) {
      if (n > 0 && is_invisible(call.options, rows, chunks[n].keys)) continue;
      PartOptions part(call.options, rows, chunks[n].keys);
      const auto own = [&](const auto& view) { return view.slice(2, rows.local, rows.local + rows.count); };
      part.options.lse = own(states.max());
      part.options.sum = own(states.sum());
      part.options.resume = n > 0;
      headlane::attention(own(call.q), keys.k, keys.v, own(states.out()), part.options);
      messages.progress();
    }
  }
  ring.finish();

  if (call.q.shape[2] > 0) finish(call, states);
}

}  // namespace headlane::mpi::internal
