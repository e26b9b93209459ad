// The system may give fewer bytes than were asked for, and be interrupted: what is read is the
// same.
#include "support/sanitized.hpp"
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>

#include <cerrno>
#include <cstring>

#include <sys/syscall.h>
#include <unistd.h>

// Sanitizers have a pread of their own.
#if !defined(HEADLANE_TEST_SANITIZED) && defined(SYS_pread64)

namespace {

/// Replaces pread in this program.
struct Reads {
  std::size_t most = SIZE_MAX;  ///< bytes that a call gives
  bool interrupted = false;     ///< every second call
  long calls = 0;
  off_t next = -1, end = -1;  ///< where the last call ended, and the end of what it was asked for
  bool stays = true;          ///< a call that goes on where the last one ended is asked for the rest of it
};
Reads reads;

}  // namespace

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" ssize_t pread(int descriptor, void* to, std::size_t size, off_t from) {
  if (++reads.calls % 2 == 0 && reads.interrupted) {
    errno = EINTR;
    return -1;
  }
  const off_t end = from + static_cast<off_t>(size);
  if (from == reads.next && reads.next < reads.end) reads.stays = reads.stays && end == reads.end;
  const long n = syscall(SYS_pread64, descriptor, to, std::min(size, reads.most), from);
  reads.next = from + n;
  reads.end = end;
  return n;
}

namespace headlane::test {
namespace {

std::vector<float> elements_of(const models::Checkpoint& checkpoint) {
  std::vector<float> all;
  for (const std::string& name : checkpoint.names()) {
    const models::Tensor tensor = checkpoint.load(name);
    Index count = 1;
    for (int axis = 0; axis < tensor.view().rank; ++axis) count *= tensor.view().shape[static_cast<std::size_t>(axis)];
    all.insert(all.end(), tensor.view().data, tensor.view().data + count);
  }
  return all;
}

TEST_CASE("tensors of every type are the same, however many bytes a call gives") {
  for (const char* dtype : {"F32", "F16", "BF16"}) {
    const Folder folder;
    write_t5(folder, {.dtype = dtype});
    reads = {};
    const std::vector<float> right = elements_of(models::Checkpoint(folder.path()));
    const long calls = reads.calls;
    CHECK(right.size() > 5000);
    for (const std::size_t most : {std::size_t{1}, std::size_t{7}, std::size_t{1000}})
      for (const bool interrupted : {false, true}) {
        reads = {.most = most, .interrupted = interrupted};
        const std::vector<float> got = elements_of(models::Checkpoint(folder.path()));
        REQUIRE(got.size() == right.size());
        CHECK_MESSAGE(std::memcmp(got.data(), right.data(), right.size() * sizeof(float)) == 0, dtype, ", ", most);
        CHECK_MESSAGE(reads.stays, dtype, ", ", most, ": more was asked for than is wanted");
        CHECK(reads.calls > calls);
      }
  }
}

}  // namespace
}  // namespace headlane::test

#endif
