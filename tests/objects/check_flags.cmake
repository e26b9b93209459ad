# Fails unless the options that this project gives a target leave nothing of flags that the
# surrounding project may have set: OPTIONS, those of a kernel (KERNEL is on) or of another file.
# All macros that the compiler defines must be as without those flags, and with GCC all optimisers
# that touch floating point.
cmake_minimum_required(VERSION 3.22)
separate_arguments(options UNIX_COMMAND "${OPTIONS}")
set(outside -Ofast -ffast-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -freciprocal-math
  -fassociative-math -ffp-contract=fast "-ffast-math -ffp-contract=fast -flto")
if(COMPILER_ID STREQUAL "GNU")
  list(APPEND outside -fsingle-precision-constant -fno-trapping-math
       "-ffinite-math-only -fno-math-errno -fno-trapping-math")
else()
  list(APPEND outside -ffp-model=fast)
endif()
if(PROCESSOR STREQUAL "x86_64")
  list(APPEND outside -mfpmath=387 "-mfpmath=387 -Ofast")
  if(KERNEL)
    list(APPEND outside -march=native -march=x86-64-v4 -march=znver4 "-mavx2 -mfma -mbmi2"
         "-mavx512f -mavx512bw -mavx512vl -mavx512dq" "-msse4.2 -mpopcnt" "-march=native -Ofast -flto")
  endif()
endif()

# The macros and optimizers that flags result in. -O3 is among them, as in a build; -Ofast
# replaces it.
function(settings result)
  # clang warns of -Ofast, which must not be an error here.
  execute_process(COMMAND ${CXX} ${ARGN} -Wno-error -E -dM -x c++ /dev/null
                  OUTPUT_VARIABLE macros ERROR_VARIABLE error RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${error}")
  endif()
  if(COMPILER_ID STREQUAL "GNU")
    execute_process(COMMAND ${CXX} ${ARGN} -Q --help=optimizers OUTPUT_VARIABLE optimizers COMMAND_ERROR_IS_FATAL ANY)
    string(APPEND macros "${optimizers}")
  endif()
  # These remain: -Ofast's own, complex numbers, __XSAVE__ for operating systems. They change no
  # number.
  set(flags "allow-store-data-races|semantic-interposition|math-errno|excess-precision|cx-limited-range")
  string(REGEX REPLACE "\n *-(O|f(${flags}))[^\n]*" "" macros "${macros}")
  set(names "__EVEX512__|__XSAVE__|__NO_MATH_ERRNO__|[A-Z_]*IEC_[0-9]+_COMPLEX[_]*")
  string(REGEX REPLACE "#define (${names}) [0-9L]+\n" "" macros "${macros}")
  string(REPLACE ";" "," macros "${macros}")
  string(REPLACE "\n" ";" macros "${macros}")
  list(SORT macros)
  set(${result} "${macros}" PARENT_SCOPE)
endfunction()

settings(usual -O3 ${options})
foreach(flags IN LISTS outside)
  separate_arguments(flags_list UNIX_COMMAND "${flags}")
  settings(actual -O3 ${flags_list} ${options})
  set(changed ${actual})
  list(REMOVE_ITEM changed ${usual})
  set(missing ${usual})
  list(REMOVE_ITEM missing ${actual})
  if(changed OR missing)
    list(JOIN changed "\n  " changed)
    list(JOIN missing "\n  " missing)
    message(SEND_ERROR "${flags} outside brings\n  ${changed}\nin the place of\n  ${missing}")
  endif()
endforeach()
