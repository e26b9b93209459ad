# The instruction sets: src/kernels/table.cpp is compiled once for each. A line has the name, the
# kernels' Arch type and the compiler flags, which must not enable more than src/core/dispatch.cpp
# checks at run time. To add one: see "Add an instruction set" in CONTRIBUTING.md.

# HEADLANE_BASELINE_FLAGS precede an ISA's own flags and undo those of a surrounding project, such
# as -march=native: a kernel is compiled for its ISA and nothing else.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(HEADLANE_KNOWN_ISAS avx512 avx2 scalar portable)
  set(HEADLANE_BASELINE_FLAGS -march=x86-64 -mtune=generic -mno-sse3 -mno-bmi -mno-bmi2 -mno-lzcnt -mno-movbe
    -mno-popcnt)
  set(HEADLANE_SCALAR_FLAGS -mfma)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(HEADLANE_KNOWN_ISAS neon scalar portable)
  set(HEADLANE_BASELINE_FLAGS -march=armv8-a)
  set(HEADLANE_SCALAR_FLAGS)
else()
  set(HEADLANE_KNOWN_ISAS portable)
endif()

set(HEADLANE_ISAS "all" CACHE STRING
  "Instruction sets to build, separated by ';' (of: ${HEADLANE_KNOWN_ISAS}), or 'all'")

# Adds the objects of all wanted ISAs to `target` and sets HEADLANE_BUILT_ISAS to their names.
function(headlane_add_isas target)
  set(wanted ${HEADLANE_ISAS})
  if(wanted STREQUAL "all")
    set(wanted ${HEADLANE_KNOWN_ISAS})
  endif()
  if(NOT wanted)
    message(FATAL_ERROR "HEADLANE_ISAS is empty; for ${CMAKE_SYSTEM_PROCESSOR} there are: ${HEADLANE_KNOWN_ISAS}")
  endif()
  foreach(isa IN LISTS wanted)
    if(NOT isa IN_LIST HEADLANE_KNOWN_ISAS)
      message(FATAL_ERROR
        "HEADLANE_ISAS names '${isa}'; for ${CMAKE_SYSTEM_PROCESSOR} there are: ${HEADLANE_KNOWN_ISAS}")
    endif()
  endforeach()
  set(HEADLANE_BUILT_ISAS ${wanted} PARENT_SCOPE)
  # The compiler's choice of what it inlines, into code that need not be fast: a sanitizer takes
  # minutes for kernels that are one function each.
  set(small -DHEADLANE_INLINE=inline)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    set(sanitized ${small} $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)  # loops that it does not unroll
  endif()
  # AddressSanitizer calls a function for each access in the largest functions only: calls check a
  # vector as a region of any size, and inlined checks take long to compile. On Zen 3, with calls
  # everywhere, from 100 accesses on, and nowhere: avx2 compiles in 128, 145 and 191 s, and the test
  # attention_cache takes 183, 77 and 44 s; avx512 compiles in 332, 377 and more than 460 s. That is
  # without UBSan's checks of pointers (HEADLANE_KERNEL_CHECKS); with them avx512 took 800 s.
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    list(APPEND sanitized "SHELL:-mllvm -asan-instrumentation-with-call-threshold=100" ${HEADLANE_KERNEL_CHECKS})
  endif()
  set(no_vectors -fno-tree-vectorize -fno-tree-slp-vectorize)
  # GCC 12 warns about its own AVX-512 intrinsics, which start from an undefined register (GCC bug
  # 105593, fixed in 13).
  set(gcc_12 $<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>)
  set(quiet_gcc_12 $<${gcc_12}:-Wno-uninitialized> $<${gcc_12}:-Wno-maybe-uninitialized>)
  #            name     Arch                         flags
  headlane_isa(avx512   xsimd::avx512bw              -mavx512f -mavx512cd -mavx512dq -mavx512bw -mavx512vl -mfma
                         ${quiet_gcc_12})
  headlane_isa(avx2     xsimd::fma3<xsimd::avx2>     -mavx2 -mfma -mf16c)
  headlane_isa(neon     xsimd::neon64)
  headlane_isa(scalar   headlane::internal::kernels::Scalar    ${HEADLANE_SCALAR_FLAGS} ${no_vectors})
  # Its time goes into calls of fmaf(): small code loses 2 to 10 %. Not with clang 19, where the
  # norms of -Os and AddressSanitizer read a pointer that was never set.
  headlane_isa(portable headlane::internal::kernels::Portable  ${no_vectors}
                         $<$<CXX_COMPILER_ID:GNU>:-Os> $<$<CXX_COMPILER_ID:GNU>:${small}>)
endfunction()

# Adds the object of one ISA to `target` if the ISA is wanted.
macro(headlane_isa name arch)
  if(${name} IN_LIST wanted)
    add_library(headlane_${name} OBJECT src/kernels/table.cpp)
    headlane_common(headlane_${name})
    target_compile_options(headlane_${name} PRIVATE ${HEADLANE_BASELINE_FLAGS} ${ARGN} ${sanitized} -fno-exceptions
                           -fno-math-errno)  # sqrt: one instruction
    target_compile_definitions(headlane_${name} PRIVATE HEADLANE_ISA=${name} "HEADLANE_ARCH=${arch}")
    target_include_directories(headlane_${name} PRIVATE include src)
    target_link_libraries(headlane_${name} PRIVATE headlane_xsimd)
    set_target_properties(headlane_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:headlane_${name}>)
    target_compile_definitions(${target} PRIVATE HEADLANE_HAS_${name}=1)
  endif()
endmacro()
