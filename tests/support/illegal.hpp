// Illegal calls in bulk: all errors of one argument, and the requirements of each such call.
#pragma once

#include "support/data.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace headlane::test {

inline constexpr Index huge = Index{1} << 62;

// A call that must throw std::invalid_argument with a message that contains these words.
struct Illegal {
  std::string what;
  std::function<void()> call;
  std::vector<std::string> words;
};

inline Index& illegal_calls() {
  static Index count = 0;
  return count;
}

// untouched() returns whether no output was written.
inline void check_illegal(const std::vector<Illegal>& calls, const std::function<bool()>& untouched) {
  for (const Illegal& illegal : calls) {
    ++illegal_calls();
    std::string message;
    try {
      illegal.call();
      FAIL_CHECK("no error: " << illegal.what);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    } catch (const std::exception& error) {
      FAIL_CHECK("not std::invalid_argument but '" << error.what() << "': " << illegal.what);
    }
    for (const std::string& word : illegal.words) {
      CHECK_MESSAGE(message.find(word) != std::string::npos, illegal.what, ": '", message, "' does not say '", word,
                    "'");
    }
    CHECK_MESSAGE(untouched(), illegal.what, ": an output was written");
  }
}

template <class T, int Rank>
View<T, Rank> with_size(View<T, Rank> view, int axis, Index size) {
  view.shape[static_cast<std::size_t>(axis)] = size;
  return view;
}

template <class T, int Rank>
View<T, Rank> with_stride(View<T, Rank> view, int axis, Index stride) {
  view.strides[static_cast<std::size_t>(axis)] = stride;
  return view;
}

// The address plus one byte: not aligned for a float. Never read.
template <class T, int Rank>
View<T, Rank> misaligned(View<T, Rank> view) {
  view.data = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(view.data) + 1);
  return view;
}

template <class T, int Rank>
struct Wrong {
  std::string what;
  View<T, Rank> view;
  std::vector<std::string> words;
};

// All errors of a view, by itself or against the sizes of other operands.
template <class T, int Rank>
std::vector<Wrong<T, Rank>> wrong_views(const View<T, Rank>& good) {
  View<T, Rank> null = good;
  null.data = nullptr;
  std::vector<Wrong<T, Rank>> all{{"null", null, {"null"}}, {"misaligned", misaligned(good), {}}};
  for (int axis = 0; axis < Rank; ++axis) {
    const std::string on = " axis " + std::to_string(axis);
    const Index n = good.size(axis);
    all.push_back({"one more on" + on, with_size(good, axis, n + 1), {std::to_string(n + 1)}});
    if (n > 1) all.push_back({"one less on" + on, with_size(good, axis, n - 1), {std::to_string(n - 1)}});
    all.push_back({"negative" + on, with_size(good, axis, -1), {"-1"}});
    all.push_back({"very negative" + on, with_size(good, axis, -huge), {std::to_string(-huge)}});
    all.push_back({"huge" + on, with_size(good, axis, huge), {std::to_string(huge)}});
    if (n > 1) all.push_back({"huge stride on" + on, with_stride(good, axis, huge), {}});
  }
  return all;
}

template <int Rank>
std::vector<Wrong<float, Rank>> wrong_outputs(const View<float, Rank>& good) {
  std::vector<Wrong<float, Rank>> all = wrong_views(good);
  for (int axis = 0; axis < Rank; ++axis) {
    if (good.size(axis) < 2) continue;
    const std::string on = " axis " + std::to_string(axis);
    all.push_back({"stride 0 on" + on, with_stride(good, axis, 0), {"overlap"}});
    // Axes that interleave.
    if (axis + 1 < Rank) all.push_back({"stride 1 on" + on, with_stride(good, axis, 1), {"overlap"}});
  }
  return all;
}

/// For a view that is optional: null means that it is not given.
template <class T, int Rank>
std::vector<Wrong<T, Rank>> without_null(std::vector<Wrong<T, Rank>> wrong) {
  std::erase_if(wrong, [](const Wrong<T, Rank>& one) { return one.what == "null"; });
  return wrong;
}

template <class T, int Rank, class Call>
void add(std::vector<Illegal>& calls, const char* function, const char* argument,
         const std::vector<Wrong<T, Rank>>& wrong, const Call& call) {
  for (const auto& one : wrong) {
    std::vector<std::string> words{function};
    // A width defines head_dim, which other operands then contradict: the message names one of
    // them.
    const bool width = std::string_view(function) == "multi_head_attention" && one.what == "huge axis 2";
    if (!width) words.insert(words.end(), one.words.begin(), one.words.end());
    if (!width) words.emplace_back(argument);
    const View<T, Rank> view = one.view;
    std::string name(function);
    name.append(", ").append(argument).append(": ").append(one.what);
    calls.push_back({name, [call, view] { call(view); }, words});
  }
}

template <int Rank>
bool all_sentinels(const View<float, Rank>& view) {
  bool all = true;
  for_each(view, [&](float x) { all = all && is_sentinel(x); });
  return all;
}

}  // namespace headlane::test
