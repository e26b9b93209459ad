// Times cblas_sgemm of the library that the command line names: MKL, OpenBLAS, BLIS. Links only the
// loader, so that the process has no threads but the library's.
#include "worker.hpp"

#include <cstdio>
#include <dlfcn.h>
#include <string>

namespace {

using peers::Index;

using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc);
constexpr int row_major = 101;       // CblasRowMajor
constexpr int not_transposed = 111;  // CblasNoTrans

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// Each of the three sets its number of threads by a function of its own.
std::string version_of(void* library) {
  if (const auto get = symbol<const char* (*)()>(library, "openblas_get_config")) return get();
  if (const auto get = symbol<const char* (*)()>(library, "bli_info_get_version_str")) return get();
  if (const auto get = symbol<void (*)(char*, int)>(library, "mkl_get_version_string")) {
    char text[200] = "";
    get(text, sizeof text);
    return text;
  }
  return "";
}

peers::Job prepare(Sgemm sgemm, const peers::Arguments& arguments) {
  const auto size = [&](const char* key) { return static_cast<int>(arguments.number(key)); };
  const int m = size("m");
  const int n = size("n");
  const int k = size("k");
  peers::Job job;
  job.arrays.emplace_back(arguments.input("a"));
  job.arrays.emplace_back(arguments.input("b"));
  job.arrays.emplace_back(Index{m} * n);
  job.call = [=, a = job.arrays[0].data(), b = job.arrays[1].data(), c = job.arrays[2].data()] {
    sgemm(row_major, not_transposed, not_transposed, m, n, k, 1.0f, a, k, b, n, 0.0f, c, n);
  };
  return job;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return std::fprintf(stderr, "usage: %s LIBRARY\n", words[0]), 2;
  // NOLINTNEXTLINE(clang-analyzer-optin.taint.GenericTaint): the library to load is the argument
  void* library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto sgemm = symbol<Sgemm>(library, "cblas_sgemm");
  if (sgemm == nullptr) return std::fprintf(stderr, "%s has no cblas_sgemm\n", words[1]), 1;
  peers::serve({.about = "version=" + version_of(library),
                .prepare = [=](const peers::Arguments& arguments) { return prepare(sgemm, arguments); },
                .measure = {}});
  return 0;
}
