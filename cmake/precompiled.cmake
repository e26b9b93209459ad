# Included by headlane's project() in the developer's builds (CMAKE_PROJECT_headlane_INCLUDE): the
# headers that most files need are compiled once for each library, which takes half the time.
set(headlane_precompiled <headlane/headlane.hpp> <algorithm> <array> <cmath> <functional> <limits> <memory> <span>
  <string> <vector>)
function(headlane_precompile)
  foreach(library headlane headlane_models headlane_mpi)
    if(TARGET ${library})
      target_precompile_headers(${library} PRIVATE ${headlane_precompiled})
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL headlane_precompile)
