// The class KvCache. Calls on several threads take turns: see LockedKvCache.
#include "kv_cache.hpp"

#include "call.hpp"
#include "functions.hpp"

#include <mutex>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <new>
#include <string>
#include <vector>

namespace headlane::python {
namespace {

constexpr const char* documentation =
    R"(Keys and values of any number of sequences, which grow by some tokens at a time, in the order in which attention reads them.

kv_heads, head_dim: of the keys; value_dim: of the values, head_dim if None. Both dims are 1 to 512.
page_size: keys of a page: 32, 64, 128, 256 or a multiple of 512. Short pages waste less at the end of a sequence.
max_pages: that it may hold at a time; 0: as many as memory has.

A sequence is named by the number that add() or fork() gave, which is used again after remove(). Sequences that were forked
share pages until one of them is appended to. A call that raises leaves the cache as it was. Any number of threads may use it.)";

/// The library's messages name KvCache::append; here it is KvCache.append.
std::string translated(const char* message) {
  std::string text = message;
  const std::string ours = "KvCache::";
  if (text.starts_with(ours)) text.replace(0, ours.size(), "KvCache.");
  return text;
}

/// f(cache) without the GIL, when the lock is there.
template <class Lock, class Self, class F>
auto locked(Self& self, F f) {
  try {
    const nb::gil_scoped_release release;
    const Lock lock(self.mutex);
    return f(self.cache);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(translated(error.what()));
  } catch (const std::length_error& error) {
    throw std::length_error(translated(error.what()));
  }
}

template <class F>
auto change(LockedKvCache& self, F f) {
  return locked<std::unique_lock<std::shared_mutex>>(self, f);
}

template <class F>
auto read(const LockedKvCache& self, F f) {
  return locked<std::shared_lock<std::shared_mutex>>(self, f);
}

constexpr const char* append_name = "KvCache.append";

template <int Rank>
View<const float, Rank> view_of(const Array& x, const char* axes) {
  x.require_float();
  require(x.rank() == Rank, append_name, ": ", x.name(), " has shape ", x, "; wanted: ", axes);
  View<const float, Rank> view;
  view.data = x.floats();
  for (int axis = 0; axis < Rank; ++axis) {
    view.shape[static_cast<std::size_t>(axis)] = x.size(axis);
    view.strides[static_cast<std::size_t>(axis)] = x.stride(axis);
  }
  return view;
}

void append_to(LockedKvCache& self, nb::handle sequences, nb::handle key, nb::handle value) {
  const Array k(append_name, "k", key), v(append_name, "v", value);
  if (!nb::hasattr(sequences, "__iter__")) {  // an array of one element would be an integer as well
    const Index sequence = integer_of(sequences);
    const auto view_k = view_of<3>(k, "[kv_heads, tokens, head_dim]");
    const auto view_v = view_of<3>(v, "[kv_heads, tokens, value_dim]");
    return change(self, [&](KvCache& cache) { cache.append(sequence, view_k, view_v); });
  }
  std::vector<Index> numbers;
  for (const nb::handle sequence : nb::borrow<nb::object>(sequences)) numbers.push_back(integer_of(sequence));
  const auto view_k = view_of<4>(k, "[sequences, kv_heads, tokens, head_dim]");
  const auto view_v = view_of<4>(v, "[sequences, kv_heads, tokens, value_dim]");
  change(self, [&](KvCache& cache) { cache.append(numbers, view_k, view_v); });
}

std::string text_of(const LockedKvCache& self) {
  return read(self, [](const KvCache& cache) {
    return "KvCache(kv_heads=" + std::to_string(cache.kv_heads()) + ", head_dim=" + std::to_string(cache.head_dim()) +
           ", value_dim=" + std::to_string(cache.value_dim()) + ", page_size=" + std::to_string(cache.page_size()) +
           ", pages_in_use=" + std::to_string(cache.pages_in_use()) + ")";
  });
}

/// A property that a member function of KvCache gives.
template <auto Member>
auto property() {
  return [](const LockedKvCache& self) { return read(self, [](const KvCache& cache) { return (cache.*Member)(); }); };
}

}  // namespace

void add_kv_cache(nb::module_& module) {
  nb::class_<LockedKvCache>(module, "KvCache", nb::is_final(), documentation)
      .def(
          "__init__",
          [](LockedKvCache* self, Index kv_heads, Index head_dim, std::optional<Index> value_dim, Index page_size,
             Index max_pages) {
            const KvCacheOptions options{.page_size = page_size, .max_pages = max_pages};
            new (self) LockedKvCache{KvCache(kv_heads, head_dim, value_dim.value_or(head_dim), options)};
          },
          nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("value_dim").none() = nb::none(), nb::kw_only(),
          nb::arg("page_size") = KvCacheOptions{}.page_size, nb::arg("max_pages") = 0)
      .def(
          "add", [](LockedKvCache& self) { return change(self, [](KvCache& cache) { return cache.add(); }); },
          "A new sequence without keys; gives its number.")
      .def(
          "fork",
          [](LockedKvCache& self, Index sequence, std::optional<Index> length) {
            // In C++ -1 is all.
            require(!length || *length >= 0, "KvCache.fork: length is ", length.value_or(0), ", the least is 0");
            return change(self, [&](KvCache& cache) { return cache.fork(sequence, length.value_or(-1)); });
          },
          nb::arg("sequence"), nb::arg("length").none() = nb::none(),
          "A new sequence of the first `length` keys of another one, all of them if None; copies nothing.")
      .def("append", &append_to, nb::arg("sequence"), nb::arg("k").none(), nb::arg("v").none(),
           "Copies keys k [kv_heads, tokens, head_dim] and values v [kv_heads, tokens, value_dim], float32 with any "
           "strides, to the\nend of a sequence. For several sequences, each named once, both have one more axis in "
           "front. Raises ValueError if\nmax_pages would be exceeded.")
      .def(
          "truncate",
          [](LockedKvCache& self, Index sequence, Index length) {
            change(self, [&](KvCache& cache) { cache.truncate(sequence, length); });
          },
          nb::arg("sequence"), nb::arg("length"), "Keeps the first `length` keys.")
      .def(
          "remove",
          [](LockedKvCache& self, Index sequence) { change(self, [&](KvCache& cache) { cache.remove(sequence); }); },
          nb::arg("sequence"), "Forgets a sequence; pages that no other one shares are free again.")
      .def(
          "length",
          [](const LockedKvCache& self, Index sequence) {
            return read(self, [&](const KvCache& cache) { return cache.length(sequence); });
          },
          nb::arg("sequence"), "Keys of a sequence.")
      .def_prop_ro("kv_heads", property<&KvCache::kv_heads>())
      .def_prop_ro("head_dim", property<&KvCache::head_dim>())
      .def_prop_ro("value_dim", property<&KvCache::value_dim>())
      .def_prop_ro("page_size", property<&KvCache::page_size>())
      .def_prop_ro("pages_in_use", property<&KvCache::pages_in_use>(),
                   "Pages that sequences hold, each counted once however many share it.")
      .def_prop_ro("page_nbytes", property<&KvCache::page_bytes>(), "The memory of one page.")
      .def_prop_ro("nbytes", property<&KvCache::bytes>(),
                   "The memory that it holds, free pages that are kept for later included.")
      .def("__repr__", &text_of);
}

}  // namespace headlane::python
