// gemm_batch: bit-identical to a gemm call for each product, for any strides between matrices; and
// against the oracle.
#include "support/allocation_count.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm_batch.hpp>

namespace headlane::test {
namespace {

const std::vector<float> factors{0, 1, -1, 0.7f, 1.3f};

/// How the matrices of a batch lie to each other.
enum class Across { dense, apart, shared, reversed, innermost };
const std::vector<Across> outputs{Across::dense, Across::apart, Across::reversed, Across::innermost};
const std::vector<Across> inputs{Across::dense, Across::apart, Across::reversed, Across::innermost, Across::shared};
const char* const across_names[] = {"dense", "apart", "shared", "reversed", "innermost"};
const char* name_of(Across across) { return across_names[static_cast<std::size_t>(across)]; }

Tensor<3> batch_tensor(Index count, Index rows, Index columns, Random& random, Across across,
                       const Layout& layout = {}) {
  const std::array<Index, 3> shape = across == Across::innermost ? std::array<Index, 3>{rows, columns, count}
                                     : across == Across::apart   ? std::array<Index, 3>{2 * count, rows, columns}
                                     : across == Across::shared  ? std::array<Index, 3>{1, rows, columns}
                                                                 : std::array<Index, 3>{count, rows, columns};
  Tensor<3> t(shape, layout);
  View<float, 3>& v = t.view;
  if (across == Across::innermost) v = v.permuted({2, 0, 1});
  if (across == Across::shared) v = v.select(0, 0).broadcast(0, count);
  if (across == Across::apart) {
    v.shape[0] = count;
    v.strides[0] *= 2;
  }
  if (across == Across::reversed && count > 0) {
    v.data += (count - 1) * v.strides[0];
    v.strides[0] = -v.strides[0];
  }
  fill_normal(v, random);
  return t;
}

struct Case {
  Index count, m, n, k;
  Across a, b, c, bias, residual;
  Layout layout_a = {}, layout_b = {}, layout_c = {}, layout_residual = {};
  int which;  // 1: bias, 2: residual, 4: b packed
  GemmBatchOptions options;

  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << "batch " << count << ", m " << m << ", n " << n << ", k " << k << ", alpha " << options.alpha << ", beta "
         << options.beta << ", " << options.num_threads << " threads, activation "
         << static_cast<int>(options.activation) << ", with " << which << ", a " << name_of(a) << " " << layout_a.name
         << ", b " << name_of(b) << " " << layout_b.name << ", c " << name_of(c) << " " << layout_c.name << ", bias "
         << name_of(bias) << ", residual " << name_of(residual) << " " << layout_residual.name << ", isa " << isa();
    return text.str();
  }
};

/// Elements of a batch that differ from those of separate calls; -1: something else was written.
Index different_from_apart(Case s, std::uint64_t seed) {
  Random random(seed);
  const Tensor<3> a = batch_tensor(s.count, s.m, s.k, random, s.a, s.layout_a);
  const Tensor<3> b = batch_tensor(s.count, s.k, s.n, random, (s.which & 4) != 0 ? Across::shared : s.b, s.layout_b);
  const Tensor<3> c = batch_tensor(s.count, s.m, s.n, random, s.c, s.layout_c), expected({s.count, s.m, s.n});
  const Tensor<3> bias = batch_tensor(s.count, 1, s.n, random, s.bias);
  const Tensor<3> residual = batch_tensor(s.count, s.m, s.n, random, s.residual, s.layout_residual);
  copy<3>(c.view, expected.view);
  if ((s.which & 1) != 0) s.options.bias = bias.view.select(1, 0);
  if ((s.which & 2) != 0) s.options.residual = residual.view;
  for (Index i = 0; i < s.count; ++i) {
    GemmOptions each{.alpha = s.options.alpha, .beta = s.options.beta, .activation = s.options.activation};
    if ((s.which & 1) != 0) each.bias = s.options.bias.select(0, i);
    if ((s.which & 2) != 0) each.residual = residual.view.select(0, i);
    gemm(a.view.select(0, i), b.view.select(0, i), expected.view.select(0, i), each);
  }
  if ((s.which & 4) != 0 && s.count > 0) gemm_batch(a.view, PackedMatrix(b.view.select(0, 0)), c.view, s.options);
  else gemm_batch(a.view, b.view, c.view, s.options);
  return c.surroundings_untouched() ? different_bits(c.view, expected.view) : -1;
}

class Counts {
 public:
  void add(const Case& s, std::uint64_t seed) {
    ++cases_;
    elements_ += s.count * s.m * s.n;
    const Index here = different_from_apart(s, seed);
    if (here != 0 && failures_++ == 0) first_ = s.text() + ", seed " + std::to_string(seed);
  }
  void finish(Index least) const {
    MESSAGE("gemm_batch: ", cases_, " batches, ", elements_, " elements, ", failures_, " batches differ");
    CHECK(cases_ >= least);
    CHECK(elements_ > 10000);
    CHECK_MESSAGE(failures_ == 0, "the first: ", first_);
  }

 private:
  Index cases_ = 0, elements_ = 0, failures_ = 0;
  std::string first_;
};

Activation any_activation(Random& random) { return static_cast<Activation>(random.integer(0, 7)); }

TEST_CASE("gemm_batch: random batches give the bits of a call for each product") {
  Random random(1);
  Counts counts;
  for (int i = 0; i < (slow_isa() ? 300 : 2000); ++i) {
    const bool large = i % 10 == 0, long_k = i % 25 == 1;  // large: several threads are worth it
    const Index least = large ? 40 : 0, most = large ? 140 : 20;
    const Case s{.count = random.integer(0, 9),
                 .m = random.integer(least, most),
                 .n = random.integer(least, most),
                 .k = long_k ? random.integer(500, 1100) : random.integer(least, most),
                 .a = random.pick(inputs),
                 .b = random.pick(inputs),
                 .c = random.pick(outputs),
                 .bias = random.pick(inputs),
                 .residual = random.pick(inputs),
                 .layout_a = random.pick(layouts()),
                 .layout_b = random.pick(layouts()),
                 .layout_c = random.pick(layouts()),
                 .layout_residual = random.pick(layouts()),
                 .which = static_cast<int>(random.integer(0, 7)),
                 .options = {.alpha = random.pick(factors),
                             .beta = random.pick(factors),
                             .activation = any_activation(random),
                             .num_threads = static_cast<int>(random.integer(1, 4))}};
    counts.add(s, static_cast<std::uint64_t>(i));
  }
  counts.finish(300);
}

// One b and one bias: a single product where the rows of all matrices are evenly apart, and not
// where they are almost.
TEST_CASE("gemm_batch: a batch that is one product, or nearly") {
  Counts counts;
  std::uint64_t seed = 1;
  for (const Index m : {1, 3, 50}) {
    for (const Index count : {1, 2, 8}) {
      for (const Across a : inputs) {
        for (const Across c : outputs) {
          for (const Across residual : inputs) {
            for (const Across bias : {Across::shared, Across::dense}) {
              const bool packed = seed % 3 == 0, columns = seed % 7 == 0;
              const Layout layout = columns ? layouts()[1] : layouts()[seed % 5 == 0 ? 2 : 0];
              const Case s{.count = count,
                           .m = m,
                           .n = 35,
                           .k = 19,
                           .a = a,
                           .b = Across::shared,
                           .c = c,
                           .bias = bias,
                           .residual = residual,
                           .layout_c = layout,
                           .which = packed ? 7 : 3,
                           .options = {.alpha = 0.7f, .beta = 1.3f, .activation = Activation::silu, .num_threads = 2}};
              counts.add(s, seed++);
            }
          }
        }
      }
    }
  }
  counts.finish(1800);
}

TEST_CASE("gemm_batch: against the oracle, batch innermost and dense") {
  for (const Across across : {Across::dense, Across::innermost, Across::reversed}) {
    for (const Index k : {1, 64, 600}) {
      const std::uint64_t seed = 31;
      Random random(seed);
      const Tensor<3> a = batch_tensor(5, 13, k, random, across), b = batch_tensor(5, k, 35, random, across);
      const Tensor<3> c = batch_tensor(5, 13, 35, random, across), before({5, 13, 35});
      copy<3>(c.view, before.view);
      gemm_batch(a.view, b.view, c.view, {.alpha = 1.3f, .beta = 0.7f});
      Comparison comparison("gemm_batch", std::string(name_of(across)) + ", k " + std::to_string(k), seed);
      for (Index i = 0; i < 5; ++i) {
        const GemmReference expected =
            gemm_reference(a.view.select(0, i), b.view.select(0, i), before.view.select(0, i), {1.3f, 0.7f});
        std::size_t at = 0;
        for_each_position(std::array<Index, 2>{13, 35}, [&](const auto& p) {
          const double bound = gemm_bound(k, expected.magnitude[at]);
          comparison.add({i, p[0], p[1]}, c.view(i, p[0], p[1]), expected.value[at++], bound);
        });
      }
      comparison.finish();
    }
  }
}

TEST_CASE("gemm_batch: nothing to do, and nothing to multiply") {
  gemm_batch(View<const float, 3>(nullptr, {0, 3, 4}), View<const float, 3>(nullptr, {0, 4, 5}), {nullptr, {0, 3, 5}});
  gemm_batch(View<const float, 3>(nullptr, {3, 0, 0}), View<const float, 3>(nullptr, {3, 0, 5}), {nullptr, {3, 0, 5}});
  Random random(41);
  const View<const float, 3> a(nullptr, {3, 4, 0}), b(nullptr, {3, 0, 19});
  for (const float beta : factors) {
    for (const Across across : outputs) {
      const Tensor<3> c = batch_tensor(3, 4, 19, random, across), before({3, 4, 19});
      const Tensor<3> bias = batch_tensor(3, 1, 19, random, Across::dense);
      copy<3>(c.view, before.view);
      gemm_batch(a, b, c.view, {.beta = beta, .bias = bias.view.select(1, 0)});
      Index wrong = 0;
      for_each_position(c.view.shape, [&](const auto& p) {
        const float x = beta == 0 ? 0.0f : beta * before.view(p[0], p[1], p[2]);
        wrong += c.view(p[0], p[1], p[2]) == x + bias.view(p[0], 0, p[2]) ? 0 : 1;
      });
      CHECK_MESSAGE(wrong == 0, "k 0, beta ", beta, ", c ", name_of(across), ", isa ", isa());
      CHECK(c.surroundings_untouched());
    }
  }
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("gemm_batch: no allocation once warm") {
  Random random(71);
  const Tensor<3> a = batch_tensor(6, 70, 90, random, Across::dense);
  const Tensor<3> b = batch_tensor(6, 90, 80, random, Across::dense);
  const Tensor<3> c = batch_tensor(6, 70, 80, random, Across::innermost);
  for (const int threads : {1, 2, 3}) {
    const auto run = [&] { gemm_batch(a.view, b.view, c.view, {.num_threads = threads}); };
    CHECK_MESSAGE(allocates_nothing_once_warm(run), threads, " threads");
  }
}
#endif

}  // namespace
}  // namespace headlane::test
