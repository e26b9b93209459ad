// The memory of a KvCache: pages, and the tables of pages of its sequences.
#pragma once

#include "attention/kv_tokens.hpp"
#include "core/check.hpp"
#include "core/huge_pages.hpp"
#include "core/round.hpp"
#include "kernels/table.hpp"

#include <headlane/kv_cache.hpp>

#include <deque>
#include <memory>
#include <vector>

namespace headlane::internal {

/// The pages of a KvCache, and the tables of pages of its sequences.
///
/// A page has a HeadOfPage for each kv head. What is there after the last key of a sequence is left
/// over from earlier use: pages are not cleared when they are used again.
struct KvPages {
  struct Page {
    std::unique_ptr<void, FreeBlock> memory;
    Index number = 0;           // among all pages
    Page* next_free = nullptr;  // if it is free
    Index holders = 0;          // sequences that hold it; 0: it is free
    Index call = 0;             // the last append() that looked at it,
    Index claims = 0;           // and how many of the sequences of that append() end in it
  };
  struct Sequence {
    std::vector<Page*> pages;
    Index length = 0;      // -1: the number is free
    Index next_free = -1;  // the free number after this one
    Index call = 0;        // the last check_named_once() that saw it
  };

  /// The pages of a cache. Throws std::invalid_argument if the cache was moved from.
  static KvPages& of(KvCache& cache, Caller caller);
  static const KvPages& of(const KvCache& cache, Caller caller);

  Index kv_heads, head_dim, value_dim, page_size, max_pages;
  DType type = DType::float32;
  std::deque<Page> pages{};  // all of them; they do not move
  Page* free_page = nullptr;
  Index free_pages = 0;
  std::vector<Sequence> sequences{};
  Index free_number = -1;
  Index calls = 0;  // of append() and check_named_once()

  [[nodiscard]] bool has(Index sequence) const;
  [[nodiscard]] Index length(Index sequence) const;
  /// A kv head in page `page` of an existing sequence.
  [[nodiscard]] HeadOfPage head(Index sequence, Index head, Index page) const;

  [[nodiscard]] Index head_bytes() const { return page_size * HeadOfPage::bytes_of_token(type, head_dim, value_dim); }
  [[nodiscard]] std::size_t page_bytes() const { return static_cast<std::size_t>(kv_heads * head_bytes()); }
  /// Floats of scratch memory for write().
  [[nodiscard]] Index scratch_floats() const { return HeadOfPage::scratch_floats(type, head_dim, value_dim); }
  [[nodiscard]] Index pages_in_use() const { return static_cast<Index>(pages.size()) - free_pages; }
  [[nodiscard]] Index pages_of(Index keys) const { return ceil_div(keys, page_size); }

  // The functions below take checked arguments. Those that may throw leave everything unchanged if
  // they do.

  Sequence& at(Index sequence) { return sequences[static_cast<std::size_t>(sequence)]; }
  [[nodiscard]] const Sequence& at(Index sequence) const { return sequences[static_cast<std::size_t>(sequence)]; }
  /// Adds a sequence of the first `length` keys of `source`; without keys, if that is -1.
  Index add(Index source, Index length);
  /// Reserves room in the page table of a sequence for `tokens` more keys.
  void reserve_table(Index sequence, Index tokens);
  /// Makes pages until `count` are free.
  void reserve_pages(Index count);
  /// Keeps the first `kept` of all pages: the others were made last, and have not been taken.
  void drop_pages(std::size_t kept) noexcept;
  /// Takes reserved pages for `tokens` more keys; a shared last page is replaced by a copy.
  void grow(Index sequence, Index tokens) noexcept;
  /// Stores k [kv_heads, tokens, head_dim] and v [kv_heads, tokens, value_dim] as the keys and
  /// values from `first` on of a sequence that has the pages.
  void write(const kernels::KernelTable& kernel, Index sequence, Index first, const View<const float, 3>& k,
             const View<const float, 3>& v, float* scratch) const noexcept;
  /// Keeps the first keys, and releases the pages after them.
  void truncate(Index sequence, Index length) noexcept;
  void remove(Index sequence) noexcept;
  /// Copies keys and values from `first` on, widened.
  void read(Index sequence, Index first, const View<float, 3>& k, const View<float, 3>& v) const noexcept;

 private:
  [[nodiscard]] HeadOfPage head_of(const Page& page, Index head) const {
    return {type, page_size, head_dim, value_dim, static_cast<std::byte*>(page.memory.get()) + head * head_bytes()};
  }
  void make_page();
  Page* take_page() noexcept;
  void release(Page* page) noexcept;
};

}  // namespace headlane::internal
