#include "io/input_file.hpp"

#include "io/error.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headlane::models::internal {
namespace {

[[noreturn]] void fail_with_errno(const std::filesystem::path& path, std::string_view subject, const char* what) {
  const int error = errno;
  fail(path, subject, what, std::generic_category().message(error));
}

struct stat status_of(int descriptor, const std::filesystem::path& path, std::string_view subject) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) fail_with_errno(path, subject, "cannot be examined: ");
  return status;
}

/// Closes a descriptor unless it is released.
class Closing {
 public:
  explicit Closing(int descriptor) : descriptor_(descriptor) {}
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
  ~Closing() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  [[nodiscard]] int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

}  // namespace

// O_NONBLOCK: a pipe is refused instead of waited for. O_NOCTTY: a terminal must not become the
// controlling terminal.
InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  constexpr int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  Closing opened(open(path_.c_str(), flags));  // NOLINT(*-vararg): POSIX
  if (opened.get() < 0) fail_with_errno(path_, {}, "cannot be opened: ");
  const struct stat status = status_of(opened.get(), path_, {});
  if (!S_ISREG(status.st_mode)) fail(path_, "is not a regular file");
  if (status.st_size <= 0) fail(path_, "is empty");
  size_ = static_cast<std::uint64_t>(status.st_size);
  modified_ = status.st_mtim;
  descriptor_ = opened.release();
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> to, std::string_view subject) const {
  for (std::size_t done = 0; done < to.size();) {
    const std::uint64_t from = offset + done;
    const ssize_t n = pread(descriptor_, to.data() + done, to.size() - done, static_cast<off_t>(from));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno(path_, subject, "cannot be read: ");
    if (n == 0) {
      fail(path_, subject, "the file was truncated after it was opened: it ends at byte ",
           status_of(descriptor_, path_, subject).st_size, ", not ", size_);
    }
    done += static_cast<std::size_t>(n);
  }
  // A file that was truncated and written again has bytes that nothing has checked.
  const struct stat now = status_of(descriptor_, path_, subject);
  const bool same_time = now.st_mtim.tv_sec == modified_.tv_sec && now.st_mtim.tv_nsec == modified_.tv_nsec;
  if (static_cast<std::uint64_t>(now.st_size) != size_ || !same_time)
    fail(path_, subject, "the file was written to after it was opened: it had ", size_, " bytes, now ", now.st_size);
}

std::string read_text(const std::filesystem::path& path, std::uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) fail(path, "has ", file.size(), " bytes, the maximum is ", limit);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace headlane::models::internal
