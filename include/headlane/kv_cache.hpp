// KvCache: keys and values of sequences that grow by some tokens at a time, kept in the order in which attention reads them.
#pragma once

#include <headlane/export.h>
#include <headlane/view.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace headlane {

namespace internal {
struct KvPages;
}

struct KvCacheOptions {
  /// Keys of a page: 32, 64, 128, 256 or a multiple of 512. Short pages waste less at the end of a sequence and share more between
  /// sequences. A page as long as the longest sequence keeps each sequence in one piece.
  Index page_size = 128;
  /// Pages that it may hold at a time; 0: as many as memory has.
  Index max_pages = 0;
};

/// The keys and values that the queries of one attention layer look back at, for any number of sequences. A sequence is a table of
/// pages; sequences that were forked share pages until one of them is appended to (PagedAttention; Kwon et al. 2023).
///
/// attention() over a cache (attention.hpp) gives the bits that it gives over the same keys and values in plain tensors.
/// A sequence is named by the number that add() or fork() gave; a number is used again after remove().
/// Threads: const member functions and attention() may run at the same time, the others need the cache for themselves.
/// Errors: std::invalid_argument for sizes that do not match and sequences that are not there, std::length_error if max_pages would be
///   exceeded, std::bad_alloc; the cache is then as it was. One that was moved from may be destroyed and assigned to; all else throws
///   std::invalid_argument.
class HEADLANE_API KvCache {
 public:
  /// head_dim (of keys) and value_dim 1 … 512.
  KvCache(Index kv_heads, Index head_dim, Index value_dim, const KvCacheOptions& options = {});
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  /// A new sequence without keys.
  [[nodiscard]] Index add();
  /// A new sequence of the first `length` keys of another one (-1: all): shares its pages, copies nothing.
  [[nodiscard]] Index fork(Index sequence, Index length = -1);
  /// Copies keys k [kv_heads, tokens, head_dim] and values v [kv_heads, tokens, value_dim], any strides, to the end of a sequence. Of a
  /// page that other sequences share, it makes a copy first.
  void append(Index sequence, View<const float, 3> k, View<const float, 3> v);
  /// The same for several sequences, each named once: k [sequences, kv_heads, tokens, head_dim], v likewise. If data of `lengths` is not
  /// null: [sequences]; of each sequence only the first lengths[s] tokens are appended, the others are padding, which is not read.
  void append(std::span<const Index> sequences, View<const float, 4> k, View<const float, 4> v,
              View<const Index, 1> lengths = {});
  /// Copies k.shape[1] keys and values of a sequence from its key `first` on: what append() was given, to k [kv_heads, tokens, head_dim]
  /// and v [kv_heads, tokens, value_dim], any strides.
  void read(Index sequence, Index first, View<float, 3> k, View<float, 3> v) const;
  /// Keeps the first `length` keys.
  void truncate(Index sequence, Index length);
  /// Forgets a sequence; pages that no other one shares are free again.
  void remove(Index sequence);

  /// Keys of a sequence.
  [[nodiscard]] Index length(Index sequence) const;
  [[nodiscard]] Index kv_heads() const;
  [[nodiscard]] Index head_dim() const;
  [[nodiscard]] Index value_dim() const;
  [[nodiscard]] Index page_size() const;
  /// Pages that sequences hold, each counted once however many share it.
  [[nodiscard]] Index pages_in_use() const;
  /// Memory of one page: 4 · kv_heads · page_size · (head_dim + value_dim rounded up to a multiple of 32).
  [[nodiscard]] std::size_t page_bytes() const;
  /// Memory that it holds, pages that are free but kept for later included.
  [[nodiscard]] std::size_t bytes() const;
  /// For attention().
  [[nodiscard]] const internal::KvPages& pages() const;

 private:
  [[nodiscard]] internal::KvPages& pages(const char* function) const;

  std::unique_ptr<internal::KvPages> pages_;
};

}  // namespace headlane
