// Bert: the model's computation (how it is read: bert_load.cpp).
#include <headlane/models/bert.hpp>

#include "error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

namespace headlane::models {
namespace {

/// Tokens of a round: enough work for many threads, and a bound for scratch memory.
constexpr std::size_t round_tokens = 4096;

struct Workspace {
  std::vector<Index> ids, types, positions, starts;
  std::vector<float> states;
};

Workspace& workspace() {
  thread_local Workspace of_thread;
  return of_thread;
}

View<const Index, 2> row_of(const std::vector<Index>& values) {
  return {values.data(), {1, static_cast<Index>(values.size())}};
}

/// Throws std::invalid_argument; the parts are joined to the message.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_call(const char* function, const Parts&... parts) {
  std::string message = function;
  message += ": ";
  (append(message, parts), ...);
  throw std::invalid_argument(message);
}

void check_ids(const char* function, const char* name, std::size_t s, std::span<const Index> ids, Index size) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= size)
      fail_call(function, name, "[", s, "][", i, "] is ", ids[i], ", it must be 0 … ", size - 1);
}

void check_out(const char* function, const View<float, 2>& out, Index rows, Index columns) {
  if (out.size(0) != rows || out.size(1) != columns)
    fail_call(function, "out has shape ", listed(out.shape), ", the result [", rows, ", ", columns, "]");
  if (out.data == nullptr) fail_call(function, "out is null");
  // Elements lie apart if one axis steps over all of the other. In double: products of strides may overflow.
  const double row = std::abs(static_cast<double>(out.stride(0))),
               column = std::abs(static_cast<double>(out.stride(1)));
  const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
  const bool by_rows = (m == 1 || row > (n - 1) * column) && (n == 1 || column > 0);
  const bool by_columns = (n == 1 || column > (m - 1) * row) && (m == 1 || row > 0);
  if (!by_rows && !by_columns) fail_call(function, "elements of out overlap: its strides are ", listed(out.strides));
}

/// y = x, with normalize divided by its length.
void copy_row(const View<const float, 1>& x, const View<float, 1>& y, bool normalize) {
  double length = 1;
  if (normalize) {
    double squares = 0;
    for (Index j = 0; j < x.size(0); ++j) squares += static_cast<double>(x(j)) * x(j);
    length = std::sqrt(squares);
    if (length < 1e-12) length = 1e-12;  // as torch.nn.functional.normalize; a NaN stays one
  }
  for (Index j = 0; j < x.size(0); ++j) y(j) = static_cast<float>(x(j) / length);
}

/// y = the mean of x's rows.
void mean_of_rows(const View<const float, 2>& x, const View<float, 1>& y) {
  constexpr Index block = 64;  // columns whose sums are in the L1, and mostly in registers
  for (Index from = 0; from < x.size(1); from += block) {
    const Index columns = std::min(block, x.size(1) - from);
    std::array<double, block> sums{};
    for (Index i = 0; i < x.size(0); ++i)
      for (Index j = 0; j < columns; ++j) sums[static_cast<std::size_t>(j)] += x(i, from + j);
    for (Index j = 0; j < columns; ++j)
      y(from + j) = static_cast<float>(sums[static_cast<std::size_t>(j)] / static_cast<double>(x.size(0)));
  }
}

}  // namespace

struct Bert::Call {
  const char* function;
  std::span<const std::vector<Index>> ids, types;
  View<float, 2> out;
  Pooling pooling;
  bool normalize, truncate;
  int num_threads;
};

std::size_t Bert::tokens_of(const Call& call, std::size_t s) const {
  const std::size_t size = call.ids[s].size();
  return call.truncate ? std::min(size, static_cast<std::size_t>(config_.max_seq_length)) : size;
}

void Bert::check(const Call& call) const {
  const char* function = call.function;
  if (call.ids.empty()) fail_call(function, "there are no sentences");
  if (!call.types.empty() && call.types.size() != call.ids.size())
    fail_call(function, "token_type_ids has ", call.types.size(), " sentences, ids ", call.ids.size());
  if (call.num_threads < 0) fail_call(function, "num_threads is ", call.num_threads);
  std::size_t tokens = 0;
  for (std::size_t s = 0; s < call.ids.size(); ++s) {
    const std::size_t size = call.ids[s].size();
    if (size == 0) fail_call(function, "ids[", s, "] is empty");
    tokens += tokens_of(call, s);
    if (tokens_of(call, s) > static_cast<std::size_t>(config_.max_position_embeddings))
      fail_call(function, "ids[", s, "] has ", size, " tokens, the model at most ", config_.max_position_embeddings,
                "; truncate cuts them to ", config_.max_seq_length);
    check_ids(function, "ids", s, call.ids[s], config_.vocab_size);
    if (call.types.empty()) continue;
    if (call.types[s].size() != size)
      fail_call(function, "token_type_ids[", s, "] has ", call.types[s].size(), " tokens, ids[", s, "] ", size);
    check_ids(function, "token_type_ids", s, call.types[s], config_.type_vocab_size);
  }
  const std::size_t rows = call.pooling == Pooling::none ? tokens : call.ids.size();
  check_out(function, call.out, static_cast<Index>(rows), config_.hidden_size);
}

View<const float, 2> Bert::states(const Call& call, std::size_t first, std::size_t end) const {
  Workspace& work = workspace();
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
  for (const EncoderLayer& layer : layers_)
    layer.forward(x, x, {.num_threads = call.num_threads, .query_starts = starts, .key_starts = starts});
  return View<const float, 3>(x).select(0, 0);
}

void Bert::run(const Call& call) const {
  check(call);
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
      if (call.pooling == Pooling::none) {
        for (Index i = 0; i < length; ++i) copy_row(x.select(0, token + i), call.out.select(0, row++), call.normalize);
      } else {
        const View<float, 1> y = call.out.select(0, row++);
        if (call.pooling == Pooling::cls) copy_row(x.select(0, token), y, call.normalize);
        else mean_of_rows(x.slice(0, token, token + length), y);
        if (call.pooling == Pooling::mean && call.normalize) copy_row(y, y, true);
      }
      token += length;
    }
  }
}

void Bert::embed(std::span<const std::vector<Index>> ids, View<float, 2> out, const EmbedOptions& options) const {
  run({"embed", ids, options.token_type_ids, out, options.pooling.value_or(config_.pooling),
       options.normalize.value_or(config_.normalize), options.truncate, options.num_threads});
}

void Bert::encode(std::span<const std::vector<Index>> ids, View<float, 2> out, const EncodeOptions& options) const {
  run({"encode", ids, options.token_type_ids, out, Pooling::none, false, options.truncate, options.num_threads});
}

}  // namespace headlane::models
