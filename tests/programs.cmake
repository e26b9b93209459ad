# Test programs: headlane_test_program, headlane_test and headlane_tests.

# headlane_internals(NAME LIBRARY OBJECTS...): LIBRARY with the symbols that a shared library hides.
# OBJECTS are the object libraries in it.
function(headlane_internals name library)
  get_target_property(type ${library} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    add_library(${name} ALIAS ${library})
    return()
  endif()
  add_library(${name} STATIC $<TARGET_OBJECTS:${library}>)
  foreach(objects IN LISTS ARGN)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>)
  if(NOT library STREQUAL "headlane")
    target_link_libraries(${name} PUBLIC headlane_internals)
  endif()
endfunction()
list(TRANSFORM HEADLANE_BUILT_ISAS PREPEND headlane_ OUTPUT_VARIABLE kernels)
headlane_internals(headlane_internals headlane ${kernels})

# What all test programs are compiled with. -O1: two thirds of the time of -O3.
function(headlane_test_options target)
  headlane_common(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_include_directories(${target} PRIVATE . ../src)
  target_link_libraries(${target} PRIVATE headlane_internals headlane_doctest
                                          $<TARGET_NAME_IF_EXISTS:OpenMP::OpenMP_CXX>)
endfunction()

# The doctest runner, and the harness code that needs no template.
add_library(headlane_test_main OBJECT support/main.cpp)
headlane_test_options(headlane_test_main)
add_library(headlane_test_support STATIC support/attention_case.cpp support/attention_options.cpp)
headlane_test_options(headlane_test_support)
# Compiled once: an eighth less time for the tests.
target_precompile_headers(headlane_test_support PRIVATE
  <doctest/doctest.h> <headlane/headlane.hpp> <algorithm> <array> <functional> <memory> <string> <vector>)

# headlane_test_program(NAME SOURCES...)
function(headlane_test_program name)
  add_executable(${name} ${ARGN})
  headlane_test_options(${name})
  target_link_libraries(${name} PRIVATE headlane_test_support)
endfunction()

# Waiting threads sleep: tests use more threads than there are cores, and several tests run at once.
# Half the address space cannot be allocated, with a sanitizer as without: the allocation fails.
# Memory has a vector's width of poison around it: AddressSanitizer checks the first and the last
# byte of an access.
set(test_environment OMP_WAIT_POLICY=passive ASAN_OPTIONS=allocator_may_return_null=1:redzone=64
                     LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/leaks.supp)

# headlane_test(NAME FOLDER [PER_ISA | PER_FAST_ISA]): builds FOLDER/test_NAME.cpp and adds the test
# NAME. With PER_ISA it adds NAME.ISA with the label ISA for each instruction set that is built; on
# a CPU without it main() returns 77, and the test is skipped. PER_FAST_ISA leaves out portable, if
# there are others: for what drivers decide rather than kernels. It took a quarter of the time of
# all tests.
function(headlane_test name folder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "PER_ISA;PER_FAST_ISA" "" "")
  headlane_test_program(test_${name} ${folder}/test_${name}.cpp $<TARGET_OBJECTS:headlane_test_main>)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)  # or CMake warns
    target_precompile_headers(test_${name} REUSE_FROM headlane_test_support)
  endif()
  if(NOT arg_PER_ISA AND NOT arg_PER_FAST_ISA)
    add_test(NAME ${name} COMMAND test_${name})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${test_environment}" TIMEOUT 600)
    return()
  endif()
  set(isas ${HEADLANE_BUILT_ISAS})
  if(arg_PER_FAST_ISA AND NOT isas STREQUAL "portable")
    list(REMOVE_ITEM isas portable)
  endif()
  foreach(isa IN LISTS isas)
    add_test(NAME ${name}.${isa} COMMAND test_${name})
    set_tests_properties(${name}.${isa} PROPERTIES
      ENVIRONMENT "${test_environment};HEADLANE_ISA=${isa}" LABELS ${isa} SKIP_RETURN_CODE 77 TIMEOUT 600)
  endforeach()
endfunction()

# headlane_tests(FOLDER [PER_ISA NAMES...] [PER_FAST_ISA NAMES...] [ONCE NAMES...])
function(headlane_tests folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PER_ISA;PER_FAST_ISA;ONCE")
  foreach(isas PER_ISA PER_FAST_ISA)
    foreach(name IN LISTS arg_${isas})
      headlane_test(${name} ${folder} ${isas})
    endforeach()
  endforeach()
  foreach(name IN LISTS arg_ONCE)
    headlane_test(${name} ${folder})
  endforeach()
endfunction()
