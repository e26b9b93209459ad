# Fails unless the kernel object OBJECT is made of the instructions of its ISA: those it must use
# are there, and none that the run-time check does not vouch for, or that would make the scalar
# yardstick a vector one. Estimates of 1/x and 1/sqrt(x) differ between CPUs and are for none of
# them.
cmake_minimum_required(VERSION 3.22)
set(code ${WORK}/instructions.${ISA})
execute_process(COMMAND ${OBJDUMP} -d --no-show-raw-insn ${OBJECT} OUTPUT_FILE ${code} COMMAND_ERROR_IS_FATAL ANY)

set(fma "\tvfn?m(add|sub)[0-9]+")  # x86: vfmadd231ps and its kin; then ps is packed, ss scalar
set(packed "\tv?(add|sub|mul|div|sqrt|max|min)ps[ \t]")
if(PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(must_neon "\tfmla\tv[0-9]+\\.4s")
  set(must_not_scalar "\tf(mla|mls|add|sub|mul|div)\tv[0-9]+\\.[24]s")
  set(must_scalar "\tfn?m(add|sub)\t")
  set(must_not_portable "${must_not_scalar}")
else()
  set(must_avx512 "${fma}ps.*%zmm")
  set(must_avx2 "${fma}ps.*%ymm")
  set(must_not_avx2 "%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])")
  set(must_scalar "${fma}ss")
  set(must_not_scalar "%zmm|${fma}ps|${packed}")  # clang copies through ymm: no arithmetic
  set(must_not_portable "%[yz]mm|\tv[a-z]|${packed}")
endif()
set(estimate "\t(v?r(cp|sqrt)[0-9]*[ps]s|f(recp|rsqrt)[es])[ \t]")

# first_like(PATTERN): sets `line` to the first instruction like it, or to nothing. By grep: CMake
# takes 20 s for a file.
function(first_like pattern)
  execute_process(COMMAND grep -E -m 1 -e "${pattern}" ${code} RESULT_VARIABLE result OUTPUT_VARIABLE line)
  if(NOT result MATCHES "^[01]$")
    message(FATAL_ERROR "grep: ${result}")
  endif()
  set(line "${line}" PARENT_SCOPE)
endfunction()

if(DEFINED must_${ISA})
  first_like("${must_${ISA}}")
  if(line STREQUAL "")
    message(SEND_ERROR "${OBJECT} has no instruction like '${must_${ISA}}'")
  endif()
endif()
foreach(pattern IN LISTS must_not_${ISA} estimate)
  first_like("${pattern}")
  if(NOT line STREQUAL "")
    message(SEND_ERROR "${OBJECT} has an instruction that is not for ${ISA}: ${line}")
  endif()
endforeach()
