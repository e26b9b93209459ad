# Install rules: library, headers, CMake package and pkg-config file, all relocatable.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# A program that links the static library also links the OpenMP runtime; the shared library has it.
get_target_property(type headlane TYPE)
set(HEADLANE_NEEDS_OPENMP OFF)
if(TARGET OpenMP::OpenMP_CXX AND type STREQUAL "STATIC_LIBRARY")
  set(HEADLANE_NEEDS_OPENMP ON)
endif()

target_include_directories(headlane INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS headlane EXPORT headlane-targets)
install(DIRECTORY include/headlane TYPE INCLUDE)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headlane)
install(EXPORT headlane-targets NAMESPACE headlane:: DESTINATION ${package_dir})
configure_package_config_file(cmake/headlane-config.cmake.in headlane-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(headlane-config-version.cmake COMPATIBILITY SameMinorVersion)
# Each component has a targets file of its own, so that its dependencies are only needed by those
# who ask for it.
foreach(component models models_text mpi)
  if(TARGET headlane_${component})
    install(TARGETS headlane_${component} EXPORT headlane-${component}-targets)
    install(EXPORT headlane-${component}-targets NAMESPACE headlane:: DESTINATION ${package_dir})
  endif()
endforeach()
if(TARGET headlane_models)
  install(DIRECTORY models/include/headlane TYPE INCLUDE)
endif()
if(TARGET headlane_mpi)
  install(DIRECTORY mpi/include/headlane TYPE INCLUDE)
endif()
if(TARGET headlane_translate)
  install(TARGETS headlane_translate)
endif()
if(TARGET headlane_models_text)
  install(FILES cmake/FindSentencePiece.cmake DESTINATION ${package_dir})
endif()

install(FILES ${CMAKE_CURRENT_BINARY_DIR}/headlane-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/headlane-config-version.cmake DESTINATION ${package_dir})

# pkg-config: the prefix is relative to the file.
file(RELATIVE_PATH HEADLANE_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  message(WARNING "CMAKE_INSTALL_LIBDIR or CMAKE_INSTALL_INCLUDEDIR is absolute: headlane.pc will not be right")
endif()
set(HEADLANE_PC_DEFINITIONS "")
if(type STREQUAL "SHARED_LIBRARY")
  set(HEADLANE_PC_DEFINITIONS " -DHEADLANE_SHARED")
endif()
set(HEADLANE_PC_PRIVATE "-lstdc++ -lm")
if("c++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES) # clang with -stdlib=libc++
  set(HEADLANE_PC_PRIVATE "-lc++ -lm")
endif()
if(HEADLANE_NEEDS_OPENMP)
  string(PREPEND HEADLANE_PC_PRIVATE "${OpenMP_CXX_FLAGS} ")
endif()
configure_file(cmake/headlane.pc.in headlane.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/headlane.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
