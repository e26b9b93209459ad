# Builds and runs main.cpp, main.c and bits.cpp in one of the ways to use headlane. MODE is
#   installed     this build installed, the folder moved, find_package
#   models        the same with the component models
#   mpi           the same with the component mpi
#   pkg_config    this build installed, the folder moved, pkg-config and the compiler alone
#   subdirectory  add_subdirectory, without a build type, in a C++23 project whose flags and
#                 settings would break the kernels
#   shared        built with the preset `release` as a shared library, where no developer's package
#                 can be found; installed, moved, find_package
#   serial        built without OpenMP, for debugging, through FetchContent; by clang with libc++
#                 where they are installed
# The last three build the library again, with few kernels and little optimisation to save time.
cmake_minimum_required(VERSION 3.22)
set(work ${WORK}/${MODE})
file(REMOVE_RECURSE ${work})
separate_arguments(emulator UNIX_COMMAND "${EMULATOR}")
set(common -G ${GENERATOR} -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${FLAGS}")
if(TOOLCHAIN)
  list(APPEND common --toolchain ${TOOLCHAIN})
endif()
set(small -DHEADLANE_ISAS=portable -DHEADLANE_XSIMD_INCLUDE_DIR=${XSIMD} -DHEADLANE_OPENMP=${OPENMP}
    -DCMAKE_PROJECT_headlane_INCLUDE=${SOURCE}/cmake/precompiled.cmake
    -DCMAKE_CXX_FLAGS_DEBUG= "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# Installs `build` and moves what was installed: nothing in it may know where it was.
function(install_and_move build)
  run(${CMAKE_COMMAND} --install ${build} --config ${TYPE} --prefix ${work}/first)
  file(RENAME ${work}/first ${work}/prefix)
endfunction()

function(build_consumer)
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${work}/consumer ${common} -DHEADLANE_WANTED=${VERSION} ${ARGN})
  run(${CMAKE_COMMAND} --build ${work}/consumer --config ${TYPE})
endfunction()

set(programs consumer consumer_c)
set(plugins default hidden)
if(MODE STREQUAL "installed")
  install_and_move(${BUILD})
  build_consumer(-DHEADLANE_AS=package -DCMAKE_BUILD_TYPE=${TYPE} -DCMAKE_PREFIX_PATH=${work}/prefix
                 -DCMAKE_FIND_ROOT_PATH=${work}/prefix)
elseif(MODE STREQUAL "models" OR MODE STREQUAL "mpi")
  install_and_move(${BUILD})
  build_consumer(-DHEADLANE_AS=package -DCMAKE_BUILD_TYPE=${TYPE} -DCMAKE_PREFIX_PATH=${work}/prefix
                 -DCMAKE_FIND_ROOT_PATH=${work}/prefix -DHEADLANE_COMPONENTS=${MODE})
  list(APPEND programs consumer_${MODE})
elseif(MODE STREQUAL "pkg_config")
  install_and_move(${BUILD})
  file(GLOB_RECURSE pc ${work}/prefix/headlane.pc)
  get_filename_component(pc_dir ${pc} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${pc_dir})
  run(pkg-config --static --cflags --libs headlane)
  separate_arguments(flags UNIX_COMMAND "${FLAGS} ${output}")
  separate_arguments(flags_of_c UNIX_COMMAND "${output}")
  file(MAKE_DIRECTORY ${work}/consumer)
  run(${CXX} -std=c++20 ${SOURCE}/tests/consumer/main.cpp -o ${work}/consumer/consumer ${flags})
  run(${CXX} -std=c++20 ${SOURCE}/tests/consumer/bits.cpp -o ${work}/consumer/consumer_bits ${flags})
  set(plugins "")
  run(${CC} -std=c99 -Wall -Wextra -Wpedantic -Werror ${SOURCE}/tests/consumer/main.c -o ${work}/consumer/consumer_c
      ${flags_of_c})
elseif(MODE STREQUAL "subdirectory")
  set(flags -Ofast -ffast-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros
      -Wsign-conversion -Werror)
  if(NOT TOOLCHAIN)
    list(APPEND flags -march=native)
  endif()
  if(PROCESSOR STREQUAL "x86_64")
    list(APPEND flags -mfpmath=387)
  endif()
  list(JOIN flags " " flags)
  build_consumer(-DHEADLANE_AS=subdirectory -DHEADLANE_SOURCE=${SOURCE} ${small}
                 "-DCMAKE_CXX_FLAGS=${FLAGS} ${flags}" -DCMAKE_CXX_STANDARD=23 -DCMAKE_UNITY_BUILD=ON
                 -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON)
elseif(MODE STREQUAL "shared")
  run(${CMAKE_COMMAND} --preset release -S ${SOURCE} -B ${work}/headlane ${common} ${small} -DBUILD_SHARED_LIBS=ON
      -DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON -DCMAKE_IGNORE_PATH=/usr/include)
  run(${CMAKE_COMMAND} --build ${work}/headlane)
  install_and_move(${work}/headlane)
  build_consumer(-DHEADLANE_AS=package -DCMAKE_BUILD_TYPE=${TYPE} -DCMAKE_PREFIX_PATH=${work}/prefix
                 -DCMAKE_FIND_ROOT_PATH=${work}/prefix -DHEADLANE_OPTIONAL=models_text)
  file(GLOB_RECURSE library ${work}/prefix/libheadlane.so)
  run(${CMAKE_COMMAND} -DNM=${NM} -DLIBRARY=${library} -DHEADERS=${SOURCE}/include/headlane
      -P ${SOURCE}/tests/objects/check_exports.cmake)
elseif(MODE STREQUAL "serial")
  set(libcxx "")
  if(CLANGXX)
    set(libcxx -DCMAKE_C_COMPILER=${CLANG} -DCMAKE_CXX_COMPILER=${CLANGXX} "-DCMAKE_CXX_FLAGS=-stdlib=libc++")
  endif()
  build_consumer(-DHEADLANE_AS=fetch -DHEADLANE_SOURCE=${SOURCE} -DCMAKE_BUILD_TYPE=Debug ${small}
                 -DHEADLANE_OPENMP=OFF ${libcxx})
  list(REMOVE_ITEM plugins default)  # members that the compiler makes of public classes are functions then
endif()

# What links the library exports none of its symbols, neither plugins nor a program with -rdynamic.
# With default visibility there may be weak ones: copies of inline members that the compiler emitted
# into the file itself.
function(check_no_exports file stray)
  run(${NM} -DC --defined-only ${file})
  if(output MATCHES "${stray}")
    message(SEND_ERROR "${file} exports headlane's: ${CMAKE_MATCH_0}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
set(stray_default "[^\n]* [^WV] (headlane|typeinfo[a-z ]* headlane|std::[^\n]*headlane)[^\n]*")
set(stray_hidden "[^\n]* [A-Za-z] ([^.\n][^\n]*)?headlane[^\n]*")
foreach(visibility IN LISTS plugins)
  set(plugin ${work}/consumer/consumer_plugin_${visibility}.so)
  check_no_exports(${plugin} "${stray_${visibility}}")
  if(NOT output MATCHES "plugin_run")
    message(SEND_ERROR "${plugin} does not export its function:\n${output}")
  endif()
endforeach()
if(plugins MATCHES "default")
  check_no_exports(${work}/consumer/consumer "${stray_default}")
  if(NOT output MATCHES " main")
    message(SEND_ERROR "consumer was linked without -rdynamic:\n${output}")
  endif()
endif()

run(${emulator} ${BITS})
string(REGEX MATCH "^[0-9a-f]+" expected "${output}")
foreach(program IN LISTS programs ITEMS consumer_bits)
  run(${emulator} ${work}/consumer/${program})
  message("${output}")
endforeach()
if(NOT output MATCHES "^${expected}( ${expected})*\n$")  # a hash for each instruction set
  message(FATAL_ERROR "the bits are not those of the usual build, ${expected}")
endif()
