# One way to use headlane, from nothing to a run of main.cpp and main.c. MODE is
#   installed     this build installed, the folder moved, find_package
#   models        the same with the component models
#   pkg_config    this build installed, the folder moved, pkg-config and the compiler alone
#   subdirectory  add_subdirectory, without a build type
#   shared        built as a shared library, installed, moved, find_package
#   serial        built without OpenMP, through FetchContent
# The last three build the library again, with the portable kernels alone to save time.
set(work ${WORK}/${MODE})
file(REMOVE_RECURSE ${work})
separate_arguments(emulator UNIX_COMMAND "${EMULATOR}")
set(common -G ${GENERATOR} -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${FLAGS}")
if(TOOLCHAIN)
  list(APPEND common --toolchain ${TOOLCHAIN})
endif()
set(small -DHEADLANE_ISAS=portable -DHEADLANE_XSIMD_INCLUDE_DIR=${XSIMD} -DHEADLANE_OPENMP=${OPENMP})

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
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${work}/consumer ${common} ${ARGN})
  run(${CMAKE_COMMAND} --build ${work}/consumer --config ${TYPE})
endfunction()

set(programs consumer consumer_c)
if(MODE STREQUAL "installed")
  install_and_move(${BUILD})
  build_consumer(-DHEADLANE_AS=package -DCMAKE_BUILD_TYPE=${TYPE} -DCMAKE_PREFIX_PATH=${work}/prefix
                 -DCMAKE_FIND_ROOT_PATH=${work}/prefix)
elseif(MODE STREQUAL "models")
  install_and_move(${BUILD})
  build_consumer(-DHEADLANE_AS=package -DCMAKE_BUILD_TYPE=${TYPE} -DCMAKE_PREFIX_PATH=${work}/prefix
                 -DCMAKE_FIND_ROOT_PATH=${work}/prefix -DHEADLANE_COMPONENTS=models)
  list(APPEND programs consumer_models)
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
  run(${CC} -std=c99 -Wall -Wextra -Wpedantic -Werror ${SOURCE}/tests/consumer/main.c -o ${work}/consumer/consumer_c
      ${flags_of_c})
elseif(MODE STREQUAL "subdirectory")
  build_consumer(-DHEADLANE_AS=subdirectory -DHEADLANE_SOURCE=${SOURCE} ${small})
elseif(MODE STREQUAL "shared")
  run(${CMAKE_COMMAND} -S ${SOURCE} -B ${work}/headlane ${common} ${small} -DCMAKE_BUILD_TYPE=${TYPE} -DBUILD_SHARED_LIBS=ON
      -DHEADLANE_BUILD_TESTS=OFF -DHEADLANE_BUILD_BENCH=OFF -DHEADLANE_BUILD_EXAMPLES=OFF)
  run(${CMAKE_COMMAND} --build ${work}/headlane --config ${TYPE})
  install_and_move(${work}/headlane)
  build_consumer(-DHEADLANE_AS=package -DCMAKE_BUILD_TYPE=${TYPE} -DCMAKE_PREFIX_PATH=${work}/prefix
                 -DCMAKE_FIND_ROOT_PATH=${work}/prefix)
elseif(MODE STREQUAL "serial")
  build_consumer(-DHEADLANE_AS=fetch -DHEADLANE_SOURCE=${SOURCE} -DCMAKE_BUILD_TYPE=${TYPE} ${small} -DHEADLANE_OPENMP=OFF)
endif()

foreach(program IN LISTS programs)
  run(${emulator} ${work}/consumer/${program})
  message("${output}")
endforeach()
