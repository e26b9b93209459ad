# Finds the dependencies: xsimd always, OpenMP if available, nlohmann JSON for the models,
# SentencePiece for their text, CLI11 for headlane-translate, doctest for the tests, Google
# Benchmark for the benchmarks. If one is missing, the error names it and says how to get it;
# `./dev` installs them all.

set(HEADLANE_XSIMD_INCLUDE_DIR "" CACHE PATH "Folder that holds xsimd/xsimd.hpp, if it is not found by itself")
option(HEADLANE_FETCH_XSIMD "Download xsimd if it is not found" OFF)

# headlane_header_library(NAME DIR FOLDER): an interface library for the headers in DIR/FOLDER. A
# cross compiler must not see /usr/include, which contains the C headers of another machine: there
# FOLDER is linked into the build folder instead.
function(headlane_header_library name dir folder)
  if(CMAKE_CROSSCOMPILING AND dir MATCHES "^/usr/(local/)?include$")
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include")
    file(CREATE_LINK "${dir}/${folder}" "${PROJECT_BINARY_DIR}/include/${folder}" SYMBOLIC)
    set(dir "${PROJECT_BINARY_DIR}/include")
  endif()
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE "${dir}")
endfunction()

# ---- xsimd. Before 13.2 its fma on AVX-512 is a multiplication and an addition, and its functions
# are not always inlined (src/kernels/README.md). find_package gets no version: 13.2 would refuse
# 14.x.
set(HEADLANE_XSIMD_MINIMUM 13.2)

function(headlane_xsimd_version dir result)
  set(${result} "" PARENT_SCOPE)
  set(config "${dir}/xsimd/config/xsimd_config.hpp")
  if(EXISTS "${config}")
    file(STRINGS "${config}" lines REGEX "#define XSIMD_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers "." version)
    set(${result} "${version}" PARENT_SCOPE)
  endif()
endfunction()

# Sets headlane_xsimd_dir and HEADLANE_XSIMD_VERSION to the first candidate that is new enough, and
# appends the others to `rejected`.
macro(headlane_look_for_xsimd)
  foreach(dir ${ARGN})
    headlane_xsimd_version("${dir}" version)
    if(NOT headlane_xsimd_dir AND version VERSION_GREATER_EQUAL HEADLANE_XSIMD_MINIMUM)
      set(headlane_xsimd_dir "${dir}")
      set(HEADLANE_XSIMD_VERSION ${version})
    elseif(version)
      string(APPEND rejected "\n  (${version} in ${dir} is too old)")
    endif()
  endforeach()
endmacro()

set(rejected "")
set(headlane_xsimd_dir "")
if(HEADLANE_XSIMD_INCLUDE_DIR)
  headlane_look_for_xsimd("${HEADLANE_XSIMD_INCLUDE_DIR}")
else()
  find_package(xsimd QUIET)
  set(installed "")
  if(TARGET xsimd)
    get_target_property(installed xsimd INTERFACE_INCLUDE_DIRECTORIES)
    # Of a target in the surrounding project: $<BUILD_INTERFACE:folder>.
    list(TRANSFORM installed REPLACE "^\\$<BUILD_INTERFACE:(.*)>$" "\\1")
  endif()
  find_path(HEADLANE_XSIMD_FOUND_DIR xsimd/xsimd.hpp)
  mark_as_advanced(HEADLANE_XSIMD_FOUND_DIR)
  # Then the folder that ./dev fills, and the package pythran, a build requirement of `pip install
  # .`.
  list(TRANSFORM CMAKE_PREFIX_PATH APPEND /pythran OUTPUT_VARIABLE wheels)
  headlane_look_for_xsimd(${installed} "${HEADLANE_XSIMD_FOUND_DIR}"
                          "${PROJECT_SOURCE_DIR}/build/deps/xsimd/include" ${wheels})
  if(NOT headlane_xsimd_dir AND HEADLANE_FETCH_XSIMD)
    include(FetchContent)
    # SOURCE_SUBDIR is a folder without a CMakeLists.txt: only the headers are wanted, no targets.
    FetchContent_Declare(headlane_xsimd_source SOURCE_SUBDIR include
      URL https://github.com/xtensor-stack/xsimd/archive/14.1.0.tar.gz
      URL_HASH SHA256=8da77b66214e73565f6111ba494322c853552b7b40cff69779b42e2100eed16f)
    FetchContent_MakeAvailable(headlane_xsimd_source)
    headlane_look_for_xsimd("${headlane_xsimd_source_SOURCE_DIR}/include")
  endif()
endif()
if(NOT headlane_xsimd_dir)
  message(FATAL_ERROR
    "headlane needs the headers of xsimd ${HEADLANE_XSIMD_MINIMUM} or later and did not find them.${rejected}\n"
    "One of these helps:\n"
    "  ./dev test                             gets them by itself\n"
    "  apt-get install libxsimd-dev           on Debian 13 and later\n"
    "  -DHEADLANE_XSIMD_INCLUDE_DIR=FOLDER    the folder that holds xsimd/xsimd.hpp\n"
    "  -DHEADLANE_FETCH_XSIMD=ON              downloads them")
endif()
message(STATUS "xsimd ${HEADLANE_XSIMD_VERSION}: ${headlane_xsimd_dir}")
headlane_header_library(headlane_xsimd "${headlane_xsimd_dir}" xsimd)

# ---- OpenMP
if(HEADLANE_OPENMP)
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(NOT TARGET OpenMP::OpenMP_CXX)
    message(WARNING "OpenMP was not found: headlane is built for one thread. "
      "GCC brings it; for clang install libomp-dev of the same version. -DHEADLANE_OPENMP=OFF silences this.")
  endif()
endif()

# ---- nlohmann JSON and SentencePiece. JSON's version is in abi_macros.hpp since 3.11, before that
# in json.hpp.
set(HEADLANE_JSON_MINIMUM 3.10)

function(headlane_json_version dir result)
  set(${result} "" PARENT_SCOPE)
  foreach(header detail/abi_macros.hpp json.hpp)
    if(EXISTS "${dir}/nlohmann/${header}")
      file(STRINGS "${dir}/nlohmann/${header}" lines REGEX "#define NLOHMANN_JSON_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      list(TRANSFORM lines REPLACE ".*(MAJOR|MINOR|PATCH) +([0-9]+).*" "\\2")
      if(lines)
        list(JOIN lines "." version)
        set(${result} "${version}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

if(HEADLANE_BUILD_MODELS)
  # Then the Python package nlohmann-json, a build requirement of `pip install .`.
  list(TRANSFORM CMAKE_PREFIX_PATH APPEND /nlohmann_json/include OUTPUT_VARIABLE wheels)
  find_path(HEADLANE_JSON_INCLUDE_DIR nlohmann/json_fwd.hpp PATHS ${wheels})
  set(HEADLANE_JSON_VERSION "")
  if(HEADLANE_JSON_INCLUDE_DIR)
    headlane_json_version("${HEADLANE_JSON_INCLUDE_DIR}" HEADLANE_JSON_VERSION)
  endif()
  if(NOT HEADLANE_JSON_VERSION VERSION_GREATER_EQUAL HEADLANE_JSON_MINIMUM)
    message(FATAL_ERROR
      "The models need nlohmann JSON ${HEADLANE_JSON_MINIMUM} or later (Debian, Ubuntu: nlohmann-json3-dev; PyPI: "
      "nlohmann-json). Found: '${HEADLANE_JSON_VERSION}' in '${HEADLANE_JSON_INCLUDE_DIR}'. "
      "Install it, name its folder with -DHEADLANE_JSON_INCLUDE_DIR=FOLDER, or build without: "
      "-DHEADLANE_BUILD_MODELS=OFF")
  endif()
  message(STATUS "nlohmann JSON ${HEADLANE_JSON_VERSION}: ${HEADLANE_JSON_INCLUDE_DIR}")
  headlane_header_library(headlane_json "${HEADLANE_JSON_INCLUDE_DIR}" nlohmann)

  list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
  find_package(SentencePiece)

  # CLI11, for the program headlane-translate.
  find_path(HEADLANE_CLI_INCLUDE_DIR CLI/CLI.hpp)
  if(HEADLANE_CLI_INCLUDE_DIR)
    headlane_header_library(headlane_cli "${HEADLANE_CLI_INCLUDE_DIR}" CLI)
  endif()
endif()

# ---- MPI
if(HEADLANE_BUILD_MPI)
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT TARGET MPI::MPI_CXX)
    message(FATAL_ERROR "headlane::mpi needs an MPI of version 3 (Debian, Ubuntu: libopenmpi-dev and openmpi-bin). "
      "Install it, or build without: -DHEADLANE_BUILD_MPI=OFF")
  endif()
endif()

# ---- doctest
if(HEADLANE_BUILD_TESTS)
  find_path(HEADLANE_DOCTEST_INCLUDE_DIR doctest/doctest.h)
  if(NOT HEADLANE_DOCTEST_INCLUDE_DIR)
    message(FATAL_ERROR "The tests need doctest 2.4 or later (Debian, Ubuntu: doctest-dev). "
      "Install it, name its folder with -DHEADLANE_DOCTEST_INCLUDE_DIR=FOLDER, or build without: "
      "-DHEADLANE_BUILD_TESTS=OFF")
  endif()
  headlane_header_library(headlane_doctest "${HEADLANE_DOCTEST_INCLUDE_DIR}" doctest)
endif()

# ---- Google Benchmark
if(HEADLANE_BUILD_BENCH)
  find_package(benchmark 1.7 QUIET)
  if(NOT TARGET benchmark::benchmark)
    message(FATAL_ERROR "The benchmarks need Google Benchmark 1.7 or later (Debian, Ubuntu: libbenchmark-dev). "
      "Install it, or build without: -DHEADLANE_BUILD_BENCH=OFF")
  endif()
endif()
