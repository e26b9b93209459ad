// Blocks of memory that share huge pages: apart from each other, freed in any order, from any
// thread; and Linux is asked for huge pages.
#include "core/huge_pages.hpp"
#include "support/data.hpp"
#include "support/process.hpp"

#include <doctest/doctest.h>
#include <headlane/packed_matrix.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace headlane::test {

using namespace internal;
namespace {

constexpr std::size_t kib = 1024, mib = 1024 * kib;

/// A block that is filled with one number.
struct Filled {
  explicit Filled(std::size_t bytes, unsigned char number) : block(allocate_block(bytes)), size(bytes), value(number) {
    if (block) std::memset(block.get(), value, size);
  }
  [[nodiscard]] bool intact() const {
    const auto* bytes = static_cast<const unsigned char*>(block.get());
    for (std::size_t i = 0; i < size; ++i)
      if (bytes[i] != value) return false;
    return true;
  }
  std::unique_ptr<void, FreeBlock> block;
  std::size_t size;
  unsigned char value;
};

/// Allocates, checks and frees blocks of random sizes, shared and not. Returns what was wrong.
int wrong_blocks(std::uint64_t seed) {
  Random random(seed);
  std::vector<Filled> blocks;
  int wrong = 0;
  for (int step = 0; step < 300; ++step) {
    if (blocks.size() > 10 || (!blocks.empty() && random.integer(0, 2) == 0)) {
      const auto at = blocks.begin() + random.integer(0, static_cast<Index>(blocks.size()) - 1);
      wrong += !at->intact();
      std::swap(*at, blocks.back());
      blocks.pop_back();
    } else {
      const auto largest = static_cast<Index>(random.integer(0, 9) == 0 ? 5 * mib : 600 * kib);
      const auto& made = blocks.emplace_back(static_cast<std::size_t>(random.integer(1, largest)),
                                             static_cast<unsigned char>(random.integer(0, 255)));
      wrong += reinterpret_cast<std::uintptr_t>(made.block.get()) % 64 != 0;
    }
  }
  for (const Filled& last : blocks) wrong += !last.intact();
  return wrong;
}

TEST_CASE("blocks do not overlap, in whatever order they are freed, by several threads") {
  CHECK(wrong_blocks(1) == 0);
  std::vector<int> wrong(3);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < wrong.size(); ++i) threads.emplace_back([&wrong, i] { wrong[i] = wrong_blocks(2 + i); });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(3));
}

TEST_CASE("a block is freed by another thread than the one that made it") {
  std::vector<Filled> blocks;
  for (int i = 0; i < 8; ++i) blocks.emplace_back(700 * kib, static_cast<unsigned char>(i));
  std::thread([&] { blocks.erase(blocks.begin(), blocks.begin() + 4); }).join();
  for (const Filled& block : blocks) CHECK(block.intact());
}

TEST_CASE("blocks of zeros, where others have been") {
  for (const std::size_t bytes : {std::size_t{1}, 150 * kib, mib, mib + 1, 3 * mib, 9 * mib}) {
    CAPTURE(bytes);
    {
      const Filled before(bytes, 255);
    }
    const std::unique_ptr<void, FreeBlock> zeros(allocate_zeros(bytes));
    REQUIRE(zeros);
    CHECK(reinterpret_cast<std::uintptr_t>(zeros.get()) % 64 == 0);
    const auto* first = static_cast<const unsigned char*>(zeros.get());
    CHECK(std::all_of(first, first + bytes, [](unsigned char x) { return x == 0; }));
  }
}

TEST_CASE("sizes that do not fit into memory") {
  CHECK(allocate_block(std::size_t{1} << 62) == nullptr);
  CHECK(allocate_zeros(std::size_t{1} << 62) == nullptr);
  CHECK(allocate_pages(std::size_t{1} << 62, 4096) == nullptr);
  free_block(nullptr);
}

#if !defined(HEADLANE_TEST_SANITIZED)  // there, each block has memory of its own
TEST_CASE("blocks that are made one after the other lie side by side, and the last one leaves no gap") {
  const std::unique_ptr<void, FreeBlock> first(allocate_block(200 * kib));
  std::unique_ptr<void, FreeBlock> second(allocate_block(200 * kib));
  const auto distance = [&](const void* block) {
    return static_cast<const std::byte*>(block) - static_cast<const std::byte*>(first.get());
  };
  CHECK(distance(second.get()) == 200 * kib + 64);
  for (int i = 0; i < 100; ++i) {  // 20 MiB in all
    second.reset();
    second.reset(allocate_block(200 * kib));
    CHECK(distance(second.get()) == 200 * kib + 64);
  }
}
#endif

#if !defined(HEADLANE_TEST_SANITIZED)
// Every second one is freed: their memory is used again, or the system's.
TEST_CASE("what is freed between other blocks is used again, and whole pages go back to the system") {
  for (const std::size_t bytes : {150 * kib, 3 * mib}) {
    std::vector<Filled> kept, freed;
    const std::size_t before = bytes_of_process("RssAnon");
    for (std::size_t i = 0; i < 60 * mib / bytes; ++i) {
      kept.emplace_back(bytes, 1);
      freed.emplace_back(bytes, 2);
    }
    const std::size_t all = bytes_of_process("RssAnon") - before;
    freed.clear();
    if (bytes > 2 * mib) CHECK(bytes_of_process("RssAnon") - before < all - 30 * mib / 2);
    for (std::size_t i = 0; i < 60 * mib / bytes; ++i) freed.emplace_back(bytes, 3);
    CHECK(bytes_of_process("RssAnon") - before < all + 4 * mib);
    for (const Filled& block : kept) CHECK(block.intact());
    for (const Filled& block : freed) CHECK(block.intact());
  }
}

TEST_CASE("a child of fork() allocates, whatever another thread of its parent was doing") {
  std::atomic<bool> stop = false;
  std::thread other([&stop] {
    while (!stop) const Filled block(150 * kib, 1);
  });
  int failed = 0;
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);  // instead of a deadlock
      free_block(allocate_block(150 * kib));
      _exit(0);
    }
    int status = 1;
    failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
  }
  stop = true;
  other.join();
  CHECK(failed == 0);
}
#endif

#ifdef __linux__
/// The flags of the mapping that has this address ("VmFlags: rd wr ..."), empty if none is found.
std::string flags_of(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream file("/proc/self/smaps");
  bool inside = false;
  for (std::string text; std::getline(file, text);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream line(text);
    if (line >> std::hex >> begin >> dash >> end && dash == '-') inside = begin <= wanted && wanted < end;
    if (inside && text.starts_with("VmFlags:")) return text;
  }
  return {};
}

TEST_CASE("Linux is asked for huge pages") {
  const std::unique_ptr<void, decltype(&std::free)> probe(allocate_pages(4 * mib, 64), &std::free);
  REQUIRE(probe != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(probe.get()) % (2 * mib) == 0);
  std::ifstream enabled("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!enabled || flags_of(probe.get()).empty()) return;  // a kernel without, or an emulator
  CHECK(flags_of(probe.get()).find(" hg") != std::string::npos);
  const std::vector<float> b(1024 * 1024);
  const PackedMatrix large(View<const float, 2>(b.data(), {1024, 1024}));
  CHECK(flags_of(static_cast<const std::byte*>(large.data()) + mib).find(" hg") != std::string::npos);
#if !defined(HEADLANE_TEST_SANITIZED)
  const PackedMatrix small(View<const float, 2>(b.data(), {512, 256}));
  CHECK(flags_of(small.data()).find(" hg") != std::string::npos);
#endif
}
#endif

}  // namespace
}  // namespace headlane::test
