// The class KvCache. Several threads may use one cache: see LockedKvCache.
#include "attention/kv_cache.hpp"

#include "core/define.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "core/result.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <vector>

namespace headlane::python {
namespace {

/// Calls f(cache) without the GIL, under the lock.
template <class Lock, class Self, class F>
auto locked(Self& self, F f) {
  try {
    const GilRelease release;
    const Lock lock(self.mutex);
    return f(self.cache);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(with_dots(error.what()));
  } catch (const std::length_error& error) {
    throw std::length_error(with_dots(error.what()));
  }
}

template <class F>
auto change(LockedKvCache& self, F f) {
  return locked<std::unique_lock<FairMutex>>(self, f);
}

template <class F>
auto read(const LockedKvCache& self, F f) {
  return locked<std::shared_lock<FairMutex>>(self, f);
}

template <int Rank>
View<const float, Rank> tokens_of(const Array& x, const char* axes) {
  x.require(x.rank() == Rank, " has shape ", x, "; wanted: ", axes);
  return view_of<const float, Rank>(x);
}

void append_to(LockedKvCache& self, nb::handle sequences, nb::handle key, nb::handle value) {
  const Call call("KvCache.append");
  const Array k(call, "k", key, Element::float32), v(call, "v", value, Element::float32);
  const auto several = call.several_integers("sequence", sequences);
  const Index one = several ? 0 : call.integer("sequence", sequences);
  const auto append = [&](const auto& to, const auto& view_k, const auto& view_v) {
    call.compute([&] {
      const std::unique_lock lock(self.mutex);
      self.cache.append(to, view_k, view_v);
    });
  };
  if (!several) {
    const auto view_k = tokens_of<3>(k, "[kv_heads, tokens, head_dim]");
    const auto view_v = tokens_of<3>(v, "[kv_heads, tokens, value_dim]");
    return append(one, view_k, view_v);
  }
  const auto view_k = tokens_of<4>(k, "[sequences, kv_heads, tokens, head_dim]");
  const auto view_v = tokens_of<4>(v, "[sequences, kv_heads, tokens, value_dim]");
  append(*several, view_k, view_v);
}

/// Keys [kv_heads, count, head_dim] and values [kv_heads, count, value_dim].
struct Tokens {
  Index count = 0;
  std::vector<float> k{}, v{};
};

/// Those of a sequence, from `first` on.
Tokens tokens_from(const KvCache& cache, Index sequence, Index first) {
  const Index heads = cache.kv_heads(), count = cache.length(sequence) - first;
  Tokens tokens{count, std::vector<float>(static_cast<std::size_t>(heads * count * cache.head_dim())),
                std::vector<float>(static_cast<std::size_t>(heads * count * cache.value_dim()))};
  cache.read(sequence, first, {tokens.k.data(), {heads, count, cache.head_dim()}},
             {tokens.v.data(), {heads, count, cache.value_dim()}});
  return tokens;
}

/// As a tuple (keys, values) of NumPy arrays.
nb::tuple arrays_of(const Tokens& tokens, Index heads, Index head_dim, Index value_dim) {
  return nb::make_tuple(array_of(tokens.k, {heads, tokens.count, head_dim}),
                        array_of(tokens.v, {heads, tokens.count, value_dim}));
}

nb::tuple read_sequence(const LockedKvCache& self, nb::handle sequence) {
  const Call call("KvCache.read");
  const Index number = call.integer("sequence", sequence);
  Tokens tokens;
  call.compute([&] {
    const std::shared_lock lock(self.mutex);
    tokens = tokens_from(self.cache, number, 0);
  });
  return arrays_of(tokens, self.cache.kv_heads(), self.cache.head_dim(), self.cache.value_dim());
}

/// A sequence, for rebuilding it: the first `shared` keys of the sequence `source`, which is
/// rebuilt before it, and keys of its own.
struct SavedSequence {
  Index number, length, source = -1, shared = 0;
  Tokens own{};
};

/// Finds the sequence to fork: one that was saved before and shares pages, as many as possible.
void find_source(const KvCache& cache, SavedSequence& one, std::map<Index, Index>& holder_of_page) {
  const std::vector<Index> pages = cache.page_table(one.number);
  for (std::size_t i = pages.size(); i-- > 0 && one.source < 0;)
    if (const auto found = holder_of_page.find(pages[i]); found != holder_of_page.end()) {
      one.source = found->second;
      one.shared = std::min(static_cast<Index>(i + 1) * cache.page_size(), one.length);
    }
  for (const Index page : pages) holder_of_page.emplace(page, one.number);
}

/// The sequences in an order in which they can be rebuilt with the same pages shared: the longest
/// first.
std::vector<SavedSequence> saved_sequences(const KvCache& cache) {
  std::vector<SavedSequence> saved;
  for (const Index number : cache.sequences()) saved.push_back({.number = number, .length = cache.length(number)});
  std::ranges::sort(saved, std::less(), [](const SavedSequence& one) { return std::pair(-one.length, one.number); });
  std::map<Index, Index> holder_of_page;
  for (SavedSequence& one : saved) {
    find_source(cache, one, holder_of_page);
    one.own = tokens_from(cache, one.number, one.shared);
  }
  return saved;
}

/// For pickling, the arguments of headlane._kv_cache._restored: sizes, free numbers in the order in
/// which they are reused, the sequences, and the type. What is read is stored without a change when
/// it is appended.
nb::tuple state_of(const LockedKvCache& self) {
  std::vector<SavedSequence> saved;
  std::vector<Index> free;
  DType type = DType::float32;
  const auto sizes = read(self, [&](const KvCache& cache) {
    saved = saved_sequences(cache);
    free = cache.free_numbers();
    type = cache.type();
    return std::array{cache.kv_heads(), cache.head_dim(), cache.value_dim(), cache.page_size(), cache.max_pages()};
  });
  nb::list sequences, numbers;
  for (const SavedSequence& one : saved) {
    const nb::tuple own = arrays_of(one.own, sizes[0], sizes[1], sizes[2]);
    sequences.append(nb::make_tuple(one.number, one.source, one.shared, own[0], own[1]));
  }
  for (const Index number : free) numbers.append(number);
  return nb::make_tuple(nb::make_tuple(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]), numbers, sequences,
                        name_of(type));
}

void construct(LockedKvCache* self, nb::handle kv_heads, nb::handle head_dim, nb::handle value_dim,
               nb::handle page_size, nb::handle max_pages, nb::handle dtype) {
  const Call call("KvCache");
  const KvCacheOptions options{.page_size = call.integer("page_size", page_size),
                               .max_pages = call.integer("max_pages", max_pages),
                               .type = dtype_named(call, "dtype", dtype, DType::int8)};
  const Index heads = call.integer("kv_heads", kv_heads), dim = call.integer("head_dim", head_dim);
  const Index columns = value_dim.is_none() ? dim : call.integer("value_dim", value_dim);
  new (self) LockedKvCache{KvCache(heads, dim, columns, options)};
}

/// A property that returns a member function of KvCache.
template <auto Member>
auto property() {
  return [](const LockedKvCache& self) { return read(self, [](const KvCache& cache) { return (cache.*Member)(); }); };
}

}  // namespace

LockedKvCache& cache_of(const Call& call, const char* name, nb::handle object) {
  if (auto* cache = call.instance<LockedKvCache>(name, object)) return *cache;
  call.refuse_type(name, object, "KvCache");
}

Index longest_of(const KvCache& cache, std::span<const Index> sequences) {
  Index keys = 0;
  for (const Index sequence : sequences)
    if (cache.has(sequence)) keys = std::max(keys, cache.length(sequence));
  return keys;
}

void add_kv_cache(nb::module_& module) {
  nb::class_<LockedKvCache> cache(module, "KvCache");
  define(cache, "__init__", &construct, "kv_heads", "head_dim", "value_dim", "page_size", "max_pages", "dtype");
  define(cache, "add", [](LockedKvCache& self) { return change(self, [](KvCache& keys) { return keys.add(); }); });
  define(
      cache, "fork",
      [](LockedKvCache& self, nb::handle given_sequence, nb::handle given_length) {
        const Call call("KvCache.fork");
        const Index sequence = call.integer("sequence", given_sequence);
        const Index length = given_length.is_none() ? 0 : call.integer("length", given_length);
        call.require(length >= 0, "length is ", length, ", the minimum is 0");  // -1 means all in C++
        return change(self, [&](KvCache& keys) { return keys.fork(sequence, given_length.is_none() ? -1 : length); });
      },
      "sequence", "length");
  define(cache, "append", &append_to, "sequence", "k", "v");
  define(cache, "read", &read_sequence, "sequence");
  define(
      cache, "truncate",
      [](LockedKvCache& self, nb::handle given_sequence, nb::handle given_length) {
        const Call call("KvCache.truncate");
        const Index sequence = call.integer("sequence", given_sequence);
        const Index length = call.integer("length", given_length);
        change(self, [&](KvCache& keys) { keys.truncate(sequence, length); });
      },
      "sequence", "length");
  define(
      cache, "remove",
      [](LockedKvCache& self, nb::handle given_sequence) {
        const Index sequence = Call("KvCache.remove").integer("sequence", given_sequence);
        change(self, [&](KvCache& keys) { keys.remove(sequence); });
      },
      "sequence");
  define(
      cache, "length",
      [](const LockedKvCache& self, nb::handle given_sequence) {
        const Index sequence = Call("KvCache.length").integer("sequence", given_sequence);
        return read(self, [&](const KvCache& keys) { return keys.length(sequence); });
      },
      "sequence");
  define(cache, "state", &state_of);
  cache.def_prop_ro("kv_heads", property<&KvCache::kv_heads>())
      .def_prop_ro("head_dim", property<&KvCache::head_dim>())
      .def_prop_ro("value_dim", property<&KvCache::value_dim>())
      .def_prop_ro("page_size", property<&KvCache::page_size>())
      .def_prop_ro("dtype",
                   [](const LockedKvCache& self) {
                     return name_of(read(self, [](const KvCache& keys) { return keys.type(); }));
                   })
      .def_prop_ro("pages_in_use", property<&KvCache::pages_in_use>())
      .def_prop_ro("page_nbytes", property<&KvCache::page_bytes>())
      .def_prop_ro("nbytes", property<&KvCache::bytes>());
}

}  // namespace headlane::python
