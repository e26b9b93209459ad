// Attention over a sequence that is cut over ranks (sequence parallelism), with the bits of
// attention() over the whole sequence.
#pragma once

#include <headlane/attention_options.hpp>
#include <headlane/export.h>
#include <headlane/index.hpp>
#include <headlane/mpi/sequence_cut.hpp>
#include <headlane/mpi/transport.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <optional>

namespace headlane::mpi {

/// Which positions of the keys, and of the queries, each rank has.
struct AttentionCut {
  SequenceCut keys = {};
  /// Absent: every rank has all queries and receives all results.
  std::optional<SequenceCut> queries = std::nullopt;
};

/// What travels between the ranks.
enum class Travels {
  keys,     ///< keys and values go around in a ring, each rank computes its own queries
  results,  ///< each rank computes all queries over its own keys; partial results are merged in order
};

/// How attention() of these arguments runs. Bytes are those of one rank, without the agreement on
/// the arguments, an all-gather of 16 bytes a rank.
struct SequencePlan {
  Travels travels = Travels::keys;
  /// Messages to single ranks: of keys and values or of partial results, and of results.
  std::size_t bytes_sent = 0, bytes_received = 0;
  /// All-gathered queries and broadcast results: the size of the whole buffers.
  std::size_t bytes_collective = 0;
  /// Memory of the call beside arguments and results and what attention() itself needs.
  std::size_t memory = 0;
};

/// attention() over keys and values that are cut over ranks. Collective: every rank calls it with
/// its own rows, the same cut and the same options.
///
/// Shapes: as attention(), with the rows that this rank has.
///     q, out  [batch, q_heads, cut.queries->length_of(rank), …]; absent: all queries, out too
///     k, v    [batch, kv_heads, cut.keys.length_of(rank), …]
///   Options are of the whole sequence: causal_offset and windows count its positions, lengths are
///   those of the whole sequence, masks and biases have a row for each query that the rank has, and
///   a column for each key of the sequence. lse is of the rank's own queries.
/// Aliasing: as attention().
/// Arithmetic: that of attention(); the bits are those of one rank, for every cut and number of
///   ranks, and if the ranks have different instruction sets.
/// What travels: keys if that is fewer bytes for the rank that sends most, or if queries are cut
///   and a mask or a bias is given, whose rows other ranks do not have.
///     keys     each rank receives all keys and values but its own, in chunks of 8 MiB at most
///              (of 512 keys of all batch elements if that is more), and passes them on; while
///              a chunk is computed, the next one is under way
///     results  queries, if cut, are all-gathered; a partial result of value_dim + 2 floats for
///              each query and head goes from the owner of each piece of keys to that of the next;
///              results are broadcast, or sent to the rank that has the query
///   Causal attention: cut queries and keys by SequenceCut::cyclic.
/// Memory: keys: two chunks, and a partial result for each own query and head. Results: a
///   partial result for each own block of 512 keys, of so many queries at a time that they take
///   32 MiB at most (one query if that is more), and one for each own piece; all queries, if cut.
///   Up to 64 MiB of the chunks, of the first and of the second stay with the thread.
/// Errors: std::invalid_argument on every rank, before anything is written, if the arguments of any
///   rank are refused or differ between ranks; the message names the ranks. Refused are
///   query_starts and key_starts (call it for each sequence), sum, resume, and workspace.
///   std::bad_alloc, std::runtime_error (Transport).
/// Source: Liu, Zaharia and Abbeel 2023 (Ring Attention); Dao et al. 2023 (Flash-Decoding).
HEADLANE_API void attention(Transport& transport, View<const float, 4> q, View<const float, 4> k,
                            View<const float, 4> v, View<float, 4> out, const AttentionCut& cut,
                            const AttentionOptions& options = {});

/// The plan of rank `rank` in a call with these shapes; data may be null. Not collective.
HEADLANE_API SequencePlan plan_attention(int rank, View<const float, 4> q, View<const float, 4> k,
                                         View<const float, 4> v, const AttentionCut& cut,
                                         const AttentionOptions& options = {});

}  // namespace headlane::mpi
