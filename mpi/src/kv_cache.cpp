// KvCache over ranks: which rank has which blocks, and the storage of the own ones.
#include "core/floating_point_scope.hpp"
#include "error.hpp"
#include "grid.hpp"
#include "kv_cache_state.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headlane::mpi {

using namespace internal;
namespace {

template <class... Parts>
void refuse_unless(bool condition, const Parts&... parts) {
  if (!condition) fail("mpi::KvCache::", parts...);
}

/// Adds positions at the end of a sequence.
void extend(std::vector<SequencePiece>& pieces, int rank, Index end) {
  const Index begin = pieces.empty() ? 0 : pieces.back().end;
  if (end == begin) return;
  if (!pieces.empty() && pieces.back().rank == rank) pieces.back().end = end;
  else pieces.push_back({.rank = rank, .begin = begin, .end = end});
}

/// The rank with the fewest keys.
int rank_with_fewest(const std::vector<SequencePiece>& pieces, int ranks) {
  std::vector<Index> keys(static_cast<std::size_t>(ranks), 0);
  for (const SequencePiece& piece : pieces) keys[static_cast<std::size_t>(piece.rank)] += piece.size();
  return static_cast<int>(std::min_element(keys.begin(), keys.end()) - keys.begin());
}

/// The pieces of a sequence once it has `tokens` more keys that all ranks have.
std::vector<SequencePiece> extended(std::vector<SequencePiece> pieces, Index tokens, int ranks) {
  const Index length = pieces.empty() ? 0 : pieces.back().end, end = length + tokens;
  const Index whole = ceil_div(length, grid) * grid;  // the end of the last block
  if (length < whole) extend(pieces, pieces.back().rank, std::min(whole, end));
  const Index blocks = ceil_div(std::max<Index>(end - whole, 0), grid);
  for (Index b = 0; b < blocks; ++b) {
    const int rank = blocks >= ranks ? static_cast<int>(b * ranks / blocks) : rank_with_fewest(pieces, ranks);
    extend(pieces, rank, std::min(whole + (b + 1) * grid, end));
  }
  return pieces;
}

/// Undoes what was appended to the own blocks of a sequence, unless it is committed.
class BlocksGuard {
 public:
  BlocksGuard(headlane::KvCache& own, std::vector<Index>& blocks)
      : own_(own), blocks_(blocks), count_(blocks.size()), last_(blocks.empty() ? 0 : own.length(blocks.back())) {}
  ~BlocksGuard() {
    if (committed_) return;
    for (; blocks_.size() > count_; blocks_.pop_back()) own_.remove(blocks_.back());
    if (count_ > 0) own_.truncate(blocks_.back(), last_);
  }
  BlocksGuard(const BlocksGuard&) = delete;
  BlocksGuard& operator=(const BlocksGuard&) = delete;
  void commit() { committed_ = true; }

 private:
  headlane::KvCache& own_;
  std::vector<Index>& blocks_;
  std::size_t count_;
  Index last_;
  bool committed_ = false;
};

}  // namespace

KvCache::State::Sequence& KvCache::State::at(const char* function, Index sequence) {
  const auto found = sequences.find(sequence);
  refuse_unless(found != sequences.end(), function, ": sequence is ", sequence, ", which the cache does not have");
  return found->second;
}

Index KvCache::State::insert(Sequence&& sequence) {
  const Index number = free.empty() ? static_cast<Index>(sequences.size()) : free.back();
  sequences.emplace(number, std::move(sequence));
  if (!free.empty()) free.pop_back();
  return number;
}

KvCache::KvCache(const Transport& transport, Index kv_heads, Index head_dim, Index value_dim,
                 const KvCacheOptions& options) {
  refuse_unless(options.page_size <= grid, "KvCache: page_size is ", options.page_size, ", the maximum is ", grid);
  state_ = std::make_unique<State>(
      State{transport.rank(), transport.size(), headlane::KvCache(kv_heads, head_dim, value_dim, options), {}, {}});
}

KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvCache::State& KvCache::state(const char* function) const {
  refuse_unless(state_ != nullptr, function, ": the cache was moved from");
  return *state_;
}

Index KvCache::add() { return state("add").insert({}); }

Index KvCache::fork(Index sequence, Index length) {
  State& s = state("fork");
  const State::Sequence& from = s.at("fork", sequence);
  const Index end = length < 0 ? from.length() : length;
  refuse_unless(end <= from.length(), "fork: length is ", length, ", the sequence has ", from.length(), " keys");
  State::Sequence copy;
  copy.blocks.reserve(from.blocks.size());
  BlocksGuard guard(s.own, copy.blocks);
  std::size_t block = 0;
  for (const SequencePiece& piece : from.pieces) {
    if (piece.begin >= end) break;
    extend(copy.pieces, piece.rank, std::min(piece.end, end));
    for (Index at = piece.begin; piece.rank == s.rank && at < std::min(piece.end, end); at += grid)
      copy.blocks.push_back(s.own.fork(from.blocks[block++], std::min(std::min(piece.end, end) - at, grid)));
  }
  const Index number = s.insert(std::move(copy));
  guard.commit();
  return number;
}

namespace {

/// As the cache of the rank that stores them checks them: all ranks refuse the same arguments.
void check_tokens(const headlane::KvCache& own, const char* name, const View<const float, 3>& x, Index columns,
                  const char* columns_name) {
  refuse_unless(x.shape[0] == own.kv_heads(), "append: ", name, " has ", x.shape[0], " heads, kv_heads is ",
                own.kv_heads());
  refuse_unless(x.shape[2] == columns, "append: ", name, " has ", x.shape[2], " columns, ", columns_name, " is ",
                columns);
  refuse_unless(x.shape[1] >= 0, "append: ", name, " has ", x.shape[1], " tokens");
  refuse_unless(x.data != nullptr || x.shape[0] * x.shape[1] == 0, "append: ", name, " has no data");
}

void check_tokens(const headlane::KvCache& own, const View<const float, 3>& k, const View<const float, 3>& v) {
  check_tokens(own, "k", k, own.head_dim(), "head_dim");
  check_tokens(own, "v", v, own.value_dim(), "value_dim");
}

void check_finite(const char* name, const View<const float, 3>& x) {
  for (Index head = 0; head < x.shape[0]; ++head)
    for (Index token = 0; token < x.shape[1]; ++token)
      for (Index i = 0; i < x.shape[2]; ++i)
        refuse_unless(std::isfinite(x(head, token, i)), "append: ", name, "[", head, ", ", token, ", ", i,
                      "] is not finite; int8 has no such number");
}

/// Appends the own ones of the positions from `length` on. local(position): where this rank has it
/// in k and v.
template <class Local>
void store(headlane::KvCache& own, std::vector<Index>& blocks, int rank, const std::vector<SequencePiece>& pieces,
           Index length, const View<const float, 3>& k, const View<const float, 3>& v, const Local& local) {
  for (const SequencePiece& piece : pieces) {
    if (piece.rank != rank || piece.end <= length) continue;
    for (Index at = std::max(piece.begin, length); at < piece.end;) {
      const Index end = std::min((at / grid + 1) * grid, piece.end), first = local(at);
      if (at % grid == 0) blocks.push_back(own.add());
      own.append(blocks.back(), k.slice(1, first, first + end - at), v.slice(1, first, first + end - at));
      at = end;
    }
  }
}

}  // namespace

void KvCache::append(Index sequence, View<const float, 3> k, View<const float, 3> v) {
  const headlane::internal::FloatingPointScope scope;
  State& s = state("append");
  State::Sequence& to = s.at("append", sequence);
  refuse_unless(k.shape[1] == v.shape[1], "append: k has ", k.shape[1], " tokens, v has ", v.shape[1]);
  check_tokens(s.own, k, v);
  if (s.own.type() == DType::int8) {
    check_finite("k", k);
    check_finite("v", v);
  }
  const Index length = to.length();
  std::vector<SequencePiece> pieces = extended(to.pieces, k.shape[1], s.ranks);
  BlocksGuard guard(s.own, to.blocks);
  store(s.own, to.blocks, s.rank, pieces, length, k, v, [&](Index position) { return position - length; });
  guard.commit();
  to.pieces = std::move(pieces);
}

void KvCache::append(Index sequence, View<const float, 3> k, View<const float, 3> v, const SequenceCut& cut) {
  State& s = state("append");
  State::Sequence& to = s.at("append", sequence);
  const Index length = to.length(), own = cut.length_of(s.rank);
  refuse_unless(length % grid == 0, "append: the sequence has ", length, " keys, not a multiple of ", grid);
  refuse_unless(cut.ranks() == s.ranks, "append: the cut is for ", cut.ranks(), " ranks, there are ", s.ranks);
  refuse_unless(k.shape[1] == own && v.shape[1] == own, "append: k has ", k.shape[1], " tokens and v ", v.shape[1],
                ", the cut gives rank ", s.rank, " ", own);
  check_tokens(s.own, k, v);
  std::vector<SequencePiece> pieces = to.pieces;
  for (const SequencePiece& piece : cut.pieces()) extend(pieces, piece.rank, length + piece.end);
  BlocksGuard guard(s.own, to.blocks);
  Index first = 0;
  for (const SequencePiece& piece : cut.pieces()) {
    if (piece.rank != s.rank) continue;
    const std::vector<SequencePiece> moved{{s.rank, length + piece.begin, length + piece.end}};
    store(s.own, to.blocks, s.rank, moved, length, k, v,
          [&](Index position) { return first + position - length - piece.begin; });
    first += piece.size();
  }
  guard.commit();
  to.pieces = std::move(pieces);
}

void KvCache::truncate(Index sequence, Index length) {
  State& s = state("truncate");
  State::Sequence& of = s.at("truncate", sequence);
  refuse_unless(length >= 0 && length <= of.length(), "truncate: length is ", length, ", the sequence has ",
                of.length(), " keys");
  std::vector<SequencePiece> pieces;
  Index own = 0;  // blocks
  for (const SequencePiece& piece : of.pieces) {
    if (piece.begin >= length) break;
    const Index end = std::min(piece.end, length);
    extend(pieces, piece.rank, end);
    if (piece.rank != s.rank) continue;
    own += ceil_div(end - piece.begin, grid);
    if (end % grid != 0 && end < piece.end) s.own.truncate(of.blocks[static_cast<std::size_t>(own - 1)], end % grid);
  }
  for (auto block = static_cast<std::size_t>(own); block < of.blocks.size(); ++block) s.own.remove(of.blocks[block]);
  of.blocks.resize(static_cast<std::size_t>(own));
  of.pieces = std::move(pieces);
}

void KvCache::remove(Index sequence) {
  State& s = state("remove");
  const State::Sequence& of = s.at("remove", sequence);
  s.free.push_back(sequence);
  for (const Index block : of.blocks) s.own.remove(block);
  s.sequences.erase(sequence);
}

bool KvCache::has(Index sequence) const { return state("has").sequences.contains(sequence); }
Index KvCache::length(Index sequence) const { return state("length").at("length", sequence).length(); }
SequenceCut KvCache::cut(Index sequence) const {
  State& s = state("cut");
  return {s.ranks, s.at("cut", sequence).pieces};
}
Index KvCache::kv_heads() const { return state("kv_heads").own.kv_heads(); }
Index KvCache::head_dim() const { return state("head_dim").own.head_dim(); }
Index KvCache::value_dim() const { return state("value_dim").own.value_dim(); }
DType KvCache::type() const { return state("type").own.type(); }
std::size_t KvCache::bytes() const { return state("bytes").own.bytes(); }

}  // namespace headlane::mpi
