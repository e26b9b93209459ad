// Which instruction set and how many threads the library uses. Neither changes a bit of any result.
#pragma once

#include <headlane/export.h>

#include <string_view>
#include <vector>

namespace headlane {

/// "major.minor.patch".
HEADLANE_API std::string_view version() noexcept;

/// The instruction sets that are built in and that this CPU has, fastest first. On x86-64 with everything built:
/// "avx512", "avx2", "scalar", "portable"; on AArch64: "neon", "scalar", "portable".
HEADLANE_API std::vector<std::string_view> available_isas();

/// The one in use: the environment variable HEADLANE_ISA if it is set when the library is first used, otherwise the
/// fastest. Throws std::invalid_argument, listing the available ones, if HEADLANE_ISA names none of them; so does then
/// every function that computes.
HEADLANE_API std::string_view isa();

/// Uses another one from now on, in the whole process. Throws std::invalid_argument, listing the available ones, if the
/// name is none of them; the one in use then stays. Not to be called while another thread computes.
HEADLANE_API void set_isa(std::string_view name);

/// The threads a call may use, at least 1: what set_num_threads() said, else HEADLANE_NUM_THREADS (ignored if it is no
/// positive number), else OpenMP's own setting (OMP_NUM_THREADS, the number of cores); else 1 when built without OpenMP,
/// where calls run on one thread whatever was said. A call made from inside the caller's own OpenMP parallel region always
/// runs on the calling thread alone.
HEADLANE_API int num_threads() noexcept;

/// Sets the number of threads for the whole process; 0 goes back to the environment's. Throws std::invalid_argument if
/// it is negative.
HEADLANE_API void set_num_threads(int threads);

}  // namespace headlane
