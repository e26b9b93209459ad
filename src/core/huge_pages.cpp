#include "core/huge_pages.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <pthread.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HEADLANE_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEADLANE_ADDRESS_SANITIZER
#endif
#endif

namespace headlane::internal {
namespace {

constexpr std::size_t line = 64, huge_page = std::size_t{2} << 20;
/// Room for many blocks. Only what they use of it becomes memory, in whole huge pages.
constexpr std::size_t chunk_bytes = 16 * huge_page;
constexpr std::size_t largest_shared = 2 * huge_page, largest_cleared = huge_page / 2;
/// What the last chunk keeps in memory when it is empty, for matrices that come and go.
constexpr std::size_t kept_bytes = largest_shared;

/// What no block has, in the memory that it describes.
struct alignas(line) Hole {
  std::size_t bytes;
  Hole* next;  // behind this one, not adjacent
};

/// At the beginning of the memory that blocks share.
struct alignas(line) Chunk {
  Chunk* next;
  Hole* holes;
  std::size_t blocks;
};

/// Before each block.
struct alignas(line) Header {
  Chunk* chunk;       // null: a block with memory of its own,
  void* memory;       // which begins here
  std::size_t bytes;  // with this header
};

constinit Chunk* chunks = nullptr;
constinit std::mutex mutex;

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

/// Larger blocks have memory of their own; smaller ones, too, as they have few pages.
constexpr bool may_share(std::size_t bytes) {
#ifdef HEADLANE_ADDRESS_SANITIZER
  return bytes == 0;  // never: it would not see what is read behind a block
#else
  return bytes >= std::size_t{128} << 10 && bytes <= largest_shared;
#endif
}

void survive_fork() {
  // A child of fork() has one thread, which must not wait for a lock that another one held.
  static const int prepared = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  static_cast<void>(prepared);
}

std::byte* end_of(Hole* hole) { return reinterpret_cast<std::byte*>(hole) + hole->bytes; }

/// The link to the first hole of at least so many bytes; null if there is none.
Hole** find_hole(Chunk& chunk, std::size_t bytes) {
  for (Hole** link = &chunk.holes; *link != nullptr; link = &(*link)->next)
    if ((*link)->bytes >= bytes) return link;
  return nullptr;
}

/// A chunk without blocks, behind all others. Returns null if memory runs out.
Chunk* add_chunk(Chunk** last) {
  void* memory = allocate_pages(chunk_bytes, line);
  if (memory == nullptr) return nullptr;
  *last = new (memory) Chunk{nullptr, nullptr, 0};
  (*last)->holes = new (*last + 1) Hole{chunk_bytes - sizeof(Chunk), nullptr};
  return *last;
}

/// The first hole that is large enough, in the oldest chunk that has one. Returns null if memory
/// runs out.
Header* take_from_chunk(std::size_t bytes) {
  survive_fork();
  const std::lock_guard lock(mutex);
  Chunk** chunk = &chunks;
  while (*chunk != nullptr && find_hole(**chunk, bytes) == nullptr) chunk = &(*chunk)->next;
  if (*chunk == nullptr && add_chunk(chunk) == nullptr) return nullptr;
  Hole** link = find_hole(**chunk, bytes);
  Hole* hole = *link;
  *link = hole->next;
  if (hole->bytes > bytes)
    *link = new (reinterpret_cast<std::byte*>(hole) + bytes) Hole{hole->bytes - bytes, hole->next};
  ++(*chunk)->blocks;
  return new (hole) Header{*chunk, nullptr, bytes};
}

/// Makes one hole of this one and the next, if they are adjacent.
bool join_next(Hole* hole) {
  if (hole->next == nullptr || end_of(hole) != reinterpret_cast<std::byte*>(hole->next)) return false;
  hole->bytes += hole->next->bytes;
  hole->next = hole->next->next;
  return true;
}

/// Gives whole huge pages from so many bytes of a hole on back to the system.
void give_back(Hole* hole, std::size_t from) {
#ifdef __linux__
  auto* const at = reinterpret_cast<std::byte*>(hole);
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const std::size_t begin = rounded_up(address + std::max(from, sizeof(Hole)), huge_page) - address;
  const std::size_t rest = (address + hole->bytes) % huge_page;
  if (begin + rest < hole->bytes) madvise(at + begin, hole->bytes - rest - begin, MADV_DONTNEED);
#else
  static_cast<void>(hole), static_cast<void>(from);
#endif
}

/// Frees the last chunk when the process ends, or the plugin that the library is part of.
[[gnu::destructor]] void unload() {
  const std::lock_guard lock(mutex);
  if (chunks == nullptr || chunks->next != nullptr || chunks->blocks > 0) return;
  std::free(chunks);
  chunks = nullptr;
}

/// Makes a hole, one with those before and behind it. A chunk of holes alone is freed, but for the
/// last one.
void return_to_chunk(Header* header) {
  const std::lock_guard lock(mutex);
  Chunk* chunk = header->chunk;
  const std::size_t bytes = header->bytes;
  Hole *before = nullptr, *behind = chunk->holes;
  while (behind != nullptr && reinterpret_cast<std::byte*>(behind) < reinterpret_cast<std::byte*>(header)) {
    before = behind;
    behind = behind->next;
  }
  Hole* hole = new (header) Hole{bytes, behind};
  (before == nullptr ? chunk->holes : before->next) = hole;
  join_next(hole);
  if (before != nullptr && join_next(before)) hole = before;
  if (--chunk->blocks > 0) return give_back(hole, 0);
  if (chunks == chunk && chunk->next == nullptr) return give_back(hole, kept_bytes);
  Chunk** link = &chunks;
  while (*link != chunk) link = &(*link)->next;
  *link = chunk->next;
  std::free(chunk);
}

}  // namespace

void* allocate_pages(std::size_t bytes, std::size_t alignment) noexcept {
  if (bytes < huge_page) return std::aligned_alloc(alignment, rounded_up(bytes, alignment));
  const std::size_t rounded = rounded_up(bytes, huge_page);
  void* memory = std::aligned_alloc(huge_page, rounded);
#ifdef __linux__
  // The last page is a huge one, too, if it wastes at most an eighth of all.
  const bool also_last = rounded - bytes <= bytes / 8;
  if (memory != nullptr) madvise(memory, also_last ? rounded : rounded - huge_page, MADV_HUGEPAGE);
#endif
  return memory;
}

void* allocate_block(std::size_t bytes) noexcept {
  const std::size_t all = sizeof(Header) + rounded_up(bytes, line);
  if (may_share(all))
    if (Header* header = take_from_chunk(all); header != nullptr) return header + 1;
  void* memory = allocate_pages(all, line);
  return memory == nullptr ? nullptr : new (memory) Header{nullptr, memory, all} + 1;
}

void* allocate_zeros(std::size_t bytes) noexcept {
  if (bytes <= largest_cleared) {
    void* block = allocate_block(bytes);
    return block == nullptr ? nullptr : std::memset(block, 0, bytes);
  }
  const std::size_t all = sizeof(Header) + bytes;
  void* memory = std::calloc(all + line - 1, 1);  // not written to by the C library, if it is from the system
  if (memory == nullptr) return nullptr;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(memory) % line;
  void* at = static_cast<std::byte*>(memory) + (line - past) % line;
  return new (at) Header{nullptr, memory, all} + 1;
}

void free_block(void* block) noexcept {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  if (header->chunk == nullptr) std::free(header->memory);
  else return_to_chunk(header);
}

}  // namespace headlane::internal
