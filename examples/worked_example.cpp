// Prints both worked examples; the exit code tells whether every figure is right.
#include "worked_examples.hpp"

#include <iostream>

int main() {
  const bool a = worked::print_example_a(std::cout);
  std::cout << '\n';
  const bool b = worked::print_example_b(std::cout);
  return a && b ? 0 : 1;
}
