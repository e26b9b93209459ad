// A cache that is cut over ranks, beside one of a single process: the same random calls on both.
#pragma once

#include "sequence_case.hpp"

#include <headlane/mpi/kv_cache.hpp>

#include <stdexcept>
#include <string>
#include <vector>

namespace headlane::test {

/// Every rank makes the same calls on the cut cache, and on one that has everything.
class CachePair {
 public:
  CachePair(mpi::Transport& transport, const AttentionSizes& s, const KvCacheOptions& options)
      : transport_(transport),
        sizes_(s),
        cut_(transport, s.kv_heads, s.head_dim, s.value_dim, options),
        whole_(s.kv_heads, s.head_dim, s.value_dim, options) {}

  void add() { keep(cut_.add(), whole_.add()); }

  void append(std::size_t at, Index tokens, Random& random, bool as_cut) {
    const Tensor<3> k = random_tensor<3>({sizes_.kv_heads, tokens, sizes_.head_dim}, random),
                    v = random_tensor<3>({sizes_.kv_heads, tokens, sizes_.value_dim}, random);
    whole_.append(of_whole_[at], k.view, v.view);
    if (!as_cut || cut_.length(of_cut_[at]) % 512 != 0) return cut_.append(of_cut_[at], k.view, v.view);
    const mpi::SequenceCut cut = random_cut(tokens, transport_.size(), random);
    const std::vector<Index> own = positions_of(cut, transport_.rank());
    const auto as_batch = [](const View<float, 3>& x) {
      return View<const float, 4>(x.data, {1, x.shape[0], x.shape[1], x.shape[2]},
                                  {0, x.strides[0], x.strides[1], x.strides[2]});
    };
    const LocalRows<float> own_k(as_batch(k.view), own), own_v(as_batch(v.view), own);
    cut_.append(of_cut_[at], own_k.view.select(0, 0), own_v.view.select(0, 0), cut);
  }

  void fork(std::size_t at, Index length) { keep(cut_.fork(of_cut_[at], length), whole_.fork(of_whole_[at], length)); }
  void truncate(std::size_t at, Index length) {
    cut_.truncate(of_cut_[at], length);
    whole_.truncate(of_whole_[at], length);
  }
  void remove(std::size_t at) {
    cut_.remove(of_cut_[at]);
    whole_.remove(of_whole_[at]);
    of_cut_.erase(of_cut_.begin() + static_cast<std::ptrdiff_t>(at));
    of_whole_.erase(of_whole_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  [[nodiscard]] std::size_t size() const { return of_cut_.size(); }
  [[nodiscard]] Index length(std::size_t at) const { return cut_.length(of_cut_[at]); }
  [[nodiscard]] const mpi::KvCache& cut() const { return cut_; }
  [[nodiscard]] Index number(std::size_t at) const { return of_cut_[at]; }

  /// Attention of random queries with random options over some sequences. Throws if bits differ.
  void check(const std::vector<std::size_t>& which, std::uint64_t seed, int num_threads) const {
    AttentionSizes s = sizes_;
    s.batch = static_cast<Index>(which.size());
    s.kv_length = 0;
    std::vector<Index> a, b, lengths;
    for (const std::size_t at : which) {
      a.push_back(of_cut_[at]);
      b.push_back(of_whole_[at]);
      lengths.push_back(length(at));
      if (whole_.length(b.back()) != lengths.back()) throw std::runtime_error("the lengths differ");
      s.kv_length = std::max(s.kv_length, lengths.back());
    }
    Random random(seed);
    RandomOptions given(s);
    AttentionOptions options = given.draw(random, {.one_in = 3, .key_lengths = lengths});
    options.num_threads = num_threads;
    const AttentionTensors t(s, seed), expected(s, seed);
    options.lse = expected.lse.view;
    headlane::attention(expected.q.view, whole_, b, expected.out.view, options);
    options.lse = t.lse.view;
    mpi::attention(transport_, t.q.view, cut_, a, t.out.view, options);
    const auto differ = [&](const char* what, const std::string& difference) {
      if (!difference.empty())
        throw std::runtime_error(std::string(what) + ", " + text_of(s, options) + ", seed " + std::to_string(seed) +
                                 ", rank " + std::to_string(transport_.rank()) + ": " + difference);
    };
    differ("out", first_difference(t.out.view, expected.out.view));
    differ("lse", first_difference(t.lse.view, expected.lse.view));
    if (!t.out.surroundings_untouched()) throw std::runtime_error("surroundings of out written");
  }

 private:
  void keep(Index of_cut, Index of_whole) {
    of_cut_.push_back(of_cut);
    of_whole_.push_back(of_whole);
  }

  mpi::Transport& transport_;
  AttentionSizes sizes_;
  mpi::KvCache cut_;
  KvCache whole_;
  std::vector<Index> of_cut_, of_whole_;
};

/// Random calls on both caches, attention after each.
inline void check_cache(mpi::Transport& transport, std::uint64_t seed, int steps) {
  Random random(seed);  // the same on all ranks
  const AttentionSizes s{.q_heads = 4,
                         .kv_heads = random.pick(std::vector<Index>{1, 2, 4}),
                         .q_length = random.pick(std::vector<Index>{1, 1, 7, 30}),
                         .kv_length = 0,
                         .head_dim = 8,
                         .value_dim = random.pick(std::vector<Index>{5, 16})};
  const DType type = random.pick(std::vector<DType>{DType::float32, DType::float32, DType::bfloat16, DType::int8});
  const Index page = random.pick(std::vector<Index>{32, 128, 512});
  CachePair caches(transport, s, {.page_size = page, .type = type});
  for (int step = 0; step < steps; ++step) {
    const Index call = caches.size() == 0 ? 0 : random.integer(0, 9);
    const auto any = [&] { return static_cast<std::size_t>(random.integer(0, static_cast<Index>(caches.size()) - 1)); };
    if (call == 0) caches.add();
    else if (call == 1) caches.fork(any(), -1);
    else if (call == 2) {
      const std::size_t at = any();
      caches.fork(at, random.integer(0, caches.length(at)));
    } else if (call == 3) {
      const std::size_t at = any();
      const Index unit = random.pick(std::vector<Index>{1, 512});
      caches.truncate(at, random.integer(0, caches.length(at) / unit) * unit);
    } else if (call == 4 && caches.size() > 1) caches.remove(any());
    else caches.append(any(), random.pick(std::vector<Index>{1, 40, 512, 700, 2100}), random, call < 8);
    std::vector<std::size_t> which;
    for (Index n = random.integer(1, 3); n > 0; --n) which.push_back(any());
    caches.check(which, random.next(), static_cast<int>(random.integer(1, 2)));
  }
}

}  // namespace headlane::test
