// Which instruction set and how many threads the library uses, neither of which changes a bit of any result; and its
// scratch memory. The floating-point state of the caller (rounding mode, FTZ, DAZ, unmasked exceptions) changes no result
// either: each call computes in the default state, and leaves the caller's, exception flags included, as it was.
// "The same bits" leaves out sign and payload of a NaN, which differ between instruction sets; where NaNs are does not.
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
/// positive number), else OpenMP's own setting (OMP_NUM_THREADS, the number of cores), and never more than max_threads();
/// 1 when built without OpenMP. A call made from inside the caller's own OpenMP parallel region always runs on the
/// calling thread alone, and so does every call in a child of fork() whose parent has used several threads.
///
/// The threads belong to the thread that calls, and stay until it ends: a call starts threads only if it is the first on
/// its thread to use so many. Where the system refuses more, a call runs on those that there are. Programs whose own
/// threads call the library should ask for fewer, set_num_threads(1) if they keep all processors busy by themselves.
HEADLANE_API int num_threads() noexcept;

/// Sets the number of threads for the whole process; 0 goes back to the environment's. Throws std::invalid_argument if
/// it is negative or above 65536; above max_threads() it counts as that.
HEADLANE_API void set_num_threads(int threads);

/// The most threads that a call uses, whatever was asked for: the processors that the process may use when this is first
/// needed. Its affinity mask and the CPU quota of its control group count; HEADLANE_MAX_THREADS, a positive number,
/// takes their place. 1 when built without OpenMP.
HEADLANE_API int max_threads() noexcept;

/// Frees the scratch memory of the calling thread and of the threads that work for it; the next call allocates it again.
/// Buffers above 64 MiB do not stay anyway: they are freed when the call that needed them ends. What other threads keep
/// is freed when they end, or call this themselves.
HEADLANE_API void release_scratch();

}  // namespace headlane
