// KvCache: the entries but append().
#include <headlane/kv_cache.hpp>

#include "attention/kv_check.hpp"
#include "core/call_scope.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"

#include <headlane/limits.hpp>

#include <cstdint>
#include <limits>

namespace headlane {

using namespace internal;

namespace {

/// Returns the pages if their sizes are possible.
KvPages checked(KvPages pages) {
  constexpr Caller caller("KvCache");
  const auto check_dim = [&](const char* name, Index dim) {
    caller.require(dim >= 1 && dim <= max_head_dim, name, " is ", dim, ", it may be 1 to ", max_head_dim);
  };
  caller.require(pages.kv_heads >= 0, "kv_heads is ", pages.kv_heads, ", the minimum is 0");
  check_dim("head_dim", pages.head_dim);
  check_dim("value_dim", pages.value_dim);
  const Index size = pages.page_size;
  caller.require(
      size == 32 || size == 64 || size == 128 || size == 256 || (size > 0 && size % kernels::block_size == 0),
      "page_size is ", size, ", it may be 32, 64, 128, 256 or a multiple of ", kernels::block_size);
  caller.require(pages.max_pages >= 0, "max_pages is ", pages.max_pages, ", the minimum is 0");
  caller.require(pages.type <= DType::int8, "type is ", static_cast<Index>(pages.type),
                 ", which is none of float32 … int8");
  constexpr Index max_bytes = std::numeric_limits<Index>::max() / 8 * 4;  // of floats: max_bytes / 4
  Index bytes = HeadOfPage::bytes_of_token(pages.type, pages.head_dim, pages.value_dim);
  const bool fits = !__builtin_mul_overflow(bytes, size, &bytes) &&
                    !__builtin_mul_overflow(bytes, pages.kv_heads, &bytes) && bytes <= max_bytes;
  caller.require(fits, "a page of page_size ", size, " and kv_heads ", pages.kv_heads,
                 " does not fit into memory: at most ", max_bytes, " bytes can be addressed");
  return pages;
}

constexpr Caller read_caller("KvCache::read");

template <class T>
void check_read(const KvPages& pages, Index sequence, Index first, const View<T, 3>& k, const View<T, 3>& v) {
  check_sequence(pages, read_caller, sequence);
  const Operand of_k = read_caller.operand("k", k), of_v = read_caller.operand("v", v);
  check_output(of_k);
  check_output(of_v);
  check_no_overlap(of_k, of_v);
  check_pair(pages, of_k, of_v);
  const Index all = pages.length(sequence);
  read_caller.require(first >= 0 && first <= all && k.shape[1] <= all - first, "first is ", first, " and k has ",
                      k.shape[1], " tokens, sequence ", sequence, " has ", all, " keys");
}

/// Reads by way of float32 copies.
void read_halves(const KvPages& pages, Index sequence, Index first, const View<std::uint16_t, 3>& k,
                 const View<std::uint16_t, 3>& v, DType type) {
  check_read(pages, sequence, first, k, v);
  if (is_empty(k)) return;
  const CallScope scope;
  HalfCopies copies(active(), 1);
  for (const auto& x : {k, v}) copies.reserve(AnyView<const std::uint16_t>(x));
  copies.allocate();
  const AnyView<float> wide_k = copies.room(AnyView<const std::uint16_t>(k)),
                       wide_v = copies.room(AnyView<const std::uint16_t>(v));
  pages.read(sequence, first, as_view<3>(wide_k), as_view<3>(wide_v));
  copies.round(as_input(wide_k), {AnyView<std::uint16_t>(k), type});
  copies.round(as_input(wide_v), {AnyView<std::uint16_t>(v), type});
}

}  // namespace

KvCache::KvCache(Index kv_heads, Index head_dim, Index value_dim, const KvCacheOptions& options)
    : pages_(std::make_unique<KvPages>(
          checked({kv_heads, head_dim, value_dim, options.page_size, options.max_pages, options.type}))) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvPages& KvCache::pages(const char* function) const {
  Caller(function).require(pages_ != nullptr, "the cache was moved from");
  return *pages_;
}

KvPages& KvPages::of(KvCache& cache, Caller caller) { return cache.pages(caller.function()); }
const KvPages& KvPages::of(const KvCache& cache, Caller caller) { return cache.pages(caller.function()); }

Index KvCache::add() { return pages("KvCache::add").add(-1, 0); }

Index KvCache::fork(Index sequence, Index length) {
  constexpr Caller caller("KvCache::fork");
  KvPages& p = pages(caller.function());
  check_sequence(p, caller, sequence);
  const Index all = p.length(sequence);
  caller.require(length >= -1 && length <= all, "length is ", length, ", sequence ", sequence, " has ", all, " keys");
  return p.add(sequence, length < 0 ? all : length);
}

void KvCache::read(Index sequence, Index first, View<float, 3> k, View<float, 3> v) const {
  const CallScope scope;
  const KvPages& p = pages(read_caller.function());
  check_read(p, sequence, first, k, v);
  p.read(sequence, first, k, v);
}
void KvCache::read(Index sequence, Index first, View<bfloat16, 3> k, View<bfloat16, 3> v) const {
  read_halves(pages(read_caller.function()), sequence, first, bits_of(k), bits_of(v), DType::bfloat16);
}
void KvCache::read(Index sequence, Index first, View<float16, 3> k, View<float16, 3> v) const {
  read_halves(pages(read_caller.function()), sequence, first, bits_of(k), bits_of(v), DType::float16);
}

void KvCache::truncate(Index sequence, Index length) {
  constexpr Caller caller("KvCache::truncate");
  KvPages& p = pages(caller.function());
  check_sequence(p, caller, sequence);
  const Index all = p.length(sequence);
  caller.require(length >= 0 && length <= all, "length is ", length, ", sequence ", sequence, " has ", all, " keys");
  p.truncate(sequence, length);
}

void KvCache::remove(Index sequence) {
  constexpr Caller caller("KvCache::remove");
  check_sequence(pages(caller.function()), caller, sequence);
  pages_->remove(sequence);
}

Index KvCache::length(Index sequence) const {
  constexpr Caller caller("KvCache::length");
  check_sequence(pages(caller.function()), caller, sequence);
  return pages_->length(sequence);
}

std::vector<Index> KvCache::sequences() const {
  const KvPages& p = pages("KvCache::sequences");
  std::vector<Index> numbers;
  for (Index number = 0; number < std::ssize(p.sequences); ++number)
    if (p.has(number)) numbers.push_back(number);
  return numbers;
}

std::vector<Index> KvCache::free_numbers() const {
  const KvPages& p = pages("KvCache::free_numbers");
  std::vector<Index> numbers;
  for (Index number = p.free_number; number >= 0; number = p.at(number).next_free) numbers.push_back(number);
  return numbers;
}

std::vector<Index> KvCache::page_table(Index sequence) const {
  constexpr Caller caller("KvCache::page_table");
  const KvPages& p = pages(caller.function());
  check_sequence(p, caller, sequence);
  std::vector<Index> numbers;
  for (const KvPages::Page* page : p.at(sequence).pages) numbers.push_back(page->number);
  return numbers;
}

bool KvCache::has(Index sequence) const { return pages("KvCache::has").has(sequence); }
Index KvCache::max_pages() const { return pages("KvCache::max_pages").max_pages; }
DType KvCache::type() const { return pages("KvCache::type").type; }
Index KvCache::kv_heads() const { return pages("KvCache::kv_heads").kv_heads; }
Index KvCache::head_dim() const { return pages("KvCache::head_dim").head_dim; }
Index KvCache::value_dim() const { return pages("KvCache::value_dim").value_dim; }
Index KvCache::page_size() const { return pages("KvCache::page_size").page_size; }
Index KvCache::pages_in_use() const { return pages("KvCache::pages_in_use").pages_in_use(); }
std::size_t KvCache::page_bytes() const { return pages("KvCache::page_bytes").page_bytes(); }
std::size_t KvCache::bytes() const {
  const KvPages& p = pages("KvCache::bytes");
  return p.pages.size() * p.page_bytes();
}

}  // namespace headlane
