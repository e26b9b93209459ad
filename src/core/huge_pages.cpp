#include "core/huge_pages.hpp"

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
/// Room for several blocks. Only what they use of it becomes memory, in whole huge pages.
constexpr std::size_t chunk_bytes = 4 * huge_page;
/// Larger blocks have memory of their own; smaller ones, too, as they have few pages.
constexpr std::size_t largest_shared = chunk_bytes / 2, smallest_shared = std::size_t{128} << 10;
constexpr std::size_t largest_cleared = huge_page / 2;

/// At the beginning of the memory that blocks share.
struct alignas(line) Chunk {
  std::size_t used, blocks;  // bytes, with this header
};

/// Before each block.
struct alignas(line) Header {
  Chunk* chunk;       // null: a block with memory of its own,
  void* memory;       // which begins here
  std::size_t bytes;  // with this header
};

/// The chunk that is being filled.
constinit Chunk* filling = nullptr;
constinit std::mutex mutex;

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

constexpr bool may_share(std::size_t bytes) {
#ifdef HEADLANE_ADDRESS_SANITIZER
  static_cast<void>(bytes);
  return false;  // it would not see what is read behind a block
#else
  return bytes >= smallest_shared && bytes <= largest_shared;
#endif
}

void survive_fork() {
  // A child of fork() has one thread, which must not wait for a lock that another one held.
  static const int prepared = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  static_cast<void>(prepared);
}

/// Returns null if memory runs out.
Header* take_from_chunk(std::size_t bytes) {
  survive_fork();
  const std::lock_guard lock(mutex);
  if (filling == nullptr || filling->used + bytes > chunk_bytes) {
    void* memory = allocate_pages(chunk_bytes, line);
    if (memory == nullptr) return nullptr;
    filling = new (memory) Chunk{sizeof(Chunk), 0};
  }
  void* at = reinterpret_cast<std::byte*>(filling) + filling->used;
  filling->used += bytes;
  ++filling->blocks;
  return new (at) Header{filling, nullptr, bytes};
}

void return_to_chunk(const Header* header) {
  const std::lock_guard lock(mutex);
  Chunk* chunk = header->chunk;
  const std::byte* end = reinterpret_cast<const std::byte*>(header) + header->bytes;
  // What was allocated last makes room for the next block.
  if (end == reinterpret_cast<std::byte*>(chunk) + chunk->used) chunk->used -= header->bytes;
  if (--chunk->blocks > 0) return;
  if (chunk == filling) filling = nullptr;
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
  if (may_share(all)) {
    Header* header = take_from_chunk(all);
    return header == nullptr ? nullptr : header + 1;
  }
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
  const Header* header = static_cast<Header*>(block) - 1;
  if (header->chunk == nullptr) std::free(header->memory);
  else return_to_chunk(header);
}

}  // namespace headlane::internal
