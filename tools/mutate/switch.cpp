// Reads which fault is on, before anything else runs, and maps the file in which the faults that
// are evaluated leave a mark.
#include "switch.hpp"

#include <cstddef>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int headlane_mutant_active = -1;
unsigned char* headlane_mutants_met = nullptr;

namespace {

[[gnu::constructor(101)]] void read_switch() {
  if (const char* number = std::getenv("HEADLANE_MUTANT")) headlane_mutant_active = std::atoi(number);
  const char* name = std::getenv("HEADLANE_MUTANTS_MET");
  if (name == nullptr) return;
  const int file = open(name, O_RDWR | O_CLOEXEC);
  struct stat info{};
  if (file < 0 || fstat(file, &info) != 0) return;
  const auto size = static_cast<std::size_t>(info.st_size);
  void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes != MAP_FAILED) headlane_mutants_met = static_cast<unsigned char*>(bytes);
  close(file);
}

}  // namespace
