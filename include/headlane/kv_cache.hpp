// The keys and values of growing sequences, stored in the order in which attention reads them.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace headlane {

namespace internal {
struct KvPages;
}

struct KvCacheOptions {
  /// Keys of a page: 32, 64, 128, 256 or a multiple of 512. Short pages waste less at the end of a
  /// sequence and share more between sequences. A page as long as the longest sequence keeps each
  /// sequence contiguous.
  Index page_size = 128;
  /// Maximum number of pages held at a time; 0: unbounded.
  Index max_pages = 0;
  /// How keys and values are stored. bfloat16 and float16: rounded to nearest, ties to even. int8:
  /// each key and each value, of each kv head, as q · scale with a scale of its own, max|x| / 127
  /// rounded to 16 bits (0 if that is less than 2^-126), and q = x / scale rounded to an integer,
  /// both to nearest, ties to even. q · scale is exact in float. Other types are refused.
  DType type = DType::float32;
};

/// The keys and values that the queries of one attention layer attend to, for any number of
/// sequences. A sequence is a table of pages; forked sequences share pages until one of them is
/// appended to (PagedAttention; Kwon et al. 2023).
///
/// attention() over a cache (attention.hpp) is bit-identical to attention() over the same keys and
/// values in plain tensors; of another type than float32, over those that read() returns: elements
/// are widened exactly, and all arithmetic is that of float. How a token is stored depends on
/// nothing but the token: not on its neighbours, nor on how tokens are divided among calls of
/// append(). What read() returned is stored without a change if it is appended to a cache of the
/// same type. A sequence is identified by the number that add() or fork() returned; remove() makes
/// the number free for another sequence.
///
/// Threads: const member functions and attention() may run concurrently; all other functions need
///   exclusive access.
/// Memory: bytes(). Linux is asked for huge pages, as for a PackedMatrix; a page of more than 1 MiB
///   has small ones, which become memory when they are used.
/// Errors: std::invalid_argument for sizes that do not match, for a type that is none, for
///   sequences that do not exist, and if the type is int8 for a number that is not finite;
///   std::length_error if max_pages would be exceeded; std::bad_alloc. The cache is then unchanged.
///   A cache that was moved from can be destroyed and assigned to; anything else throws
///   std::invalid_argument.
class HEADLANE_API KvCache {
 public:
  /// head_dim (of the keys) and value_dim: 1 … max_head_dim (limits.hpp). Without kv heads, it has
  /// the lengths of sequences alone: that of a rank whose team has fewer heads than ranks (Team).
  KvCache(Index kv_heads, Index head_dim, Index value_dim, const KvCacheOptions& options = {});
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  /// Adds a sequence without keys; returns its number.
  [[nodiscard]] Index add();
  /// Adds a sequence of the first `length` keys of another one (-1: all); returns its number. The
  /// two share pages; nothing is copied.
  [[nodiscard]] Index fork(Index sequence, Index length = -1);
  /// Appends copies of the keys k [kv_heads, tokens, head_dim] and the values
  /// v [kv_heads, tokens, value_dim], any strides, to a sequence. A last page that other sequences
  /// share is copied first.
  void append(Index sequence, View<const float, 3> k, View<const float, 3> v);
  /// In bfloat16 and float16: what append() of the same numbers in float32 does. Scratch holds
  /// float32 copies of k and v, of which the calling thread keeps up to 64 MiB.
  void append(Index sequence, View<const bfloat16, 3> k, View<const bfloat16, 3> v);
  void append(Index sequence, View<const float16, 3> k, View<const float16, 3> v);
  /// Appends to several sequences, each named once: k [sequences, kv_heads, tokens, head_dim],
  /// v [sequences, kv_heads, tokens, value_dim]. With lengths [sequences], only the first
  /// lengths[s] tokens of sequence s are appended; the others are padding and are not read.
  void append(std::span<const Index> sequences, View<const float, 4> k, View<const float, 4> v,
              View<const Index, 1> lengths = {});
  void append(std::span<const Index> sequences, View<const bfloat16, 4> k,
              View<const bfloat16, 4> v, View<const Index, 1> lengths = {});
  void append(std::span<const Index> sequences, View<const float16, 4> k, View<const float16, 4> v,
              View<const Index, 1> lengths = {});
  /// Copies keys and values of a sequence, as append() received them or as they were rounded, from
  /// key `first` on: k.shape[1] of them, to k [kv_heads, tokens, head_dim] and
  /// v [kv_heads, tokens, value_dim], any strides.
  void read(Index sequence, Index first, View<float, 3> k, View<float, 3> v) const;
  /// The same, rounded to nearest, ties to even; scratch as append().
  void read(Index sequence, Index first, View<bfloat16, 3> k, View<bfloat16, 3> v) const;
  void read(Index sequence, Index first, View<float16, 3> k, View<float16, 3> v) const;
  /// Keeps the first `length` keys of a sequence.
  void truncate(Index sequence, Index length);
  /// Removes a sequence; pages that no other sequence shares become free.
  void remove(Index sequence);

  /// Whether a sequence has this number; any number may be asked about.
  [[nodiscard]] bool has(Index sequence) const;
  /// Number of keys of a sequence.
  [[nodiscard]] Index length(Index sequence) const;
  /// The numbers of all sequences, in ascending order.
  [[nodiscard]] std::vector<Index> sequences() const;
  /// The numbers that are free again, in the order in which add() and fork() will return them.
  /// After these follow numbers that no sequence has had: sequences().size() +
  /// free_numbers().size() and up.
  [[nodiscard]] std::vector<Index> free_numbers() const;
  /// The pages of a sequence, by number, in the order of its keys: where sequences share a page,
  /// both have its number.
  [[nodiscard]] std::vector<Index> page_table(Index sequence) const;

  [[nodiscard]] Index kv_heads() const;
  [[nodiscard]] Index head_dim() const;
  [[nodiscard]] Index value_dim() const;
  [[nodiscard]] Index page_size() const;
  [[nodiscard]] Index max_pages() const;
  [[nodiscard]] DType type() const;
  /// Pages that sequences hold; a shared page counts once.
  [[nodiscard]] Index pages_in_use() const;
  /// Bytes of one page: size_of(type()) · kv_heads · page_size · (head_dim + value_dim rounded up
  /// to a multiple of 32); int8 has 8 · kv_heads · page_size more for the scales.
  [[nodiscard]] std::size_t page_bytes() const;
  /// Bytes of all pages, including free ones that are kept for later.
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend struct internal::KvPages;
  [[nodiscard]] internal::KvPages& pages(const char* function) const;

  std::unique_ptr<internal::KvPages> pages_;
};

}  // namespace headlane
