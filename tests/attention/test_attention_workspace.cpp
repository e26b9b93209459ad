// The caller's workspace: as large as plan_attention() says and no byte more, the same bits, no
// allocation; and the contents of a plan.
#include "support/allocation_count.hpp"
#include "support/attention_forms.hpp"
#include "support/illegal.hpp"

#include <cstring>
#include <functional>
#include <thread>

#include <sys/mman.h>

namespace headlane::test {
namespace {

constexpr std::uint64_t seed = 41;

// Bytes at the end of a buffer between guard pages: any number of them, at any address.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t most) : size_((most + 2 * page - 1) / page * page) {
    mapped_ = static_cast<std::byte*>(mmap(nullptr, size_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(static_cast<void*>(mapped_) != MAP_FAILED);
    REQUIRE(mprotect(mapped_ + page, size_, PROT_READ | PROT_WRITE) == 0);
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(mapped_, size_ + 2 * page); }

  /// `bytes` bytes that end `gap` bytes before the page, filled with 0xff: reading them as floats
  /// gives NaN.
  [[nodiscard]] std::span<std::byte> last(std::size_t bytes, std::size_t gap) const {
    const std::size_t all = std::min(bytes + gap + page, size_);
    std::memset(mapped_ + page + size_ - all, 0xff, all);
    return {mapped_ + page + size_ - gap - bytes, bytes};
  }
  /// Whether no byte before or behind that range was written.
  [[nodiscard]] bool untouched(std::size_t bytes, std::size_t gap) const {
    const auto is_old = [](std::byte b) { return b == std::byte{0xff}; };
    const std::byte *first = mapped_ + page, *end = first + size_;
    return std::all_of(end - gap - bytes - std::min(size_ - gap - bytes, page), end - gap - bytes, is_old) &&
           std::all_of(end - gap, end, is_old);
  }

 private:
  static constexpr std::size_t page = 4096;
  std::size_t size_;
  std::byte* mapped_;
};

// Calls f(tensors, options, text) for all forms and numbers of threads, with and without a relative
// bias, and with variable-length sequences.
void for_each_case(const std::function<void(const FormTensors&, const AttentionOptions&, const std::string&)>& f) {
  for (const Form& form : forms()) {
    AttentionSizes s = form.sizes;
    Random random(seed);
    const Tensor<2> table = random_table(s.q_heads, 32, random, 9);
    const FormTensors batch(form, s, seed);
    s.batch = 1;
    s.q_length *= 3;
    const FormTensors varlen(form, s, seed);
    const Index n = s.q_length, m = s.kv_length;
    const std::vector<Index> queries{0, n / 3, 2 * n / 3, n}, keys{0, 1, m / 3, m};
    for (const int threads : {1, 2, 3, 5}) {
      for (const int kind : {0, 1, 2}) {
        AttentionOptions options;
        options.num_threads = threads;
        options.causal = kind == 1;
        options.causal_offset = m - n / 3;
        if (kind != 0) options.relative_bias.table = table.view;
        if (kind == 2) {
          options.query_starts = {queries.data(), {4}};
          options.key_starts = {keys.data(), {4}};
        }
        const FormTensors& t = kind == 2 ? varlen : batch;
        f(t, t.with_lse(options), std::string(form.name) + ", " + text_of(form.sizes, options));
      }
    }
  }
}

AttentionPlan plan_of(const AttentionTensors& t, const AttentionOptions& options) {
  return plan_attention(t.q.view, t.k.view, t.v.view, t.out.view, options);
}

void clear(const AttentionTensors& t) {
  const float sentinel = std::bit_cast<float>(sentinel_bits);
  for_each(t.out.view, [&](float& x) { x = sentinel; });
  for_each(t.lse.view, [&](float& x) { x = sentinel; });
}

TEST_CASE("attention: a workspace as large as the plan says is enough, and one byte less is not") {
  const GuardedBytes memory(std::size_t{40} << 20);
  for_each_case([&](const FormTensors& t, const AttentionOptions& options, const std::string& text) {
    t.run(options);
    const std::vector<float> out = elements(t.out.view), lse = elements(t.lse.view);
    const auto same = [&](const std::vector<float>& x, const std::vector<float>& y) {
      return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                        [](float a, float b) { return bits_of(a) == bits_of(b); });
    };
    const std::size_t bytes = plan_of(t, options).workspace_bytes;
    AttentionOptions with = options;
    for (const std::size_t gap : {0u, 1u, 63u}) {
      with.workspace = memory.last(bytes, gap);
      clear(t);
      t.run(with);
      ++comparisons_by_bits();
      CHECK_MESSAGE((same(elements(t.out.view), out) && same(elements(t.lse.view), lse)), text, ", isa ", isa(), ", ",
                    bytes, " bytes, gap ", gap, ": other bits");
      CHECK_MESSAGE(memory.untouched(bytes, gap), text, ", isa ", isa(), ", ", bytes, " bytes, gap ", gap);
      if (slow_isa()) break;
    }
    clear(t);
    for (const std::size_t less : {bytes - 1, bytes / 2, std::size_t{0}}) {
      with.workspace = memory.last(less, 0);
      check_illegal(
          {{text,
            [&] { t.run(with); },
            {"attention: workspace", std::to_string(less), std::to_string(bytes), "threads"}}},
          [&] { return all_sentinels(t.out.view) && all_sentinels(t.lse.view) && memory.untouched(less, 0); });
    }
  });
  MESSAGE(comparisons_by_bits(), " comparisons by bits");
}

TEST_CASE("attention allocates nothing where a workspace is given") {
#if !defined(HEADLANE_TEST_SANITIZED)
  for_each_case([&](const FormTensors& t, const AttentionOptions& options, const std::string& text) {
    const AttentionPlan plan = plan_of(t, options);
    std::vector<std::byte> memory(plan.workspace_bytes);
    AttentionOptions with = options;
    with.workspace = memory;
    long allocated = 0, without = 0;
    // A new thread has no scratch memory yet. The threads that help it may have some: LLVM's OpenMP
    // lends them to one caller after the other.
    std::thread([&] {
      const long before = allocations;
      attention(t.q.view, t.k.view, t.v.view, t.out.view, with);
      allocated = allocations - before;
      attention(t.q.view, t.k.view, t.v.view, t.out.view, options);
      without = allocations - before - allocated;
    }).join();
    CHECK_MESSAGE(allocated == 0, text, ", isa ", isa(), ": ", allocated);
    CHECK_MESSAGE((without > 0 || plan.threads > 1), text, ", isa ", isa(), ": nothing is counted");
  });
#endif
}

TEST_CASE("plan_attention: what it says, without looking at data") {
  Index shared_keys = 0, in_place = 0, packed = 0, only_keys = 0;
  for_each_case([&](const FormTensors& t, const AttentionOptions& options, const std::string& text) {
    const AttentionPlan plan = plan_of(t, options);
    const std::string all = text + ", isa " + std::string(isa());
    AttentionOptions without_lse = options;
    without_lse.lse = {};
    const AttentionPlan empty = plan_attention(
        {nullptr, t.q.view.shape, t.q.view.strides}, {nullptr, t.k.view.shape, t.k.view.strides},
        {nullptr, t.v.view.shape, t.v.view.strides}, {nullptr, t.out.view.shape, t.out.view.strides}, without_lse);
    CHECK_MESSAGE(empty.workspace_bytes == plan.workspace_bytes, all);
    CHECK_MESSAGE(empty.tasks == plan.tasks, all);
    CHECK_MESSAGE(std::string(plan.isa) == isa(), all);
    CHECK_MESSAGE(plan.key_block == 512, all);
    CHECK_MESSAGE((plan.tile_rows >= 1 && plan.tile_rows <= 16), all);
    CHECK_MESSAGE((plan.threads >= 1 && plan.threads <= options.num_threads), all);
    CHECK_MESSAGE((plan.rows_of_task >= 1 && plan.rows_of_task <= std::max(t.q.view.size(2), t.q.view.size(1))), all);
    CHECK_MESSAGE((plan.tasks >= plan.key_parts && plan.key_parts >= 1), all);
    CHECK_MESSAGE((plan.packs_keys || !plan.packs_values), all);
    CHECK_MESSAGE((plan.key_parts == 1 || (!plan.packs_keys && plan.threads > 1)), all);
    const bool neighbours = t.k.view.strides[3] == 1 && t.k.view.strides[2] != 0;
    CHECK_MESSAGE((neighbours || plan.packs_keys), all);
    // Scratch memory of each thread, packed keys and values, and not much more: no matrix of
    // scores.
    const std::size_t scores = static_cast<std::size_t>(16 * 528 * 4);
    CHECK_MESSAGE(plan.workspace_bytes >= static_cast<std::size_t>(plan.threads) * scores, all);
    const std::size_t keys = static_cast<std::size_t>(t.k.view.size(2) + 512), dims = static_cast<std::size_t>(128);
    const auto pairs = static_cast<std::size_t>(t.k.view.size(0) * t.k.view.size(1) * 3);
    CHECK_MESSAGE(plan.workspace_bytes <= static_cast<std::size_t>(plan.threads) * (1u << 20) +
                                              (pairs + static_cast<std::size_t>(plan.threads)) * keys * dims * 4,
                  all);
    shared_keys += plan.key_parts > 1 ? 1 : 0;
    in_place += plan.packs_keys ? 0 : 1;
    packed += plan.packs_values ? 1 : 0;
    only_keys += plan.packs_keys && !plan.packs_values ? 1 : 0;
  });
  MESSAGE(shared_keys, " share keys, ", in_place, " pack nothing, ", packed, " pack all, ", only_keys, " only keys");
  for (const Index count : {shared_keys, in_place, packed, only_keys}) CHECK(count > 0);
}

TEST_CASE("plan_attention: a thread for each 600,000 operations, of which an element counts as 16") {
  const ThreadsScope most(64);
  Index single = 0, some = 0, all = 0;
  for (const Index batch : {1, 3})
    for (const Index group : {1, 2})
      for (const Index heads : {1, 4})
        for (const Index rows : {1, 40, 300})
          for (const Index keys : {50, 1000})
            for (const Index dim : {16, 128}) {
              const AttentionTensors t({.batch = batch,
                                        .q_heads = heads * group,
                                        .kv_heads = heads,
                                        .q_length = rows,
                                        .kv_length = keys,
                                        .head_dim = dim,
                                        .value_dim = 8},
                                       seed);
              const auto all_rows = static_cast<double>(batch * heads * group * rows);
              const auto all_keys = static_cast<double>(batch * heads * keys);
              const auto dims = static_cast<double>(dim + 8);
              const double operations =
                  2 * all_rows * static_cast<double>(keys) * dims + 16 * (all_rows + all_keys) * dims;
              const auto fit = static_cast<int>(std::clamp(operations / 6e5, 1.0, 64.0));
              const AttentionPlan plan = plan_of(t, {});
              CHECK_MESSAGE(plan.threads == fit, "batch ", batch, ", heads ", heads, "*", group, ", rows ", rows,
                            ", keys ", keys, ", dim ", dim);
              ++(plan.threads == 1 ? single : plan.threads == 64 ? all : some);
            }
  for (const Index count : {single, some, all}) CHECK(count > 5);
}

TEST_CASE("plan_attention: nothing to do") {
  const ThreadsScope most(64);
  for (const std::array<Index, 4> q : {std::array<Index, 4>{0, 2, 3, 8}, {2, 0, 3, 8}, {2, 2, 0, 8}}) {
    const AttentionTensors t({.batch = q[0], .q_heads = q[1], .q_length = q[2], .kv_length = 5, .head_dim = 8}, seed);
    const AttentionPlan plan = plan_of(t, {});
    CHECK(plan.tasks == 0);
    CHECK(plan.threads == 1);
    CHECK(plan.workspace_bytes == 0);
    AttentionOptions options;
    std::byte none{};
    options.workspace = {&none, 0};
    t.run(options);
  }
  // No sequences.
  const Index none = 0;
  AttentionOptions varlen;
  varlen.query_starts = varlen.key_starts = {&none, {1}};
  CHECK(plan_of(AttentionTensors({.q_heads = 2, .q_length = 3, .kv_length = 5, .head_dim = 8}, seed), varlen).threads ==
        1);
  // No keys: rows are written nevertheless.
  const AttentionTensors t({.q_heads = 2, .kv_heads = 1, .q_length = 3, .kv_length = 0, .head_dim = 8}, seed);
  const AttentionPlan plan = plan_of(t, {});
  CHECK(plan.key_parts == 1);
  std::vector<std::byte> memory(plan.workspace_bytes);
  AttentionOptions options;
  options.workspace = memory;
  t.run(options);
  for_each(t.out.view, [](float x) { CHECK(x == 0.0f); });
}

TEST_CASE("attention: a workspace that overlaps anything else is refused") {
  const AttentionTensors t({.q_heads = 2, .q_length = 3, .kv_length = 5, .head_dim = 8, .value_dim = 8}, 1);
  const Tensor<1> sinks({2});
  const std::pair<const char*, const float*> arguments[] = {{"out", t.out.view.data}, {"q", t.q.view.data},
                                                            {"k", t.k.view.data},     {"v", t.v.view.data},
                                                            {"lse", t.lse.view.data}, {"sinks", sinks.view.data}};
  for (const auto& [name, data] : arguments) {
    AttentionOptions options{.sinks = sinks.view, .lse = t.lse.view};
    options.workspace = {reinterpret_cast<std::byte*>(const_cast<float*>(data)), 4};
    const std::string message = std::string("attention: workspace of shape [4] overlaps ") + name + " of shape";
    CHECK_THROWS_WITH_AS(attention(t.q.view, t.k.view, t.v.view, t.out.view, options),
                         doctest::Contains(message.c_str()), std::invalid_argument);
  }
}

}  // namespace
}  // namespace headlane::test
