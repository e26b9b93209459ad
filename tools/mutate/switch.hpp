// Included first in every source file of a build with planted faults: (headlane_mutant(17) ?
// (planted) : (original)).
#pragma once
#if defined(__cplusplus) && __cplusplus >= 202002L  // not in what CMake compiles to find out about the compiler
#include <type_traits>

extern "C" int headlane_mutant_active;           // HEADLANE_MUTANT; below 0: none
extern "C" unsigned char* headlane_mutants_met;  // a byte for each that was evaluated, or nullptr

/// Whether fault `number` is switched on. Never in a constant expression: such faults are compiled
/// alone.
constexpr bool headlane_mutant(int number) {
  if (std::is_constant_evaluated()) return false;
  if (headlane_mutants_met != nullptr) headlane_mutants_met[number] = 1;
  return headlane_mutant_active == number;
}
#endif
