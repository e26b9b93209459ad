// Tests with guard pages: operands at either end of a buffer between two inaccessible pages,
// lengths and misalignments.
#pragma once

#include "support/data.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>

namespace headlane::test {

inline constexpr Index longest = 257;

// An operand in a buffer between guard pages.
template <int Rank>
struct Guarded {
  GuardedBuffer buffer{Index{40} << 10};
  View<float, Rank> view;

  // Places a copy of `from` with this layout at the end (or the beginning) of the buffer.
  void place(const View<float, Rank>& from, const Layout& layout, Index gap, Place where) {
    const Tensor<Rank> model(from.shape, layout);
    view.shape = from.shape;
    view.strides = model.view.strides;
    const Reach reach = reach_of(view.shape, view.strides);
    bool empty = false;
    for (const Index size : view.shape) empty = empty || size == 0;
    float* first = buffer.place(empty ? 0 : reach.high - reach.low + 1, gap, where);
    view.data = first - reach.low;
    if (!empty) copy<Rank>(from, view);
  }
};

struct Counts {
  Index cases = 0, wrong = 0, stray = 0;
  std::string first;
  void add(bool right, bool untouched, const std::string& text) {
    ++cases;
    wrong += right ? 0 : 1;
    stray += untouched ? 0 : 1;
    if ((!right || !untouched) && first.empty()) first = text;
  }
  void finish(const std::string& op, Index least = 1000) const {
    MESSAGE(op, ", isa ", isa(), ": ", cases, " guarded cases");
    CHECK(cases > least);
    CHECK_MESSAGE(wrong == 0, "not the result that ordinary memory gives; the first: ", first);
    CHECK_MESSAGE(stray == 0, "written outside the output; the first: ", first);
  }
};

// f(length, gap, where) for lengths 0 … 257 and both ends, at each misalignment 0 … 15 up to 96,
// at two of them beyond and for a slow ISA.
template <class F>
void everywhere(F f) {
  for (Index length = 0; length <= longest; ++length) {
    for (Index gap = 0; gap < 16; ++gap) {
      if ((slow_isa() || length > 96) && gap != 0 && gap != 1 + length % 15) continue;
      f(length, gap, Place::start);
      f(length, gap, Place::end);
    }
  }
}

inline const std::vector<Layout>& guard_layouts() {
  static const std::vector<Layout> all{
      {}, {"transposed", Order::columns}, {.name = "padded", .padding = 3}, {.name = "inner stride 2", .step = 2}};
  return all;
}

inline const Layout& layout_of(Index length, Index gap, Index operand) {
  return guard_layouts()[static_cast<std::size_t>((length + gap + gap / 4 * operand) % 4)];
}

inline std::string text_of_case(const std::string& what, Index length, Index gap, Place where) {
  std::ostringstream text;
  text << what << " " << length << ", gap " << gap << (where == Place::end ? ", end" : ", start") << ", isa " << isa();
  return text.str();
}

// run(x, y) with x and y between guard pages, dense and in other layouts, and with y in place of x.
template <int Rank>
struct GuardedRows {
  Guarded<Rank> x, y;
  Counts counts;

  template <class Run>
  void check(const std::string& what, const View<float, Rank>& values, const View<float, Rank>& expected, Index length,
             Index gap, Place where, const Run& run) {
    for (const bool vary : {false, true}) {
      x.place(values, vary ? layout_of(length, gap, 1) : Layout{}, gap, where);
      y.place(values, vary ? layout_of(length, gap, 2) : Layout{}, gap, where);
      run(x.view, y.view);
      counts.add(different_bits(y.view, expected) == 0, y.buffer.surroundings_untouched(),
                 text_of_case(what, length, gap, where));
      run(x.view, x.view);
      counts.add(different_bits(x.view, expected) == 0, x.buffer.surroundings_untouched(),
                 text_of_case(what + " in place", length, gap, where));
    }
  }
};

}  // namespace headlane::test
