// KvCache::append: to all of the named sequences, or to none.
#include "attention/kv_check.hpp"
#include "core/call_scope.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/scratch.hpp"

#include <headlane/kv_cache.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <new>
#include <span>
#include <stdexcept>
#include <vector>

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller("KvCache::append");

/// What is appended to a sequence: k [kv_heads, tokens, head_dim], v [kv_heads, tokens, value_dim].
struct Tokens {
  View<const float, 3> k, v;

  [[nodiscard]] Index count() const { return k.shape[1]; }
};

/// Number of pages that `tokens` more keys of a sequence need, including a copy of its last page if
/// that one is shared. Called once for each sequence of an append: of several that share a last
/// page, the one that comes last may keep it. Throws std::bad_alloc for more than any memory has,
/// in a view with a stride of 0 or a cache without heads.
Index needed_pages(KvPages& pages, Index sequence, Index tokens) {
  constexpr Index too_many = Index{1} << 58;
  const KvPages::Sequence& growing = pages.at(sequence);
  if (tokens > too_many - growing.length) throw std::bad_alloc();
  Index count = pages.pages_of(growing.length + tokens) - pages.pages_of(growing.length);
  if (growing.length % pages.page_size == 0) return count;
  KvPages::Page& last = *growing.pages.back();
  if (last.call != pages.calls) last.claims = 0;
  last.call = pages.calls;
  if (last.holders - last.claims++ > 1) ++count;
  return count;
}

/// Throws: the number of x [sequences, kv_heads, tokens, columns] at this position is not finite.
/// For a single sequence, the caller's x lacks the first axis.
[[noreturn]] void refuse(const Operand& x, const std::array<Index, 4>& position) {
  const std::span<const Index> all(position);
  fail(caller.function(), ": ", x.name, all.last(static_cast<std::size_t>(x.rank)),
       " is not finite; int8 has no such number");
}

bool is_finite(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) != 0x7f800000u; }

/// Checks that the numbers of x, those of sequence number `s`, are finite.
void check_finite(const Operand& of_x, Index s, const View<const float, 3>& x) {
  for (Index head = 0; head < x.shape[0]; ++head)
    for (Index token = 0; token < x.shape[1]; ++token) {
      const float* row = x.data + head * x.strides[0] + token * x.strides[1];
      bool finite = true;
      for (Index column = 0; column < x.shape[2]; ++column) finite &= is_finite(row[column * x.strides[2]]);
      if (finite) continue;
      Index column = 0;
      while (is_finite(row[column * x.strides[2]])) ++column;
      refuse(of_x, {s, head, token, column});
    }
}

/// Appends tokens[i] to sequences[i]. The arguments are checked, except that int8 has all numbers:
/// there may be so many of them that no memory holds them.
void append_to(KvPages& pages, std::span<const Index> sequences, const Operand& of_k, const Operand& of_v,
               std::span<const Tokens> tokens) {
  const kernels::KernelTable& kernel = active();
  Index count = 0;
  ++pages.calls;
  for (std::size_t i = 0; i < sequences.size(); ++i)
    if (tokens[i].count() > 0) count += needed_pages(pages, sequences[i], tokens[i].count());
  const Index in_use = pages.pages_in_use();
  if (pages.max_pages > 0 && count > pages.max_pages - in_use)
    fail<std::length_error>(caller.function(), ": ", in_use, " pages are in use and ", count,
                            " more are needed, max_pages is ", pages.max_pages);
  for (std::size_t i = 0; i < sequences.size(); ++i) pages.reserve_table(sequences[i], tokens[i].count());
  float* const memory = pages.type == DType::float32 ? nullptr : scratch(Purpose::rows, pages.scratch_floats());
  const std::size_t before = pages.pages.size();
  pages.reserve_pages(count);
  try {
    if (pages.type == DType::int8) {
      for (std::size_t i = 0; i < tokens.size(); ++i) check_finite(of_k, static_cast<Index>(i), tokens[i].k);
      for (std::size_t i = 0; i < tokens.size(); ++i) check_finite(of_v, static_cast<Index>(i), tokens[i].v);
    }
  } catch (...) {
    pages.drop_pages(before);
    throw;
  }

  // Nothing fails from here on.
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Index first = pages.length(sequences[i]);
    if (tokens[i].count() == 0) continue;
    pages.grow(sequences[i], tokens[i].count());
    pages.write(kernel, sequences[i], first, tokens[i].k, tokens[i].v, memory);
    pages.at(sequences[i]).length = first + tokens[i].count();
  }
}

/// The tokens of sequence number i that are not padding.
template <class T>
View<const T, 3> tokens_of(const View<const T, 4>& x, const View<const Index, 1>& lengths, std::size_t i) {
  const auto s = static_cast<Index>(i);
  return x.select(0, s).slice(1, 0, !lengths ? x.shape[2] : lengths(s));
}

void append_checked(KvPages& pages, std::span<const Index> sequences, const Operand& of_k,
                    const View<const float, 4>& k, const Operand& of_v, const View<const float, 4>& v,
                    const View<const Index, 1>& lengths) {
  const CallScope scope;
  auto& tokens = kept_object<std::vector<Tokens>>();
  tokens.clear();
  for (std::size_t i = 0; i < sequences.size(); ++i)
    tokens.push_back({tokens_of(k, lengths, i), tokens_of(v, lengths, i)});
  append_to(pages, sequences, of_k, of_v, tokens);
}

/// The same of 16-bit numbers, by way of float32 copies.
void append_checked(KvPages& pages, std::span<const Index> sequences, const Operand& of_k,
                    const View<const std::uint16_t, 4>& given_k, const Operand& of_v,
                    const View<const std::uint16_t, 4>& given_v, const View<const Index, 1>& lengths, DType type) {
  const CallScope scope;
  const View<const std::uint16_t, 4> k = with_safe_strides(given_k), v = with_safe_strides(given_v);
  HalfCopies copies(active(), 1);
  for (std::size_t i = 0; i < sequences.size(); ++i)
    for (const auto* x : {&k, &v}) copies.reserve(AnyView<const std::uint16_t>(tokens_of(*x, lengths, i)));
  copies.allocate();
  const auto copy_of = [&](const View<const std::uint16_t, 3>& x) {
    return View<const float, 3>(as_view<3>(copies.add({AnyView<const std::uint16_t>(x), type})));
  };
  auto& tokens = kept_object<std::vector<Tokens>>();
  tokens.clear();
  for (std::size_t i = 0; i < sequences.size(); ++i)
    tokens.push_back({copy_of(tokens_of(k, lengths, i)), copy_of(tokens_of(v, lengths, i))});
  append_to(pages, sequences, of_k, of_v, tokens);
}

/// Type: DType of 16-bit numbers, else none.
template <class T, class... Type>
void append_one(KvPages& pages, Index sequence, const View<const T, 3>& k, const View<const T, 3>& v, Type... type) {
  check_sequence(pages, caller, sequence);
  const Operand of_k = caller.operand("k", k), of_v = caller.operand("v", v);
  check_pair(pages, of_k, of_v);
  append_checked(pages, {&sequence, 1}, of_k, k.broadcast(0, 1), of_v, v.broadcast(0, 1), {}, type...);
}

template <class T, class... Type>
void append_several(KvPages& pages, std::span<const Index> sequences, const View<const T, 4>& k,
                    const View<const T, 4>& v, const View<const Index, 1>& lengths, Type... type) {
  for (const Index sequence : sequences) check_sequence(pages, caller, sequence);
  const Operand of_k = caller.operand("k", k), of_v = caller.operand("v", v);
  check_pair(pages, of_k, of_v);
  for (const Operand& x : {of_k, of_v})
    x.require(x.shape[0] == static_cast<Index>(sequences.size()), " has ", x.shape[0], " sequences, sequences has ",
              static_cast<Index>(sequences.size()));
  check_token_lengths(caller, "lengths", lengths, static_cast<Index>(sequences.size()), "k", k.shape[2], "tokens");
  check_named_once(pages, caller, sequences);
  append_checked(pages, sequences, of_k, k, of_v, v, lengths, type...);
}

}  // namespace

void KvCache::append(Index sequence, View<const float, 3> k, View<const float, 3> v) {
  append_one(pages(caller.function()), sequence, k, v);
}
void KvCache::append(Index sequence, View<const bfloat16, 3> k, View<const bfloat16, 3> v) {
  append_one(pages(caller.function()), sequence, bits_of(k), bits_of(v), DType::bfloat16);
}
void KvCache::append(Index sequence, View<const float16, 3> k, View<const float16, 3> v) {
  append_one(pages(caller.function()), sequence, bits_of(k), bits_of(v), DType::float16);
}

void KvCache::append(std::span<const Index> sequences, View<const float, 4> k, View<const float, 4> v,
                     View<const Index, 1> lengths) {
  append_several(pages(caller.function()), sequences, k, v, lengths);
}
void KvCache::append(std::span<const Index> sequences, View<const bfloat16, 4> k, View<const bfloat16, 4> v,
                     View<const Index, 1> lengths) {
  append_several(pages(caller.function()), sequences, bits_of(k), bits_of(v), lengths, DType::bfloat16);
}
void KvCache::append(std::span<const Index> sequences, View<const float16, 4> k, View<const float16, 4> v,
                     View<const Index, 1> lengths) {
  append_several(pages(caller.function()), sequences, bits_of(k), bits_of(v), lengths, DType::float16);
}

}  // namespace headlane
