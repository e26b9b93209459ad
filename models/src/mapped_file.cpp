#include "mapped_file.hpp"

#include "error.hpp"

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headlane::models {
namespace {

class Descriptor {
 public:
  // Nonblocking, so that a pipe is refused instead of waited for.
  explicit Descriptor(const std::filesystem::path& path)
      : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}  // NOLINT(*-vararg): POSIX
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }

  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail_with_errno(const std::filesystem::path& path, const char* what) {
  const int error = errno;
  fail(path, what, std::generic_category().message(error));
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const Descriptor file(path_);
  if (file.number() < 0) fail_with_errno(path_, "cannot be opened: ");
  struct stat status{};
  if (fstat(file.number(), &status) != 0) fail_with_errno(path_, "cannot be examined: ");
  if (!S_ISREG(status.st_mode)) fail(path_, "is no regular file");
  if (status.st_size <= 0) fail(path_, "is empty");
  size_ = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (data == MAP_FAILED) fail_with_errno(path_, "cannot be mapped into memory: ");
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() { munmap(const_cast<std::byte*>(data_), size_); }

// Not MADV_SEQUENTIAL: it lets the kernel forget pages once they were read, and weights are read again and again.
void MappedFile::fetch(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(part.data() - data_);
  const std::size_t begin = offset / page * page;
  // Only a hint: that it fails changes nothing.
  madvise(const_cast<std::byte*>(data_) + begin, offset + part.size() - begin, MADV_WILLNEED);
}

}  // namespace headlane::models
