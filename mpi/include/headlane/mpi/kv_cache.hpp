// A cache of keys and values that is cut over ranks, for decoding.
#pragma once

#include <headlane/attention_options.hpp>
#include <headlane/export.h>
#include <headlane/index.hpp>
#include <headlane/kv_cache.hpp>
#include <headlane/mpi/sequence_cut.hpp>
#include <headlane/mpi/transport.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace headlane::mpi {

/// headlane::KvCache over many ranks: each has some blocks of 512 keys of each sequence, and knows
/// of all. Every rank calls the same functions in the same order; none of them sends anything,
/// attention() does.
///
/// New keys fill the last block where it is. Blocks that one append() adds go to the ranks in
/// contiguous runs of equal size; if they are fewer than the ranks, each to the rank with the
/// fewest keys of the sequence (the lowest of these).
///
/// Memory: the rank's own keys and values, as headlane::KvCache stores them, and 32 bytes for each
///   run of blocks of all ranks.
/// Errors: as headlane::KvCache; std::invalid_argument for pages of more than 512 keys. Every rank
///   checks all arguments that it has before anything is stored. What one rank alone refuses (no
///   memory, no page; if each has its own keys, for int8 a number that is not finite) leaves the
///   cache of that rank unchanged and not those of the others: the job has to end.
class HEADLANE_API KvCache {
 public:
  /// The rank and number of ranks are those of the transport, which is not kept.
  KvCache(const Transport& transport, Index kv_heads, Index head_dim, Index value_dim,
          const KvCacheOptions& options = {});
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  /// Adds a sequence without keys; returns its number, the same on all ranks.
  [[nodiscard]] Index add();
  /// As headlane::KvCache: the two share pages on each rank.
  [[nodiscard]] Index fork(Index sequence, Index length = -1);
  /// Appends keys k [kv_heads, tokens, head_dim] and values v [kv_heads, tokens, value_dim], which
  /// every rank has: each stores those of its own blocks.
  void append(Index sequence, View<const float, 3> k, View<const float, 3> v);
  /// Appends keys and values of which each rank has its own, as the cut says. The length of the
  /// sequence must be a multiple of 512.
  void append(Index sequence, View<const float, 3> k, View<const float, 3> v, const SequenceCut& cut);
  /// Keeps the first `length` keys of a sequence.
  void truncate(Index sequence, Index length);
  void remove(Index sequence);

  [[nodiscard]] bool has(Index sequence) const;
  [[nodiscard]] Index length(Index sequence) const;
  /// Which rank has which keys of a sequence.
  [[nodiscard]] SequenceCut cut(Index sequence) const;
  [[nodiscard]] Index kv_heads() const;
  [[nodiscard]] Index head_dim() const;
  [[nodiscard]] Index value_dim() const;
  [[nodiscard]] DType type() const;
  /// Bytes of this rank.
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend HEADLANE_API void attention(Transport& transport, View<const float, 4> q, const KvCache& cache,
                                     std::span<const Index> sequences, View<float, 4> out,
                                     const AttentionOptions& options);
  struct State;
  [[nodiscard]] HEADLANE_HIDDEN State& state(const char* function) const;

  std::unique_ptr<State> state_;
};

/// attention() over the keys of sequences in the cache, by queries that all ranks have: every rank
/// receives all results. Collective; every rank passes the same options.
///
/// Shapes, positions and options: as attention() over a headlane::KvCache, whose bits it has.
///   Refused are query_starts, key_starts, sum, resume and workspace.
/// What travels: a partial result of value_dim + 2 floats for each query and head, from the rank of
///   each run of blocks to that of the next one, and the results, which are broadcast.
/// Memory: a partial result for each own block of the sequences, of so many queries at a time that
///   they take 32 MiB at most on every rank (one query if that is more), and one for each own run
///   of blocks; the results of so many queries. Up to 64 MiB stay with the thread.
/// Errors: std::invalid_argument on every rank, before anything is written, if the arguments of any
///   rank are refused, if these or the caches differ between ranks, or if the ranks of the
///   transport are not those of the cache. std::bad_alloc, std::runtime_error (Transport).
HEADLANE_API void attention(Transport& transport, View<const float, 4> q, const KvCache& cache,
                            std::span<const Index> sequences, View<float, 4> out, const AttentionOptions& options = {});

}  // namespace headlane::mpi
