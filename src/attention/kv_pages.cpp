// Pages of a KvCache: allocation, and sharing.
#include "attention/kv_pages.hpp"

#include <algorithm>
#include <new>

namespace headlane::internal {
namespace {

/// Tokens of one head that one page holds: `count` from `first` on, as keys `at_key` … of the page.
struct Part {
  Index head, first, count, at_key;
};

template <class T>
View<T, 2> tokens_of(const View<T, 3>& x, const Part& part) {
  return {x.data + part.head * x.strides[0] + part.first * x.strides[1],
          {part.count, x.shape[2]},
          {x.strides[1], x.strides[2]}};
}

/// Calls f(head, part) for each head of the pages that hold these keys of a sequence.
template <class F>
void for_heads_of_pages(const KvPages& pages, Index sequence, Index first_key, Index tokens, const F& f) {
  const Index page_size = pages.page_size;
  for (Index done = 0, count = 0; done < tokens; done += count) {
    const Index key = first_key + done, at_key = key % page_size;
    count = std::min(page_size - at_key, tokens - done);
    for (Index head = 0; head < pages.kv_heads; ++head)
      f(pages.head(sequence, head, key / page_size), Part{head, done, count, at_key});
  }
}

}  // namespace

bool KvPages::has(Index sequence) const {
  return sequence >= 0 && sequence < static_cast<Index>(sequences.size()) && at(sequence).length >= 0;
}

Index KvPages::length(Index sequence) const { return at(sequence).length; }

HeadOfPage KvPages::head(Index sequence, Index head, Index page) const {
  return head_of(*at(sequence).pages[static_cast<std::size_t>(page)], head);
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
    drop_pages(before);
    throw;
  }
}

void KvPages::drop_pages(std::size_t kept) noexcept {
  for (; pages.size() > kept; pages.pop_back()) static_cast<void>(take_page());  // the last one made
}

void KvPages::make_page() {
  std::unique_ptr<void, FreeBlock> memory(allocate_zeros(page_bytes()));
  if (!memory) throw std::bad_alloc();
  Page& page = pages.emplace_back();
  page.number = static_cast<Index>(pages.size()) - 1;
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
    for (Index head = 0; head < kv_heads; ++head) head_of(*own, head).copy(head_of(*shared, head), used);
    growing.pages.back() = own;
    release(shared);
  }
  const auto size = static_cast<std::size_t>(pages_of(growing.length + tokens));
  while (growing.pages.size() < size) growing.pages.push_back(take_page());
}

void KvPages::write(const kernels::KernelTable& kernel, Index sequence, Index first, const View<const float, 3>& k,
                    const View<const float, 3>& v, float* scratch) const noexcept {
  for_heads_of_pages(*this, sequence, first, k.shape[1], [&](const HeadOfPage& head, const Part& x) {
    head.write(kernel, x.at_key, tokens_of(k, x), tokens_of(v, x), scratch);
  });
}

void KvPages::read(Index sequence, Index first, const View<float, 3>& k, const View<float, 3>& v) const noexcept {
  for_heads_of_pages(*this, sequence, first, k.shape[1], [&](const HeadOfPage& head, const Part& x) {
    head.read(x.at_key, tokens_of(k, x), tokens_of(v, x));
  });
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
