// Memory that is read from end to end, again and again: Linux is asked for huge pages of 2 MiB.
// Small pages cost a walk of the page tables every 4 KiB, in a virtual machine of two tables: there
// one row times packed float32 matrices read 24.5 GB/s, and 32 GB/s from huge pages (Zen 4).
#pragma once

#include <cstddef>

namespace headlane::internal {

/// At least `bytes` bytes, in huge pages if they fill one: then aligned to it, otherwise to
/// `alignment`, a power of two. Null if memory runs out. Freed by std::free.
[[nodiscard]] void* allocate_pages(std::size_t bytes, std::size_t alignment) noexcept;

/// The same aligned to a cache line, for what lives long: blocks of 128 KiB to 4 MiB lie side by
/// side in the huge pages of chunks, in the first hole that is large enough (Knuth, The Art of
/// Computer Programming 1, 2.5). Whole pages of a hole go back to the system; what is resident
/// beyond the blocks is at most 4 MiB in an empty chunk, or what pages at the ends of holes waste.
[[nodiscard]] void* allocate_block(std::size_t bytes) noexcept;
/// A block of zeros. Beyond 1 MiB it has small pages, which become memory when they are used.
[[nodiscard]] void* allocate_zeros(std::size_t bytes) noexcept;
/// Null is allowed.
void free_block(void* block) noexcept;

/// For a std::unique_ptr of a block.
struct FreeBlock {
  void operator()(void* block) const noexcept { free_block(block); }
};

}  // namespace headlane::internal
