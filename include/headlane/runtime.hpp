// Instruction set, number of threads and scratch memory. None of them changes a bit of any result.
//
// Nor does the caller's floating-point state (rounding mode, FTZ, DAZ, unmasked exceptions): each
// call computes in the default state and restores the caller's, exception flags included. "The same
// bits" does not include the sign and payload of a NaN, which differ between instruction sets. It
// includes which elements are NaN.
#pragma once

#include <headlane/export.h>

#include <string_view>
#include <vector>

namespace headlane {

/// "major.minor.patch".
HEADLANE_API std::string_view version() noexcept;

/// The instruction sets that are built in and that this CPU supports, fastest first. With all of
/// them built: "avx512", "avx2", "scalar", "portable" on x86-64; "neon", "scalar", "portable" on
/// AArch64.
HEADLANE_API std::vector<std::string_view> available_isas();

/// The instruction set in use: the environment variable HEADLANE_ISA if it is set when the library
/// is first used, otherwise the fastest.
///
/// Errors: std::invalid_argument, listing the available ones, if HEADLANE_ISA is none of them;
///   every function that computes then throws it as well.
HEADLANE_API std::string_view isa();

/// The extension of the instruction set in use that this CPU has, and products of 8-bit integers
/// and of bfloat16 use: "vnni" (AVX512-VNNI, AVX-VNNI), "vnni+bf16" (AVX512-BF16, too), "dotprod"
/// (NEON), or "" for none. It changes no bit. AVX512-BF16 is not used on Intel's CPUs with
/// AVX512-FP16, where fmas are faster, unless the environment variable HEADLANE_EXTENSIONS is
/// "all"; that limits it to "vnni", too, or turns it off ("none"), if it is set when the library is
/// first used or set_isa() is called. Other values are ignored.
///
/// Errors: as isa().
HEADLANE_API std::string_view isa_extension();

/// Changes the instruction set of the whole process. Must not be called while another thread
/// computes.
///
/// Errors: std::invalid_argument, listing the available ones, if `name` is none of them; the
///   instruction set in use then stays.
HEADLANE_API void set_isa(std::string_view name);

/// The number of threads that a call may use, at least 1: the last value of set_num_threads(), else
/// HEADLANE_NUM_THREADS (ignored unless it is a positive number), else OpenMP's own setting
/// (OMP_NUM_THREADS, or the number of cores); never more than max_threads(). 1 if built without
/// OpenMP.
///
/// A call from inside the caller's own OpenMP parallel region always runs on the calling thread
/// alone, and so does every call in a child of fork() whose parent has used several threads.
///
/// Each calling thread has a team of its own, which stays until that thread ends: a call starts
/// threads only if it is the first on its thread to use so many. Where the system refuses to start
/// more, a call runs on those that exist; LLVM's OpenMP may end the process instead. Programs whose
/// own threads call the library should ask for fewer, and for one (set_num_threads(1)) if these
/// threads keep all processors busy.
HEADLANE_API int num_threads() noexcept;

/// Sets the number of threads of the whole process; 0 restores the environment's. Numbers above
/// max_threads() count as max_threads().
///
/// Errors: std::invalid_argument if `threads` is negative or above 65536.
HEADLANE_API void set_num_threads(int threads);

/// The upper bound on the threads of a call: the number of processors that the process may use,
/// found when it is first needed. The affinity mask and the CPU quota of the control group count. A
/// positive HEADLANE_MAX_THREADS replaces it. 1 if built without OpenMP.
HEADLANE_API int max_threads() noexcept;

/// Frees the scratch memory of the calling thread and of its team; the next call allocates it
/// again.
///
/// Buffers above 64 MiB are freed in any case when the call that needed them ends. The memory of
/// other threads is freed when they end, or call this themselves.
HEADLANE_API void release_scratch();

}  // namespace headlane
