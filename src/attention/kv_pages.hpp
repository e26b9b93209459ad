// What a KvCache holds: pages and the tables of pages of its sequences.
#pragma once

#include "core/round.hpp"
#include "kernels/table.hpp"

#include <headlane/kv_cache.hpp>

#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

namespace headlane::internal {

/// In a page, for each kv head: keys [page_size / 32][head_dim][32], as panels of the right operand
/// of q·kᵀ, then values [value_width / 32][page_size][32], as panels of the right operand of P·V.
/// The columns value_dim … value_width are zeros. What lies behind a sequence's last key, other
/// than those, is whatever was there before: pages are not cleared when they are used again.
struct KvPages {
  struct Page {  // floats and the number of sequences that hold it
    struct Free {
      void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<void, Free> memory;
    Index number = 0;           // among all pages
    float* data = nullptr;      // in that memory, at the start of a cache line
    Page* next_free = nullptr;  // if it is free
    Index holders = 0;          // 0: it is free
    Index call = 0;             // the last append() that looked at it,
    Index claims = 0;           // and how many sequences of that one end in it
  };
  struct Sequence {  // its pages and its length
    std::vector<Page*> pages;
    Index length = 0;      // -1: there is no such sequence
    Index next_free = -1;  // number, if there is not
    Index call = 0;        // the last append() that named it
  };

  Index kv_heads, head_dim, value_dim, page_size, max_pages;
  std::deque<Page> pages{};  // all of them; they do not move
  Page* free_page = nullptr;
  Index free_pages = 0;
  std::vector<Sequence> sequences{};
  Index free_number = -1;
  Index calls = 0;  // of append()

  [[nodiscard]] bool has(Index sequence) const;
  [[nodiscard]] Index length(Index sequence) const;
  /// Of a kv head, in the page that has the sequence's keys page_size · page …; both exist.
  [[nodiscard]] const float* keys(Index sequence, Index head, Index page) const;
  [[nodiscard]] const float* values(Index sequence, Index head, Index page) const;

  [[nodiscard]] Index value_width() const { return round_up(value_dim, kernels::panel_columns); }
  [[nodiscard]] Index head_floats() const { return page_size * (head_dim + value_width()); }
  [[nodiscard]] std::size_t page_bytes() const {
    return static_cast<std::size_t>(kv_heads * head_floats()) * sizeof(float);
  }
  [[nodiscard]] Index pages_in_use() const { return static_cast<Index>(pages.size()) - free_pages; }
  [[nodiscard]] Index pages_of(Index keys) const { return ceil_div(keys, page_size); }

  // What follows takes arguments that were checked. What may throw leaves everything as it was.

  Sequence& at(Index sequence) { return sequences[static_cast<std::size_t>(sequence)]; }
  [[nodiscard]] const Sequence& at(Index sequence) const { return sequences[static_cast<std::size_t>(sequence)]; }
  /// A new sequence of the first keys of another one; of no keys, if that is -1.
  Index add(Index source, Index length);
  /// Room for `tokens` more keys of a sequence in its table, and free pages.
  void reserve_table(Index sequence, Index tokens);
  void reserve_pages(Index count);
  /// Its last page is its own, and there are pages for `tokens` more keys: of those reserved.
  void grow(Index sequence, Index tokens) noexcept;
  /// k [kv_heads, tokens, head_dim] and v become the keys first … of a sequence; it has the pages.
  void write(const kernels::KernelTable& kernel, Index sequence, Index first, const View<const float, 3>& k,
             const View<const float, 3>& v) noexcept;
  /// Keeps the first keys; gives back the pages behind them.
  void truncate(Index sequence, Index length) noexcept;
  void remove(Index sequence) noexcept;
  /// What write() has written.
  void read(Index sequence, Index first, const View<float, 3>& k, const View<float, 3>& v) const noexcept;

 private:
  void make_page();
  Page* take_page() noexcept;
  void give_back(Page* page) noexcept;
};

}  // namespace headlane::internal
