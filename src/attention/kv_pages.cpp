// Pages of a KvCache: allocation, sharing, and the layout in which keys and values are stored.
#include "attention/kv_pages.hpp"

#include <algorithm>
#include <cstdint>
#include <new>

namespace headlane::internal {
namespace {

using kernels::lanes;
using kernels::panel_columns;

/// Stores k as the keys first … first + k.shape[0] - 1 of a page. The kernel transposes groups of
/// 16 keys in registers and pads the last group with zeros. It would overwrite keys before `first`,
/// so the columns up to the next group are stored one by one.
void write_keys(const kernels::KernelTable& kernel, Index first, const View<const float, 2>& k, float* keys) noexcept {
  const Index dim = k.shape[1], end = first + k.shape[0];
  for (Index key = first; key < end;) {
    const Index column = key % panel_columns;
    const float* from = k.data + (key - first) * k.strides[0];
    float* to = keys + (key - column) * dim + column;
    const Index group = column % lanes == 0 ? panel_columns - column : lanes - column % lanes;
    const Index count = std::min(group, end - key);
    if (column % lanes == 0) {
      kernel.pack_panels({from, dim, count, k.strides[1], k.strides[0]}, to);
    } else {
      for (Index d = 0; d < dim; ++d)
        for (Index i = 0; i < count; ++i) to[d * panel_columns + i] = from[i * k.strides[0] + d * k.strides[1]];
    }
    key += count;
  }
}

/// Stores v as the values from `first` on: they are rows of their panels and need no transposing.
void write_values(const kernels::KernelTable& kernel, Index first, const View<const float, 2>& v, Index page_size,
                  float* values) noexcept {
  for (Index column = 0; column < v.shape[1]; column += panel_columns) {
    const Index columns = std::min(panel_columns, v.shape[1] - column);
    kernel.pack_panels({v.data + column * v.strides[1], v.shape[0], columns, v.strides[0], v.strides[1]},
                       values + column * page_size + first * panel_columns);
  }
}

}  // namespace

bool KvPages::has(Index sequence) const {
  return sequence >= 0 && sequence < static_cast<Index>(sequences.size()) && at(sequence).length >= 0;
}

Index KvPages::length(Index sequence) const { return at(sequence).length; }

const float* KvPages::keys(Index sequence, Index head, Index page) const {
  return at(sequence).pages[static_cast<std::size_t>(page)]->data + head * head_floats();
}

const float* KvPages::values(Index sequence, Index head, Index page) const {
  return keys(sequence, head, page) + page_size * head_dim;
}

Index KvPages::add(Index source, Index length) {
  if (free_number < 0) {
    sequences.emplace_back();
    sequences.back().length = -1;
    free_number = static_cast<Index>(sequences.size()) - 1;
  }
  Sequence& added = at(free_number);
  if (source >= 0) {
    const std::vector<Page*>& from = at(source).pages;
    added.pages.assign(from.begin(), from.begin() + pages_of(length));
  }
  for (Page* page : added.pages) ++page->holders;
  added.length = length;
  const Index number = free_number;
  free_number = added.next_free;
  return number;
}

void KvPages::reserve_table(Index sequence, Index tokens) {
  std::vector<Page*>& table = at(sequence).pages;
  const auto size = static_cast<std::size_t>(pages_of(length(sequence) + tokens));
  if (size > table.capacity()) table.reserve(std::max(size, 2 * table.capacity()));
}

void KvPages::reserve_pages(Index count) {
  const std::size_t before = pages.size();
  try {
    while (free_pages < count) make_page();
  } catch (...) {
    for (; pages.size() > before; pages.pop_back()) static_cast<void>(take_page());  // the last one made
    throw;
  }
}

void KvPages::make_page() {
  constexpr std::size_t line = 64;
  // Zeros from the system: a long page is backed by memory only as far as it is used.
  std::unique_ptr<void, Page::Free> memory(std::calloc(page_bytes() + line, 1));
  if (!memory) throw std::bad_alloc();
  const std::size_t past = reinterpret_cast<std::uintptr_t>(memory.get()) % line;
  Page& page = pages.emplace_back();
  page.number = static_cast<Index>(pages.size()) - 1;
  page.data = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + (line - past) % line);
  page.memory = std::move(memory);
  page.next_free = free_page;
  free_page = &page;
  ++free_pages;
}

KvPages::Page* KvPages::take_page() noexcept {
  Page* page = free_page;
  free_page = page->next_free;
  --free_pages;
  page->holders = 1;
  return page;
}

void KvPages::release(Page* page) noexcept {
  if (--page->holders > 0) return;
  page->next_free = free_page;
  free_page = page;
  ++free_pages;
}

void KvPages::grow(Index sequence, Index tokens) noexcept {
  Sequence& growing = at(sequence);
  const Index used = growing.length % page_size;
  if (used > 0 && growing.pages.back()->holders > 1) {
    Page* const shared = growing.pages.back();
    Page* const own = take_page();
    for (Index head = 0; head < kv_heads; ++head) {
      const float* from = shared->data + head * head_floats();
      float* to = own->data + head * head_floats();
      std::copy_n(from, round_up(used, panel_columns) * head_dim, to);
      for (Index column = 0; column < value_width(); column += panel_columns) {
        const Index offset = page_size * (head_dim + column);
        std::copy_n(from + offset, used * panel_columns, to + offset);
      }
    }
    growing.pages.back() = own;
    release(shared);
  }
  const auto size = static_cast<std::size_t>(pages_of(growing.length + tokens));
  while (growing.pages.size() < size) growing.pages.push_back(take_page());
}

void KvPages::write(const kernels::KernelTable& kernel, Index sequence, Index first, const View<const float, 3>& k,
                    const View<const float, 3>& v) noexcept {
  const Index tokens = k.shape[1];
  for (Index done = 0; done < tokens;) {
    const Index key = first + done, at_key = key % page_size, count = std::min(page_size - at_key, tokens - done);
    float* page = at(sequence).pages[static_cast<std::size_t>(key / page_size)]->data;
    for (Index head = 0; head < kv_heads; ++head, page += head_floats()) {
      const View<const float, 2> head_k(k.data + head * k.strides[0] + done * k.strides[1], {count, head_dim},
                                        {k.strides[1], k.strides[2]});
      const View<const float, 2> head_v(v.data + head * v.strides[0] + done * v.strides[1], {count, value_dim},
                                        {v.strides[1], v.strides[2]});
      write_keys(kernel, at_key, head_k, page);
      write_values(kernel, at_key, head_v, page_size, page + page_size * head_dim);
    }
    done += count;
  }
}

void KvPages::read(Index sequence, Index first, const View<float, 3>& k, const View<float, 3>& v) const noexcept {
  for (Index head = 0; head < kv_heads; ++head)
    for (Index i = 0; i < k.shape[1]; ++i) {
      const Index page = (first + i) / page_size, at_key = (first + i) % page_size, column = at_key % panel_columns;
      const float* from = keys(sequence, head, page) + (at_key - column) * head_dim + column;
      for (Index d = 0; d < head_dim; ++d) k(head, i, d) = from[d * panel_columns];
      from = values(sequence, head, page) + at_key * panel_columns;
      for (Index d = 0; d < value_dim; ++d)
        v(head, i, d) = from[d / panel_columns * panel_columns * page_size + d % panel_columns];
    }
}

void KvPages::truncate(Index sequence, Index length) noexcept {
  Sequence& kept = at(sequence);
  const auto size = static_cast<std::size_t>(pages_of(length));
  for (; kept.pages.size() > size; kept.pages.pop_back()) release(kept.pages.back());
  kept.length = length;
}

void KvPages::remove(Index sequence) noexcept {
  truncate(sequence, 0);
  at(sequence).length = -1;
  at(sequence).next_free = free_number;
  free_number = sequence;
}

}  // namespace headlane::internal
