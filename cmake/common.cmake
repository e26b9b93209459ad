# Settings of every target of this project. A surrounding project may set flags and properties for
# all targets; a target's own options come last and take precedence.

# Every product and sum is rounded as written: no contraction into fma, no -ffast-math, -Ofast or
# parts of them, no x87.
set(HEADLANE_EXACT_FLAGS -fno-fast-math -fno-unsafe-math-optimizations -fno-associative-math -fno-reciprocal-math
  -fno-finite-math-only -fsigned-zeros -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND HEADLANE_EXACT_FLAGS -ftrapping-math -fno-single-precision-constant)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(APPEND HEADLANE_EXACT_FLAGS -mfpmath=sse)
endif()

# Symbols are hidden unless marked HEADLANE_API (export.h), and none is unique in the process
# (STB_GNU_UNIQUE): two versions of the library can coexist, and a plugin that contains one can be
# unloaded.
# Warnings that a surrounding project asks for are no errors here.
# Kernels of different instruction sets must not meet in link-time optimisation, nor files in a
# unity build: both stay off. With an empty build type, possible in a surrounding project, the
# library would not be optimised: -O3 then.
function(headlane_common target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE ${HEADLANE_EXACT_FLAGS} -fno-lto $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>
                                           -Wall -Wextra -Wpedantic -Wconversion -Wshadow
                                           $<IF:$<BOOL:${HEADLANE_WERROR}>,-Werror,-Wno-error> $<$<CONFIG:>:-O3>)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON
                                             COMPILE_WARNING_AS_ERROR OFF
                                             UNITY_BUILD OFF INTERPROCEDURAL_OPTIMIZATION OFF)
  foreach(config IN LISTS CMAKE_CONFIGURATION_TYPES CMAKE_BUILD_TYPE)
    string(TOUPPER "${config}" config)
    set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION_${config} OFF)
  endforeach()
endfunction()

# A library that is installed, static or shared. A shared one does not export instantiations of the
# standard library's templates with our types either.
function(headlane_library target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON VERSION ${PROJECT_VERSION}
                                             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    target_compile_definitions(${target} PUBLIC HEADLANE_SHARED)
    target_link_options(${target} PRIVATE ${HEADLANE_EXACT_FLAGS}
                        "-Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map")
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  endif()
endfunction()
