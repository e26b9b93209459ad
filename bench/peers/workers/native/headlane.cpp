// Times headlane's C++ functions and measures the machine's limits. With the argument "prepacked"
// it times gemm on a PackedMatrix, with "cache" attention over a KvCache. HEADLANE_ISA and
// HEADLANE_NUM_THREADS apply as usual.
#include <headlane/headlane.hpp>

#include "../../../native/machine.hpp"
#include "layers.hpp"
#include "worker.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using headlane::View;
using peers::Array;
using peers::Index;
using peers::Job;

Job gemm(const peers::Arguments& arguments, bool prepacked) {
  const Index m = arguments.number("m");
  const Index n = arguments.number("n");
  const Index k = arguments.number("k");
  Job job;
  job.arrays.emplace_back(arguments.input("a"));
  job.arrays.emplace_back(arguments.input("b"));
  job.arrays.emplace_back(m * n);
  const View<const float, 2> a(job.arrays[0].data(), {m, k});
  const View<const float, 2> b(job.arrays[1].data(), {k, n});
  const View<float, 2> c(job.arrays[2].data(), {m, n});
  if (prepacked) {
    const auto packed = std::make_shared<const headlane::PackedMatrix>(b);
    job.call = [=] { headlane::gemm(a, *packed, c); };
  } else {
    job.call = [=] { headlane::gemm(a, b, c); };
  }
  return job;
}

Job softmax(const peers::Arguments& arguments) {
  const Index rows = arguments.number("rows");
  const Index columns = arguments.number("columns");
  Job job;
  job.arrays.emplace_back(arguments.input("x"));
  if (arguments.number("mask") != 0) job.arrays.emplace_back(arguments.input("mask"));
  job.arrays.emplace_back(rows * columns);
  const View<const float, 2> x(job.arrays[0].data(), {rows, columns});
  const View<float, 2> y(job.arrays.back().data(), {rows, columns});
  headlane::SoftmaxOptions options;
  if (arguments.number("mask") != 0) options.mask = View<const bool, 2>(job.arrays[1].flags(), {rows, columns});
  job.call = [=] { headlane::softmax(x, y, options); };
  return job;
}

// The options of an attention case. Masks and tables are read into arrays of the job.
headlane::AttentionOptions attention_options(const peers::Arguments& arguments, Job& job) {
  const Index heads = arguments.number("heads");
  const Index queries = arguments.number("q_length");
  const Index keys = arguments.number("kv_length");
  const std::string mask = arguments.text("mask");
  const std::string option = arguments.text("option");
  headlane::AttentionOptions options{.causal = arguments.number("causal") != 0,
                                     .window_left = arguments.number("left"),
                                     .window_right = arguments.number("right")};
  const std::array<Index, 4> scores{arguments.number("batch"), heads, queries, keys};
  const auto file = [&](const char* name) -> const Array& { return job.arrays.emplace_back(arguments.input(name)); };
  if (mask == "bool") options.mask = {file("mask").flags(), scores, {keys, 0, 0, 1}};  // padding: [batch, 1, 1, keys]
  if (mask == "ragged") {
    const auto* lengths = reinterpret_cast<const Index*>(file("lengths").data());
    options.query_lengths = options.key_lengths = {lengths, {scores[0]}};
  }
  if (mask == "dense") options.mask = {file("mask").flags(), scores, {0, 0, keys, 1}};  // [1, 1, queries, keys]
  if (mask == "float") options.bias = {file("mask").data(), scores, {0, queries * keys, keys, 1}};  // [1, heads, …]
  if (mask == "bits") {
    const Index bytes = (keys + 7) / 8;
    const auto* bits = reinterpret_cast<const std::uint8_t*>(file("bits").data());
    options.mask_bits = {bits, {scores[0], heads, queries, bytes}, {0, 0, bytes, 1}};
  }
  if (option == "softcap") options.softcap = static_cast<float>(arguments.number("softcap"));
  if (option == "alibi") options.alibi_slopes = {file("table").data(), {heads}};
  if (option == "t5") {
    const Array& table = file("table");
    options.relative_bias.table = {table.data(), {heads, static_cast<Index>(table.bytes() / sizeof(float)) / heads}};
  }
  return options;
}

Job attention(const peers::Arguments& arguments, bool cached) {
  const Index batch = arguments.number("batch");
  const Index heads = arguments.number("heads");
  const Index kv_heads = arguments.number("kv_heads");
  const Index queries = arguments.number("q_length");
  const Index keys = arguments.number("kv_length");
  const Index dim = arguments.number("head_dim");
  Job job;
  for (const char* name : {"q", "k", "v"}) job.arrays.emplace_back(arguments.input(name));
  const headlane::AttentionOptions options = attention_options(arguments, job);
  job.arrays.emplace_back(batch * heads * queries * dim);

  const View<const float, 4> q(job.arrays[0].data(), {batch, heads, queries, dim});
  const View<const float, 4> k(job.arrays[1].data(), {batch, kv_heads, keys, dim});
  const View<const float, 4> v(job.arrays[2].data(), {batch, kv_heads, keys, dim});
  const View<float, 4> out(job.arrays.back().data(), {batch, heads, queries, dim});
  if (!cached) {
    job.call = [=] { headlane::attention(q, k, v, out, options); };
    return job;
  }
  const std::string stored = arguments.text("stored");
  const headlane::DType type = stored == "int8"       ? headlane::DType::int8
                               : stored == "bfloat16" ? headlane::DType::bfloat16
                                                      : headlane::DType::float32;
  const auto cache =
      std::make_shared<headlane::KvCache>(kv_heads, dim, dim, headlane::KvCacheOptions{.page_size = 128, .type = type});
  std::vector<Index> sequences;
  for (Index b = 0; b < batch; ++b) sequences.push_back(cache->add());
  cache->append(sequences, k, v);
  job.call = [=] { headlane::attention(q, *cache, sequences, out, options); };
  return job;
}

// The variants of headlane beside its plain functions.
enum class Mode { plain, prepacked, cache };

Job prepare(const peers::Arguments& arguments, Mode mode) {
  const std::string op = arguments.text("op");
  if (op == "gemm") return gemm(arguments, mode == Mode::prepacked);
  if (op == "softmax") return softmax(arguments);
  if (op == "attention") return attention(arguments, mode == Mode::cache);
  if (op == "norms") return peers::norms(arguments);
  if (op == "layers") return peers::layers(arguments);
  throw std::invalid_argument("there is no operation '" + op + "'");
}

// Floating-point operations or bytes per second; for a copy, bytes read (as many are written).
double limit(const peers::Arguments& arguments) {
  const std::string kind = arguments.text("kind");
  const int threads = static_cast<int>(arguments.number("threads"));
  if (kind == "fma") return bench::fma_peak(arguments.text("isa"), threads);
  const Index bytes = arguments.number("bytes");
  const auto size = static_cast<std::size_t>(bytes);
  static Array from(1);
  static Array to(1);
  for (Array* array : {&from, &to}) {
    if (array->bytes() < size) *array = Array(bytes / static_cast<Index>(sizeof(float)) + 1);
    if (kind == "read") return bench::read_rate(from.data(), size, threads);
  }
  return static_cast<double>(bytes) / bench::copy_seconds(from.data(), to.data(), size, threads);
}

std::string measure(const peers::Arguments& arguments) {
  std::ostringstream text;
  text.precision(9);
  text << limit(arguments);
  return text.str();
}

std::string about() {
  std::ostringstream text;
  text << "version=" << headlane::version() << "\tisa=" << headlane::isa() << "\tavailable=";
  for (const std::string_view isa : headlane::available_isas()) text << isa << ' ';
  text << "\tcpu=" << bench::cpu_name() << "\tcompiler=" << bench::compiler();
  return text.str();
}

}  // namespace

int main(int count, char** words) {
  try {
    const std::string_view word = count > 1 ? words[1] : "";
    const Mode mode = word == "prepacked" ? Mode::prepacked : word == "cache" ? Mode::cache : Mode::plain;
    peers::serve({.about = about(),
                  .prepare = [=](const peers::Arguments& arguments) { return prepare(arguments, mode); },
                  .measure = measure});
  } catch (const std::exception& error) {  // HEADLANE_ISA names one that this CPU lacks
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
  return 0;
}
