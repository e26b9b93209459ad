# The tests consumer.*: each runs consumer/run.cmake, which says what the modes do.
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
# The C compiler that belongs to the C++ compiler: g++ and gcc, clang++-19 and clang-19.
get_filename_component(c_compiler_folder ${CMAKE_CXX_COMPILER} DIRECTORY)
get_filename_component(c_compiler ${CMAKE_CXX_COMPILER} NAME)
string(REPLACE "clang++" "clang" c_compiler ${c_compiler})
string(REPLACE "g++" "gcc" c_compiler ${c_compiler})
string(REPLACE "c++" "cc" c_compiler ${c_compiler})
find_program(HEADLANE_C_COMPILER NAMES ${c_compiler} cc HINTS ${c_compiler_folder})
mark_as_advanced(HEADLANE_C_COMPILER)
# The usual build's bits.
add_executable(consumer_bits consumer/bits.cpp)
target_link_libraries(consumer_bits PRIVATE headlane)
# clang with its own standard library, where it is installed; CMakePresets.json names the version.
file(STRINGS ${PROJECT_SOURCE_DIR}/CMakePresets.json presets REGEX "clang\\+\\+")
string(REGEX MATCH "clang\\+\\+(-[0-9]+)" clangxx "${presets}")
find_program(HEADLANE_CLANG clang${CMAKE_MATCH_1})
find_program(HEADLANE_CLANGXX ${clangxx})
mark_as_advanced(HEADLANE_CLANG HEADLANE_CLANGXX)
set(libcxx "")
if(HEADLANE_CLANGXX AND NOT CMAKE_CROSSCOMPILING)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "#include <vector>"
                  COMMAND ${HEADLANE_CLANGXX} -stdlib=libc++ -E -x c++ -
                  RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  if(result EQUAL 0)
    set(libcxx -DCLANG=${HEADLANE_CLANG} -DCLANGXX=${HEADLANE_CLANGXX})
  endif()
endif()
set(settings
  -DSOURCE=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR} -DWORK=${CMAKE_CURRENT_BINARY_DIR}/consumer
  -DVERSION=${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  -DGENERATOR=${CMAKE_GENERATOR} -DTYPE=$<CONFIG> -DCC=${HEADLANE_C_COMPILER} -DCXX=${CMAKE_CXX_COMPILER}
  -DTOOLCHAIN=${CMAKE_TOOLCHAIN_FILE}
  "-DEMULATOR=${emulator}" "-DFLAGS=${CMAKE_CXX_FLAGS}" -DOPENMP=${HEADLANE_OPENMP}
  -DXSIMD=${headlane_xsimd_dir} -DPROCESSOR=${CMAKE_SYSTEM_PROCESSOR} -DNM=${CMAKE_NM}
  -DBITS=$<TARGET_FILE:consumer_bits> ${libcxx})
set(modes installed pkg_config subdirectory shared serial)
if(HEADLANE_BUILD_MODELS)
  list(APPEND modes models)
endif()
if(HEADLANE_BUILD_MPI)
  list(APPEND modes mpi)
endif()
foreach(mode IN LISTS modes)
  add_test(NAME consumer.${mode} COMMAND ${CMAKE_COMMAND} ${settings} -DMODE=${mode}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/consumer/run.cmake)
  set_tests_properties(consumer.${mode} PROPERTIES LABELS consumer TIMEOUT 900)
endforeach()
find_program(HEADLANE_PKG_CONFIG pkg-config)
mark_as_advanced(HEADLANE_PKG_CONFIG)
if(NOT HEADLANE_PKG_CONFIG)
  set_tests_properties(consumer.pkg_config PROPERTIES DISABLED ON)
endif()
