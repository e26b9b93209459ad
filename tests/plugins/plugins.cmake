# Two plugins with the library inside, of different versions whose scratch memory differs, and a
# program that loads both.
add_library(headlane_other STATIC)
get_target_property(sources headlane SOURCES)
list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/ REGEX "^src/")
get_target_property(definitions headlane COMPILE_DEFINITIONS)
list(FILTER definitions EXCLUDE REGEX "HEADLANE_VERSION|HEADLANE_SHARED")
headlane_common(headlane_other)
target_sources(headlane_other PRIVATE ${sources})
target_include_directories(headlane_other PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(headlane_other PRIVATE ${definitions} HEADLANE_VERSION="99.9.9")
target_compile_options(headlane_other PRIVATE -O0)
target_precompile_headers(headlane_other PRIVATE plugins/other_version.hpp ${headlane_precompiled})
target_link_libraries(headlane_other PRIVATE $<TARGET_NAME_IF_EXISTS:OpenMP::OpenMP_CXX>)
set_target_properties(headlane_other PROPERTIES
  POSITION_INDEPENDENT_CODE ON
  DISABLE_PRECOMPILE_HEADERS OFF  # other_version.hpp is one of them
  EXPORT_COMPILE_COMMANDS OFF)  # clang-tidy would check each source file twice

foreach(version internals other)
  add_library(plugin_${version} MODULE consumer/plugin.cpp)
  target_link_libraries(plugin_${version} PRIVATE headlane_${version} $<TARGET_NAME_IF_EXISTS:OpenMP::OpenMP_CXX>)
  set_target_properties(plugin_${version} PROPERTIES PREFIX "")
endforeach()
headlane_test(plugins runtime)
target_compile_definitions(test_plugins PRIVATE HEADLANE_PLUGIN="$<TARGET_FILE:plugin_internals>"
                                                HEADLANE_OTHER_PLUGIN="$<TARGET_FILE:plugin_other>")
target_link_libraries(test_plugins PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(test_plugins plugin_internals plugin_other)

add_executable(plugin_host plugins/host.cpp)
target_compile_features(plugin_host PRIVATE cxx_std_20)
target_link_libraries(plugin_host PRIVATE ${CMAKE_DL_LIBS})
add_test(NAME plugin_host COMMAND plugin_host $<TARGET_FILE:plugin_internals>)
set_tests_properties(plugin_host PROPERTIES ENVIRONMENT "${test_environment}" TIMEOUT 60)
