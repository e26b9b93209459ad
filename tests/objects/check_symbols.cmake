# Fails unless the kernel object OBJECT gives the linker exactly one symbol of its own, its table,
# and no weak symbol that does not name the ISA: another weak one could be the copy that the linker
# keeps for all of them (src/kernels/README.md).
cmake_minimum_required(VERSION 3.22)
execute_process(COMMAND ${NM} -C -g --defined-only ${OBJECT} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "," output "${output}")
string(STRIP "${output}" output)
string(REPLACE "\n" ";" lines "${output}")

# What names an ISA. xsimd's archs share registers within a family: avx512bw with avx512dq,
# fma3<avx2> with avx2. NEON needs no flags: whichever copy of a symbol the linker keeps, it runs
# everywhere.
set(family_avx512 "avx512")
set(family_avx2 "xsimd::avx2[>,]")
set(family_neon ".")
set(family_scalar "headlane::internal::kernels::Scalar[>,]")
set(family_portable "headlane::internal::kernels::Portable[>,]")

set(table "headlane::internal::kernels::table_${ISA}")
set(strong "")
set(stray "")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^[0-9a-f]+ ([A-Za-z]) (.*)$")
    message(FATAL_ERROR "nm printed a line that is no symbol: ${line}")
  endif()
  set(type "${CMAKE_MATCH_1}")
  set(symbol "${CMAKE_MATCH_2}")
  if(NOT type MATCHES "[WVu]")
    list(APPEND strong "${symbol}")
  elseif(NOT symbol MATCHES "${family_${ISA}}")
    list(APPEND stray "${symbol}")
  endif()
endforeach()
if(NOT strong STREQUAL table)
  list(JOIN strong "\n  " strong)
  message(SEND_ERROR "${OBJECT} should export ${table} alone; it exports\n  ${strong}")
endif()
if(stray)
  list(JOIN stray "\n  " stray)
  message(SEND_ERROR "${OBJECT} has weak symbols that do not name ${ISA}:\n  ${stray}")
endif()
