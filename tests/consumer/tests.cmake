# The tests consumer.*: each runs consumer/run.cmake, which says what the modes do.
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
set(settings
  -DSOURCE=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR} -DWORK=${CMAKE_CURRENT_BINARY_DIR}/consumer
  -DGENERATOR=${CMAKE_GENERATOR} -DTYPE=$<CONFIG> -DCXX=${CMAKE_CXX_COMPILER} -DTOOLCHAIN=${CMAKE_TOOLCHAIN_FILE}
  "-DEMULATOR=${emulator}" "-DFLAGS=${CMAKE_CXX_FLAGS}" -DOPENMP=${HEADLANE_OPENMP}
  -DXSIMD=${headlane_xsimd_dir})
foreach(mode installed pkg_config subdirectory shared serial)
  add_test(NAME consumer.${mode} COMMAND ${CMAKE_COMMAND} ${settings} -DMODE=${mode}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/consumer/run.cmake)
  set_tests_properties(consumer.${mode} PROPERTIES LABELS consumer TIMEOUT 900)
endforeach()
find_program(HEADLANE_PKG_CONFIG pkg-config)
mark_as_advanced(HEADLANE_PKG_CONFIG)
if(NOT HEADLANE_PKG_CONFIG)
  set_tests_properties(consumer.pkg_config PROPERTIES DISABLED ON)
endif()
