// Files that change while they are read: an error that names file and tensor, never a signal,
// never other bytes.
#include "files.hpp"
#include "io/input_file.hpp"
#include "io/safetensors.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace headlane::test {
namespace {

using models::Checkpoint;
using models::Tensor;

constexpr Index floats = 5000, halves = 3000;

/// Tensors of each type that can be loaded, one that starts at an odd address, one that is empty.
std::string some_file() {
  return FileBuilder()
      .add("a.f32", "F32", "[5000]", bytes_of(std::vector<float>(floats, 1.5f)))
      .add("b.byte", "U8", "[1]", "x")
      .add("c.f16", "F16", "[3000]", bytes_of(std::vector<std::uint16_t>(halves, 0x3e00)))
      .add("d.bf16", "BF16", "[3000]", bytes_of(std::vector<std::uint16_t>(halves, 0x3fc0)))
      .add("e.f32", "F32", "[5000]", bytes_of(std::vector<float>(floats, 1.5f)))
      .add("f.none", "F32", "[0]", "")
      .file();
}

const std::vector<std::string>& loadable() {
  static const std::vector<std::string> names{"a.f32", "c.f16", "d.bf16", "e.f32", "f.none"};
  return names;
}

bool has_all_values(const Tensor& tensor) {
  const float* const data = tensor.view().data;
  return std::all_of(data, data + tensor.view().shape[0], [](float x) { return x == 1.5f; });
}

/// Around each border in the file, and within what lies between.
std::vector<std::size_t> offsets(const std::string& file) {
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  std::vector<std::size_t> result;
  std::size_t border = 0;
  for (const std::size_t part : {std::size_t{8}, std::size_t{header}, std::size_t{4} * floats, std::size_t{1},
                                 std::size_t{2} * halves, std::size_t{2} * halves, std::size_t{4} * floats}) {
    for (const std::size_t behind : {std::size_t{0}, std::size_t{1}, part / 2, part - 1})
      result.push_back(border + behind);
    border += part;
  }
  for (std::size_t page = 4096; page < file.size(); page += 4096) result.push_back(page);
  REQUIRE(border == file.size());
  return result;
}

void wait_for_the_clock() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }  // of modification times

TEST_CASE("Truncated between opening and loading, at every kind of place") {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  const std::string file = some_file();
  int errors = 0;
  for (const std::size_t size : offsets(file)) {
    CAPTURE(size);
    folder.write("model.safetensors", file);
    const Checkpoint checkpoint(folder.path());
    std::filesystem::resize_file(path, size);
    for (const std::string& name : loadable()) {
      const std::string message = message_of([&] { (void)checkpoint.load(name); });
      check_says(message, {path.string() + ": tensor '" + name + "': ", "after it was opened", std::to_string(size),
                           std::to_string(file.size())});
      ++errors;
    }
  }
  CHECK(errors > 150);
}

TEST_CASE("Truncated between opening a file and reading its header, or JSON") {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  const std::string file = some_file();
  for (const std::size_t size : offsets(file)) {
    CAPTURE(size);
    folder.write("model.safetensors", file);
    const models::internal::InputFile opened(path);
    std::filesystem::resize_file(path, size);
    check_says(message_of([&] { models::internal::read_safetensors(opened); }), {path.string(), "after it was opened"});
    std::string content(file.size(), '\0');
    check_says(message_of([&] { opened.read(0, std::as_writable_bytes(std::span(content))); }),
               {path.string(), "truncated", "it ends at byte " + std::to_string(size)});
  }
}

/// Opens and loads everything, again and again until that is an error. Counts those of a file
/// that was open by then.
void load_until_it_fails(const Folder& folder, int& while_open) {
  const std::string path = (folder.path() / "model.safetensors").string();
  std::string message;
  do {
    message = message_of([&] {
      const Checkpoint checkpoint(folder.path());
      for (const std::string& name : loadable())
        if (!has_all_values(checkpoint.load(name))) FAIL(name << " has other values");
    });
  } while (message == "no error");
  check_says(message, {path + ": "});
  while_open += message.find("after it was opened") != std::string::npos;
}

TEST_CASE("Truncated by another thread at any moment") {
  const Folder folder;
  const std::string file = some_file();
  Random random(3);
  int while_open = 0;
  for (int i = 0; i < 200; ++i) {
    folder.write("model.safetensors", file);
    const auto size = static_cast<std::size_t>(random.integer(0, std::ssize(file) - 1));
    const auto after = std::chrono::microseconds(random.integer(0, 300));
    std::thread other([&] {
      std::this_thread::sleep_for(after);
      std::filesystem::resize_file(folder.path() / "model.safetensors", size);
    });
    load_until_it_fails(folder, while_open);
    other.join();
  }
  MESSAGE(while_open << " of 200 while it was open");
  CHECK(while_open > 0);
}

TEST_CASE("Truncated by another process at any moment") {
  const Folder folder;
  const std::string file = some_file(), path = (folder.path() / "model.safetensors").string();
  int while_open = 0;
  for (int i = 0; i < 50; ++i) {
    folder.write("model.safetensors", file);
    const pid_t child = fork();
    if (child == 0) {
      usleep(static_cast<useconds_t>(10 * i));
      _exit(truncate(path.c_str(), 997 * i));
    }
    load_until_it_fails(folder, while_open);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(while_open > 0);
}

TEST_CASE("Grown or overwritten after it was opened") {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  const std::string file = some_file();
  const auto check_changed = [&](const auto& change) {
    folder.write("model.safetensors", file);
    wait_for_the_clock();
    const Checkpoint checkpoint(folder.path());
    CHECK(has_all_values(checkpoint.load("a.f32")));
    change();
    for (const std::string& name : loadable())
      check_says(message_of([&] { (void)checkpoint.load(name); }),
                 {path.string() + ": tensor '" + name + "': the file was written to after it was opened"});
  };
  check_changed([&] { std::filesystem::resize_file(path, file.size() + 1); });
  check_changed([&] { std::ofstream(path, std::ios::app | std::ios::binary) << "more"; });
  check_changed([&] { std::ofstream(path, std::ios::binary) << std::string(file.size(), 'x'); });
  check_changed([&] {
    std::filesystem::resize_file(path, 100);
    std::filesystem::resize_file(path, file.size());
  });
}

TEST_CASE("Replaced, renamed or removed after it was opened, it is still read") {
  const Folder folder;
  folder.write("model.safetensors", some_file());
  const Checkpoint checkpoint(folder.path());
  folder.write("new", safetensors("{}", ""));
  std::filesystem::rename(folder.path() / "model.safetensors", folder.path() / "old");
  for (const std::string& name : loadable()) CHECK(has_all_values(checkpoint.load(name)));
  std::filesystem::rename(folder.path() / "new", folder.path() / "model.safetensors");
  for (const std::string& name : loadable()) CHECK(has_all_values(checkpoint.load(name)));
  CHECK(Checkpoint(folder.path()).names().empty());
  folder.remove("old");
  for (const std::string& name : loadable()) CHECK(has_all_values(checkpoint.load(name)));
}

/// Puts something other than a regular file into a folder.
void make_special(const std::filesystem::path& path, const std::string& kind) {
  if (kind == "directory") std::filesystem::create_directory(path);
  else if (kind == "pipe") REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  else if (kind == "socket") {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path.string().copy(address.sun_path, sizeof address.sun_path - 1) == path.string().size());
    const int end = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(bind(end, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    close(end);
  } else {
    std::filesystem::create_symlink(kind, path);
  }
}

TEST_CASE("anything but a regular file is refused without waiting") {
  const std::string index = "model.safetensors.index.json";
  for (const std::string kind : {"directory", "pipe", "socket", "/dev/zero", "/dev/null", "/dev/tty", "/dev/full"}) {
    CAPTURE(kind);
    for (const std::string& name : {std::string("model.safetensors"), index, std::string("one.safetensors")}) {
      const Folder folder;
      folder.write(index, R"({"weight_map":{"a":"one.safetensors"}})");
      folder.remove(name);
      make_special(folder.path() / name, kind);
      const std::string message = message_of([&] { const Checkpoint checkpoint(folder.path()); });
      check_says(message, {(folder.path() / name).string() + ": "});
      const bool cannot_open =
          message.find("cannot be opened: ") != std::string::npos;  // a socket; /dev/tty without one
      CHECK((cannot_open || message.find("is not a regular file") != std::string::npos));
    }
  }
}

}  // namespace
}  // namespace headlane::test
