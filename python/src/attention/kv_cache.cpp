// The class KvCache. Calls on several threads take turns: see LockedKvCache.
#include "attention/kv_cache.hpp"

#include "attention/kv_pages.hpp"  // the library's own
#include "core/call.hpp"
#include "core/functions.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace headlane::python {
namespace {

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
  const std::vector<Index> numbers = integers_of(append_name, "sequence", sequences);
  if (!nb::hasattr(sequences, "__iter__")) {
    const auto view_k = view_of<3>(k, "[kv_heads, tokens, head_dim]");
    const auto view_v = view_of<3>(v, "[kv_heads, tokens, value_dim]");
    return change(self, [&](KvCache& cache) { cache.append(numbers[0], view_k, view_v); });
  }
  const auto view_k = view_of<4>(k, "[sequences, kv_heads, tokens, head_dim]");
  const auto view_v = view_of<4>(v, "[sequences, kv_heads, tokens, value_dim]");
  change(self, [&](KvCache& cache) { cache.append(numbers, view_k, view_v); });
}

/// What a sequence is made of again: the first `shared` keys of another one, which is made before it, and keys of its own.
struct SavedSequence {
  Index number, length, source = -1, shared = 0;
  std::vector<float> k{}, v{};
};

/// The sequences in the order in which they can be made, the longest first: so that pages are shared again.
std::vector<SavedSequence> saved_sequences(const KvCache& cache) {
  const internal::KvPages& pages = cache.pages();
  std::vector<SavedSequence> saved;
  for (Index number = 0; number < std::ssize(pages.sequences); ++number)
    if (pages.has(number)) saved.push_back({.number = number, .length = pages.length(number)});
  std::ranges::sort(saved, std::less(), [](const SavedSequence& one) { return std::pair(-one.length, one.number); });
  std::map<const internal::KvPages::Page*, Index> holders;
  for (SavedSequence& one : saved) {
    const auto& own = pages.at(one.number).pages;
    for (std::size_t i = own.size(); i-- > 0 && one.source < 0;)
      if (const auto found = holders.find(own[i]); found != holders.end()) {
        one.source = found->second;
        one.shared = std::min(static_cast<Index>(i + 1) * pages.page_size, one.length);
      }
    for (const internal::KvPages::Page* page : own) holders.emplace(page, one.number);
    const Index heads = pages.kv_heads, count = one.length - one.shared;
    one.k.resize(static_cast<std::size_t>(heads * count * pages.head_dim));
    one.v.resize(static_cast<std::size_t>(heads * count * pages.value_dim));
    cache.read(one.number, one.shared, {one.k.data(), {heads, count, pages.head_dim}},
               {one.v.data(), {heads, count, pages.value_dim}});
  }
  return saved;
}

/// What headlane/_kv_cache.py makes a cache of again: sizes, how many numbers there are, those that are free in the order in which they
/// are given, and the sequences.
nb::tuple state_of(const LockedKvCache& self) {
  std::vector<SavedSequence> saved;
  std::vector<Index> free;
  const auto sizes = read(self, [&](const KvCache& cache) {
    const internal::KvPages& pages = cache.pages();
    saved = saved_sequences(cache);
    for (Index number = pages.free_number; number >= 0; number = pages.at(number).next_free) free.push_back(number);
    return std::array{pages.kv_heads, pages.head_dim, pages.value_dim, pages.page_size, pages.max_pages};
  });
  nb::list sequences, numbers;
  for (const SavedSequence& one : saved) {
    const Index count = one.length - one.shared;
    sequences.append(nb::make_tuple(one.number, one.source, one.shared, array_of(one.k, {sizes[0], count, sizes[1]}),
                                    array_of(one.v, {sizes[0], count, sizes[2]})));
  }
  for (const Index number : free) numbers.append(number);
  return nb::make_tuple(nb::make_tuple(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]), numbers, sequences);
}

/// A property that a member function of KvCache gives.
template <auto Member>
auto property() {
  return [](const LockedKvCache& self) { return read(self, [](const KvCache& cache) { return (cache.*Member)(); }); };
}

}  // namespace

LockedKvCache& cache_of(const char* function, const char* name, nb::handle object) {
  if (auto* cache = instance_of<LockedKvCache>(function, name, object)) return *cache;
  throw nb::type_error(
      (std::string(function) + ": " + name + " has type " + nb::type_name(object.type()).c_str() + "; wanted: KvCache")
          .c_str());
}

void add_kv_cache(nb::module_& module) {
  nb::class_<LockedKvCache> cache(module, "KvCache");
  const auto def = [&](const char* name, auto function, auto... names) {
    cache.def(name, function, nb::arg(names).none()...);
  };
  def(
      "__init__",
      [](LockedKvCache* self, nb::handle kv_heads, nb::handle head_dim, nb::handle value_dim, nb::handle page_size,
         nb::handle max_pages) {
        const auto size = [](const char* name, nb::handle given) { return integer_of("KvCache", name, given); };
        const KvCacheOptions options{.page_size = size("page_size", page_size),
                                     .max_pages = size("max_pages", max_pages)};
        const Index heads = size("kv_heads", kv_heads), dim = size("head_dim", head_dim);
        const Index columns = value_dim.is_none() ? dim : size("value_dim", value_dim);
        new (self) LockedKvCache{KvCache(heads, dim, columns, options)};
      },
      "kv_heads", "head_dim", "value_dim", "page_size", "max_pages");
  def("add", [](LockedKvCache& self) { return change(self, [](KvCache& keys) { return keys.add(); }); });
  def(
      "fork",
      [](LockedKvCache& self, nb::handle given_sequence, nb::handle given_length) {
        constexpr const char* function = "KvCache.fork";
        const Index sequence = integer_of(function, "sequence", given_sequence);
        const Index length = given_length.is_none() ? 0 : integer_of(function, "length", given_length);
        require(length >= 0, function, ": length is ", length, ", the least is 0");  // in C++ -1 is all
        return change(self, [&](KvCache& keys) { return keys.fork(sequence, given_length.is_none() ? -1 : length); });
      },
      "sequence", "length");
  def("append", &append_to, "sequence", "k", "v");
  def(
      "truncate",
      [](LockedKvCache& self, nb::handle given_sequence, nb::handle given_length) {
        const Index sequence = integer_of("KvCache.truncate", "sequence", given_sequence);
        const Index length = integer_of("KvCache.truncate", "length", given_length);
        change(self, [&](KvCache& keys) { keys.truncate(sequence, length); });
      },
      "sequence", "length");
  def(
      "remove",
      [](LockedKvCache& self, nb::handle given_sequence) {
        const Index sequence = integer_of("KvCache.remove", "sequence", given_sequence);
        change(self, [&](KvCache& keys) { keys.remove(sequence); });
      },
      "sequence");
  def(
      "length",
      [](const LockedKvCache& self, nb::handle given_sequence) {
        const Index sequence = integer_of("KvCache.length", "sequence", given_sequence);
        return read(self, [&](const KvCache& keys) { return keys.length(sequence); });
      },
      "sequence");
  def("state", &state_of);
  cache.def_prop_ro("kv_heads", property<&KvCache::kv_heads>())
      .def_prop_ro("head_dim", property<&KvCache::head_dim>())
      .def_prop_ro("value_dim", property<&KvCache::value_dim>())
      .def_prop_ro("page_size", property<&KvCache::page_size>())
      .def_prop_ro("pages_in_use", property<&KvCache::pages_in_use>())
      .def_prop_ro("page_nbytes", property<&KvCache::page_bytes>())
      .def_prop_ro("nbytes", property<&KvCache::bytes>());
}

}  // namespace headlane::python
