// Two versions of the library in one process, each in a plugin: they compute at the same time,
// whatever the visibility they are loaded with, and unload when they are closed.
#include <doctest/doctest.h>

#include <cstdint>
#include <dlfcn.h>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace headlane::test {
namespace {

class Plugin {
 public:
  Plugin(const char* path, int mode) : handle_(dlopen(path, RTLD_NOW | mode)) {
    REQUIRE_MESSAGE(handle_ != nullptr, dlerror());
    run = reinterpret_cast<std::uint64_t (*)(int)>(dlsym(handle_, "plugin_run"));
    version = reinterpret_cast<const char* (*)()>(dlsym(handle_, "plugin_version"));
    REQUIRE((run != nullptr));
    REQUIRE((version != nullptr));
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  ~Plugin() { CHECK(dlclose(handle_) == 0); }

  std::uint64_t (*run)(int) = nullptr;
  const char* (*version)() = nullptr;

 private:
  void* handle_;
};

bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(path) != std::string::npos) return true;
  return false;
}

/// Both compute on several threads at the same time, with `threads` threads each. Returns the
/// number of results that are not `expected`.
int wrong_results(const Plugin& one, const Plugin& other, int threads, std::uint64_t expected) {
  std::vector<int> wrong(4);
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < wrong.size(); ++caller)
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 5; ++round) {
        const Plugin& plugin = (static_cast<int>(caller) + round) % 2 == 0 ? one : other;
        if (plugin.run(threads) != expected) ++wrong[caller];
      }
    });
  for (std::thread& caller : callers) caller.join();
  int sum = 0;
  for (const int one_caller : wrong) sum += one_caller;
  return sum;
}

TEST_CASE("two versions of the library in one process") {
  for (const int mode : {RTLD_LOCAL, RTLD_GLOBAL}) {
    for (const int threads : {1, 2}) {
      CAPTURE(mode);
      CAPTURE(threads);
      {
        const Plugin one(HEADLANE_PLUGIN, mode), other(HEADLANE_OTHER_PLUGIN, mode);
        CHECK(is_mapped(HEADLANE_PLUGIN));
        CHECK(is_mapped(HEADLANE_OTHER_PLUGIN));
        CHECK(std::string(one.version()) != other.version());
        const std::uint64_t expected = one.run(threads);
        CHECK(expected != 0);
        CHECK(other.run(threads) == expected);
        CHECK(wrong_results(one, other, threads, expected) == 0);
      }
      CHECK_FALSE(is_mapped(HEADLANE_PLUGIN));
      CHECK_FALSE(is_mapped(HEADLANE_OTHER_PLUGIN));
    }
  }
}

}  // namespace
}  // namespace headlane::test
