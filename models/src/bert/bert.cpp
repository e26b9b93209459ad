// Bert: the computation. It is loaded by load.cpp.
#include <headlane/models/bert.hpp>

#include "bert/pool.hpp"
#include "core/floating_point_scope.hpp"
#include "io/error.hpp"
#include "io/team.hpp"

#include <headlane/disjoint.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

namespace headlane::models {

using namespace internal;

namespace {

/// Tokens in a round: enough work for many threads, and a bound on scratch memory.
constexpr std::size_t round_tokens = 4096;

View<const Index, 2> row_of(const std::vector<Index>& values) {
  return {values.data(), {1, static_cast<Index>(values.size())}};
}

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_call(const char* function, const Parts&... parts) {
  headlane::internal::fail(function, ": ", parts...);
}

void check_ids(const char* function, const char* name, std::size_t s, std::span<const Index> ids, Index size) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= size)
      fail_call(function, name, "[", s, "][", i, "] is ", ids[i], ", it must be 0 … ", size - 1);
}

void check_out(const char* function, const View<float, 2>& out, Index rows, Index columns) {
  if (out.size(0) != rows || out.size(1) != columns)
    fail_call(function, "out has shape ", listed(out.shape), ", the result [", rows, ", ", columns, "]");
  require_disjoint(function, {"out", out}, {});
}

}  // namespace

/// Buffers of a call.
struct Bert::Workspace {
  std::vector<Index> ids, types, positions, starts;
  std::vector<float> states, row;  // row: an embedding before truncate_dim
};

/// Buffers that no call is using. They belong to the model, not to threads, whose objects are
/// destroyed after main().
class Bert::Workspaces {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> last = std::move(free_.back());
    free_.pop_back();
    return last;
  }
  void put_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

std::shared_ptr<Bert::Workspaces> Bert::make_workspaces() { return std::make_shared<Workspaces>(); }

struct Bert::Call {
  const char* function;
  std::span<const std::vector<Index>> ids, types;
  View<float, 2> out;
  std::span<const Pooling> pooling;
  std::optional<bool> normalize;
  bool truncate;
  int num_threads;
  Index prompt_tokens;
  const std::function<void(const EncodeProgress&)>& progress;
  Workspace* work = nullptr;
  headlane::internal::StepGuard* guard = nullptr;

  [[nodiscard]] bool pools() const { return pooling.front() != Pooling::none; }
};

std::size_t Bert::tokens_of(const Call& call, std::size_t s) const {
  const std::size_t size = call.ids[s].size();
  return call.truncate ? std::min(size, static_cast<std::size_t>(config_.max_seq_length)) : size;
}

Index Bert::before_pooling(const Call& call) const { return config_.include_prompt ? 0 : call.prompt_tokens; }

Index Bert::size_of(std::span<const Pooling> pooling) const {
  const Index size = std::ssize(pooling) * config_.hidden_size;
  const bool truncated = config_.truncate_dim > 0 && pooling.front() != Pooling::none;
  return truncated ? std::min(size, config_.truncate_dim) : size;
}

Index Bert::embedding_size(std::optional<Pooling> pooling) const {
  return pooling ? size_of({&*pooling, 1}) : size_of(config_.pooling);
}

void Bert::check_together(const Call& call) const {
  const auto describe = [&] {
    Digest tokens, poolings;
    for (const auto* sentences : {&call.ids, &call.types})
      for (const std::vector<Index>& ids : *sentences) tokens.add(ids);
    poolings.add_all(call.pooling);
    Description text;
    text.add("sentences", std::ssize(call.ids)).add("tokens", tokens).add("truncate", call.truncate);
    text.add("prompt_tokens", call.prompt_tokens).add("pooling", poolings);
    text.add("normalize", call.normalize ? static_cast<int>(*call.normalize) : -1);
    return text.add("out", call.out.shape).text();
  };
  internal::check_together(team_, call.function, [&] { check(call); }, describe);
}

void Bert::check(const Call& call) const {
  const char* function = call.function;
  if (call.ids.empty()) fail_call(function, "there are no sentences");
  if (!call.types.empty() && call.types.size() != call.ids.size())
    fail_call(function, "token_type_ids has ", call.types.size(), " sentences, ids ", call.ids.size());
  if (call.num_threads < 0) fail_call(function, "num_threads is ", call.num_threads);
  if (call.prompt_tokens < 0) fail_call(function, "prompt_tokens is ", call.prompt_tokens);
  std::size_t tokens = 0;
  for (std::size_t s = 0; s < call.ids.size(); ++s) {
    const std::size_t size = call.ids[s].size();
    if (size == 0) fail_call(function, "ids[", s, "] is empty");
    tokens += tokens_of(call, s);
    if (tokens_of(call, s) > static_cast<std::size_t>(config_.max_position_embeddings))
      fail_call(function, "ids[", s, "] has ", size, " tokens, the model at most ", config_.max_position_embeddings,
                "; truncate drops those after the first ", config_.max_seq_length);
    if (call.pools() && before_pooling(call) >= static_cast<Index>(tokens_of(call, s)))
      fail_call(function, "ids[", s, "] has ", tokens_of(call, s), " tokens, and prompt_tokens is ", call.prompt_tokens,
                ": none is left to pool");
    check_ids(function, "ids", s, call.ids[s], config_.vocab_size);
    if (call.types.empty()) continue;
    if (call.types[s].size() != size)
      fail_call(function, "token_type_ids[", s, "] has ", call.types[s].size(), " tokens, ids[", s, "] ", size);
    check_ids(function, "token_type_ids", s, call.types[s], config_.type_vocab_size);
  }
  const std::size_t rows = call.pools() ? call.ids.size() : tokens;
  check_out(function, call.out, static_cast<Index>(rows), size_of(call.pooling));
}

View<const float, 2> Bert::states(const Call& call, std::size_t first, std::size_t end) const {
  Workspace& work = *call.work;
  work.ids.clear();
  work.types.clear();
  work.positions.clear();
  work.starts.assign(1, 0);
  for (std::size_t s = first; s < end; ++s) {
    const auto tokens = static_cast<Index>(tokens_of(call, s));
    work.ids.insert(work.ids.end(), call.ids[s].begin(), call.ids[s].begin() + tokens);
    if (call.types.empty()) work.types.insert(work.types.end(), static_cast<std::size_t>(tokens), 0);
    else work.types.insert(work.types.end(), call.types[s].begin(), call.types[s].begin() + tokens);
    for (Index i = 0; i < tokens; ++i) work.positions.push_back(i);
    work.starts.push_back(static_cast<Index>(work.ids.size()));
  }
  const auto total = static_cast<Index>(work.ids.size());
  const auto floats = static_cast<std::size_t>(total * config_.hidden_size);
  if (work.states.size() < floats) work.states.resize(floats);
  const View<float, 3> x(work.states.data(), {1, total, config_.hidden_size});
  words_.forward(row_of(work.ids), x);
  types_.forward(row_of(work.types), x, {.add = true});
  positions_.forward(row_of(work.positions), x, {.add = true});
  norm_.forward(x, x, call.num_threads);
  const View<const Index, 1> starts(work.starts.data(), {static_cast<Index>(work.starts.size())});
  for (const EncoderLayer& layer : layers_) {
    layer.forward(x, x, {.query_starts = starts, .key_starts = starts, .num_threads = call.num_threads});
    if (call.progress)
      call.guard->together(
          [&] { call.progress({.finished_sentences = static_cast<Index>(first), .sentences = std::ssize(call.ids)}); });
  }
  return View<const float, 3>(x).select(0, 0);
}

void Bert::run(Call call) const {
  const headlane::internal::FloatingPointScope scope;
  Workspaces& workspaces = unmoved(workspaces_, call.function, "model");
  check_together(call);
  auto guard = guard_of(team_);
  call.guard = &guard;
  std::unique_ptr<Workspace> work = workspaces.take();
  call.work = work.get();
  Index row = 0;
  for (std::size_t first = 0, end = 0; first < call.ids.size(); first = end) {
    std::size_t tokens = 0;
    for (end = first; end < call.ids.size(); ++end) {
      if (end > first && tokens + tokens_of(call, end) > round_tokens) break;
      tokens += tokens_of(call, end);
    }
    const View<const float, 2> x = states(call, first, end);
    Index token = 0;
    for (std::size_t s = first; s < end; ++s) {
      const auto length = static_cast<Index>(tokens_of(call, s));
      const View<const float, 2> tokens_of_sentence = x.slice(0, token, token + length);
      token += length;
      if (call.pools()) {
        embed_sentence(call, tokens_of_sentence, call.out.select(0, row++));
        continue;
      }
      const Index counted = call.normalize.value_or(config_.normalize) ? x.size(1) : 0;
      for (Index i = 0; i < length; ++i) copy_row(tokens_of_sentence.select(0, i), call.out.select(0, row++), counted);
    }
  }
  workspaces.put_back(std::move(work));
}

void Bert::embed_sentence(const Call& call, const View<const float, 2>& x, const View<float, 1>& y) const {
  const Index d = config_.hidden_size, size = std::ssize(call.pooling) * d, before = before_pooling(call);
  std::vector<float>& memory = call.work->row;
  memory.resize(static_cast<std::size_t>(size));
  const View<float, 1> row(memory.data(), {size});
  for (Index i = 0; i < std::ssize(call.pooling); ++i)
    pool(call.pooling[static_cast<std::size_t>(i)], x.slice(0, before, x.size(0)), before,
         row.slice(0, i * d, (i + 1) * d));
  // In sentence-transformers, the Normalize module comes before truncation, and
  // normalize_embeddings after it.
  const Index counted = call.normalize ? (*call.normalize ? y.size(0) : 0) : (config_.normalize ? size : 0);
  copy_row(row, y, counted);
}

void Bert::embed(std::span<const std::vector<Index>> ids, View<float, 2> out, const EmbedOptions& options) const {
  const std::span<const Pooling> pooling =
      options.pooling ? std::span(&*options.pooling, 1) : std::span<const Pooling>(config_.pooling);
  run({"embed", ids, options.token_type_ids, out, pooling, options.normalize, options.truncate, options.num_threads,
       options.prompt_tokens, options.progress});
}

void Bert::encode(std::span<const std::vector<Index>> ids, View<float, 2> out, const EncodeOptions& options) const {
  constexpr Pooling none = Pooling::none;
  run({"encode",
       ids,
       options.token_type_ids,
       out,
       {&none, 1},
       false,
       options.truncate,
       options.num_threads,
       0,
       options.progress});
}

}  // namespace headlane::models
