// Prints the worked examples; exits with 1 if a figure is wrong.
#include "worked_examples.hpp"

#include <iostream>

int main() {
  bool good = true;
  for (const auto example :
       {worked::print_example_a, worked::print_example_b, worked::print_example_d, worked::print_example_e}) {
    good = example(std::cout) && good;
    std::cout << '\n';
  }
  return good ? 0 : 1;
}
