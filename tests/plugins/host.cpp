// A program without OpenMP that closes a plugin with the library inside: the plugin's idle threads
// outlive it, in the code of the OpenMP runtime that it brought.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <thread>

int main(int count, char** arguments) {
  if (count != 2) return 2;
  std::uint64_t first = 0;
  for (int generation = 0; generation < 3; ++generation) {
    void* plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) return std::printf("%s\n", dlerror()), 1;
    const auto run = reinterpret_cast<std::uint64_t (*)(int)>(dlsym(plugin, "plugin_run"));
    const std::uint64_t result = run == nullptr ? 0 : run(2);
    if (result == 0 || (first != 0 && result != first)) return std::printf("a wrong result\n"), 1;
    first = result;
    if (dlclose(plugin) != 0) return std::printf("%s\n", dlerror()), 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD) != nullptr) return std::printf("not unloaded\n"), 1;
  }
  return 0;
}
