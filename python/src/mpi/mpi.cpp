// headlane.mpi: attention over sequences and caches that are cut over ranks.
#include "attention/arguments.hpp"
#include "core/define.hpp"
#include "core/dtype.hpp"
#include "core/fair_mutex.hpp"
#include "core/functions.hpp"
#include "mpi/transport.hpp"

#include <headlane/mpi/attention.hpp>
#include <headlane/mpi/kv_cache.hpp>

#include <algorithm>
#include <mutex>
#include <nanobind/stl/string.h>
#include <shared_mutex>
#include <string>
#include <vector>

namespace headlane::python {
namespace {

/// [(rank, begin, end), …].
nb::tuple pieces_of(const mpi::SequenceCut& cut) {
  nb::list pieces;
  for (const mpi::SequencePiece& piece : cut.pieces())
    pieces.append(nb::make_tuple(piece.rank, piece.begin, piece.end));
  return nb::tuple(pieces);
}

/// The pieces of a cut by its kind; "pieces": of the pieces given, checked.
nb::tuple sequence_cut(nb::handle kind, nb::handle length, nb::handle ranks, nb::handle pieces) {
  const Call call("SequenceCut");
  const std::string name = call.text("kind", kind);
  if (name == "pieces") return pieces_of(cut_of(call, "cut", pieces));
  const Index count = call.integer("ranks", ranks), positions = call.integer("length", length);
  call.require(count >= 1 && count < 1 << 24, "ranks is ", count, ", it must be 1 to 16777215");
  return pieces_of(name == "cyclic" ? mpi::SequenceCut::cyclic(positions, static_cast<int>(count))
                                    : mpi::SequenceCut::contiguous(positions, static_cast<int>(count)));
}

/// The name in the library of attention over tensors and over caches.
constexpr const char* attention_name = "mpi::attention";

/// Axes before that of the batch are calls of their own.
void agree_on_calls(PythonTransport& transport, const Batch& batch) {
  if (batch.rank() <= 1) return;
  std::string text = "batch axes";
  for (int axis = 0; axis < batch.rank(); ++axis) text.append(" ").append(std::to_string(batch.size(axis)));
  transport.agree(attention_name, text);
}

struct AttentionArguments {
  nb::handle query, key, value, keys, queries, attn_mask, is_causal, scale, enable_gqa, options, return_lse, out,
      num_threads;
};

nb::object attention_of_ranks(const Call& call, PythonTransport& transport, const AttentionArguments& arguments) {
  const auto& [query, key, value, keys, queries, attn_mask, is_causal, scale, enable_gqa, options, return_lse, out,
               num_threads] = arguments;
  mpi::AttentionCut cut{.keys = cut_of(call, "keys", keys)};
  if (!queries.is_none()) cut.queries = cut_of(call, "queries", queries);
  ScoreOperands of(call, query, key, value, call.flag("enable_gqa", enable_gqa));
  // Broadcast heads would be one kv head, on the ranks that have some: an empty array has any
  // strides.
  if (of.kv_heads == 1) of.kv_heads = of.has_heads && of.key->rank() >= 3 ? of.key->size(-3) : 1;
  ScoreOptions given(call, attn_mask, options, num_threads);
  given.values.causal = call.flag("is_causal", is_causal);
  if (!scale.is_none()) given.values.scale = call.float32("scale", scale);
  const Index columns = cut.keys.length();
  of.check(given, columns);
  const RowResults results(call, of.query.like(), out, of.shape(), of.value->size(-1),
                           call.flag("return_lse", return_lse), false);
  of.require_result_apart(results.result(), given);
  call.compute([&] {
    agree_on_calls(transport, of.batch);
    of.for_each([&](const Batch::Position& at) {
      AttentionOptions here = of.options_at(given, columns, at);
      here.lse = results.lse_at(of.batch, at, of.has_heads);
      mpi::attention(transport, of.query_at(at), of.key_at(at), of.value_at(at), of.result_at(results.out(), at), cut,
                     here);
    });
  });
  return results.object();
}

/// A cache and its lock, as LockedKvCache.
struct LockedCutCache {
  mpi::KvCache cache;
  mutable FairMutex mutex{};
};

template <class F>
auto change(LockedCutCache& self, const Call& call, F f) {
  decltype(f(self.cache)) result{};
  call.compute([&] {
    const std::unique_lock lock(self.mutex);
    result = f(self.cache);
  });
  return result;
}

template <class F>
auto read(const LockedCutCache& self, F f) {
  const GilRelease release;
  const std::shared_lock lock(self.mutex);
  return f(self.cache);
}

void construct(LockedCutCache* self, nb::handle comm, nb::handle kv_heads, nb::handle head_dim, nb::handle value_dim,
               nb::handle page_size, nb::handle dtype) {
  const Call call("mpi.KvCache");
  const PythonTransport transport(call, "comm", comm);
  const KvCacheOptions options{.page_size = call.integer("page_size", page_size),
                               .type = dtype_named(call, "dtype", dtype, DType::int8)};
  const Index heads = call.integer("kv_heads", kv_heads), dim = call.integer("head_dim", head_dim);
  const Index columns = value_dim.is_none() ? dim : call.integer("value_dim", value_dim);
  new (self) LockedCutCache{mpi::KvCache(transport, heads, dim, columns, options)};
}

View<const float, 3> tokens_of(const Array& x, const char* axes) {
  x.require(x.rank() == 3, " has shape ", x, "; wanted: ", axes);
  return view_of<const float, 3>(x);
}

void append_to(LockedCutCache& self, nb::handle sequence, nb::handle key, nb::handle value, nb::handle cut) {
  const Call call("mpi.KvCache.append");
  const Array k(call, "k", key, Element::float32), v(call, "v", value, Element::float32);
  const Index number = call.integer("sequence", sequence);
  const View<const float, 3> view_k = tokens_of(k, "[kv_heads, tokens, head_dim]"),
                             view_v = tokens_of(v, "[kv_heads, tokens, value_dim]");
  const mpi::SequenceCut own = cut.is_none() ? mpi::SequenceCut() : cut_of(call, "cut", cut);
  change(self, call, [&](mpi::KvCache& cache) {
    if (cut.is_none()) cache.append(number, view_k, view_v);
    else cache.append(number, view_k, view_v, own);
    return 0;
  });
}

struct CacheArguments {
  nb::handle query, cache, sequences, attn_mask, options, return_lse, out, num_threads;
};

nb::object attention_over_cut_cache(const Call& call, PythonTransport& transport, const CacheArguments& arguments) {
  const auto& [query, cache, sequences, attn_mask, options, return_lse, out, num_threads] = arguments;
  const auto* locked = call.instance<LockedCutCache>("cache", cache);
  if (locked == nullptr) call.refuse_type("cache", cache, "headlane.mpi.KvCache");
  const std::vector<Index> numbers = call.integers("sequences", sequences);
  const ScoreOperands of(call, query, {}, {}, true);
  of.query.require(of.batch.rank() <= 1, " has shape ", of.query, ", wanted [sequences, heads, length, dim]");
  const ScoreOptions given(call, attn_mask, options, num_threads);
  const RowResults results(call, of.query.like(), out, of.shape(), locked->cache.value_dim(),
                           call.flag("return_lse", return_lse), false);
  call.compute([&] {
    const std::shared_lock lock(locked->mutex);
    Index keys = 0;
    for (const Index number : numbers)
      if (locked->cache.has(number)) keys = std::max(keys, locked->cache.length(number));
    of.check(given, keys);
    AttentionOptions here = of.options_at(given, keys, {});
    here.lse = results.lse_at(of.batch, {}, of.has_heads);
    mpi::attention(transport, of.query_at({}), locked->cache, numbers, of.result_at(results.out(), {}), here);
  });
  return results.object();
}

void add_cut_cache(nb::module_& module) {
  nb::class_<LockedCutCache> cache(module, "MpiKvCache");
  define(cache, "__init__", &construct, "comm", "kv_heads", "head_dim", "value_dim", "page_size", "dtype");
  define(cache, "add", [](LockedCutCache& self) {
    return change(self, Call("mpi.KvCache.add"), [](mpi::KvCache& keys) { return keys.add(); });
  });
  define(
      cache, "fork",
      [](LockedCutCache& self, nb::handle given_sequence, nb::handle given_length) {
        const Call call("mpi.KvCache.fork");
        const Index sequence = call.integer("sequence", given_sequence);
        const Index length = given_length.is_none() ? 0 : call.integer("length", given_length);
        call.require(length >= 0, "length is ", length, ", the minimum is 0");  // -1 means all in C++
        return change(self, call,
                      [&](mpi::KvCache& keys) { return keys.fork(sequence, given_length.is_none() ? -1 : length); });
      },
      "sequence", "length");
  define(cache, "append", &append_to, "sequence", "k", "v", "cut");
  define(
      cache, "truncate",
      [](LockedCutCache& self, nb::handle given_sequence, nb::handle given_length) {
        const Call call("mpi.KvCache.truncate");
        const Index sequence = call.integer("sequence", given_sequence), length = call.integer("length", given_length);
        change(self, call, [&](mpi::KvCache& keys) { return keys.truncate(sequence, length), 0; });
      },
      "sequence", "length");
  define(
      cache, "remove",
      [](LockedCutCache& self, nb::handle given_sequence) {
        const Call call("mpi.KvCache.remove");
        const Index sequence = call.integer("sequence", given_sequence);
        change(self, call, [&](mpi::KvCache& keys) { return keys.remove(sequence), 0; });
      },
      "sequence");
  define(
      cache, "length",
      [](const LockedCutCache& self, nb::handle given_sequence) {
        const Index sequence = Call("mpi.KvCache.length").integer("sequence", given_sequence);
        return read(self, [&](const mpi::KvCache& keys) { return keys.length(sequence); });
      },
      "sequence");
  define(
      cache, "pieces",
      [](const LockedCutCache& self, nb::handle given_sequence) {
        const Index sequence = Call("mpi.KvCache.cut").integer("sequence", given_sequence);
        return pieces_of(read(self, [&](const mpi::KvCache& keys) { return keys.cut(sequence); }));
      },
      "sequence");
  cache.def_prop_ro("kv_heads", [](const LockedCutCache& self) { return self.cache.kv_heads(); })
      .def_prop_ro("head_dim", [](const LockedCutCache& self) { return self.cache.head_dim(); })
      .def_prop_ro("value_dim", [](const LockedCutCache& self) { return self.cache.value_dim(); })
      .def_prop_ro("dtype", [](const LockedCutCache& self) { return name_of(self.cache.type()); })
      .def_prop_ro("nbytes", [](const LockedCutCache& self) {
        return read(self, [](const mpi::KvCache& keys) { return keys.bytes(); });
      });
}

}  // namespace

void add_mpi(nb::module_& module) {
  define(module, "mpi_cut", &sequence_cut, "kind", "length", "ranks", "pieces");
  define(
      module, "mpi_attention",
      [](nb::handle comm, nb::handle query, nb::handle key, nb::handle value, nb::handle keys, nb::handle queries,
         nb::handle attn_mask, nb::handle is_causal, nb::handle scale, nb::handle enable_gqa, nb::handle options,
         nb::handle return_lse, nb::handle out, nb::handle num_threads) {
        const Call call("mpi.attention");
        PythonTransport transport(call, "comm", comm);
        return on_ranks(call, &transport, attention_name, [&] {
          return attention_of_ranks(call, transport,
                                    {query, key, value, keys, queries, attn_mask, is_causal, scale, enable_gqa, options,
                                     return_lse, out, num_threads});
        });
      },
      "comm", "query", "key", "value", "keys", "queries", "attn_mask", "is_causal", "scale", "enable_gqa", "options",
      "return_lse", "out", "num_threads");
  define(
      module, "mpi_attention_over_cache",
      [](nb::handle comm, nb::handle query, nb::handle cache, nb::handle sequences, nb::handle attn_mask,
         nb::handle options, nb::handle return_lse, nb::handle out, nb::handle num_threads) {
        const Call call("mpi.attention_over_cache");
        PythonTransport transport(call, "comm", comm);
        return on_ranks(call, &transport, attention_name, [&] {
          return attention_over_cut_cache(call, transport,
                                          {query, cache, sequences, attn_mask, options, return_lse, out, num_threads});
        });
      },
      "comm", "query", "cache", "sequences", "attn_mask", "options", "return_lse", "out", "num_threads");
  define(
      module, "mpi_agree",
      [](nb::handle comm, nb::handle what, nb::handle mine) {
        const Call call("mpi.Communicator.agree");
        PythonTransport transport(call, "comm", comm);
        const char* const given = PyUnicode_Check(what.ptr()) ? PyUnicode_AsUTF8(what.ptr()) : nullptr;
        PyErr_Clear();
        const Call titled(given != nullptr ? given : call.function());
        on_ranks(titled, &transport, titled.function(), [&] {
          const std::string title = call.text("what", what), text = call.text("mine", mine);
          const GilRelease release;
          transport.agree(title, text);
        });
      },
      "comm", "what", "mine");
  nb::class_<PythonTransport> team(module, "MpiTeam");
  define(
      team, "__init__",
      [](PythonTransport* self, nb::handle comm) { new (self) PythonTransport(Call("MpiTeam"), "team", comm); },
      "comm");
  team.def(
      "refuse",
      [](PythonTransport& self, const std::string& name, const std::string& function, const std::string& reason) {
        if (self.size() > 1) self.refuse(Call(name.c_str()), function.c_str(), reason);
      },
      nb::arg("name"), nb::arg("function"), nb::arg("reason"));
  add_cut_cache(module);
}

}  // namespace headlane::python
