// headlane_compare: the same calls in two builds of the library. `--write FILE` records times and
// hashes of the output bits; `--against FILE` runs the calls with every instruction set of this
// build and prints both side by side. Exit code: 0 if all bits agree, 1 if not, 2 if it could not
// run.
#include "cases.hpp"
#include "machine.hpp"
#include "text.hpp"

#include <headlane/runtime.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

namespace {

using bench::fixed;
using bench::pad_left;
using bench::pad_right;

constexpr std::string_view format = "headlane_compare-1";

// An output is hashed in this many equal parts, which locates a difference.
constexpr std::size_t parts = 8;

struct Figures {
  double seconds = 0;
  std::uint64_t hashes[parts] = {};
};

std::vector<bench::Case> all_cases() {
  return {bench::gemm_case(512, 512, 512),
          bench::gemm_case(512, 2048, 512),
          bench::gemm_case(512, 512, 2048),
          bench::gemm_case(1, 512, 512),
          bench::gemm_case(17, 33, 65),
          bench::gemm_case(129, 127, 1023),
          bench::softmax_case(512, 64),
          bench::softmax_case(4096, 512),
          bench::softmax_case(333, 1023),
          bench::attention_case({1, 16, 16, false}),
          bench::attention_case({1, 128, 128, false}),
          bench::attention_case({1, 512, 512, false}),
          bench::attention_case({1, 1024, 1024, false}),
          bench::attention_case({3, 77, 77, false}),
          bench::attention_case({1, 512, 512, true}),
          bench::attention_case({1, 1023, 1023, true}),
          bench::attention_case({1, 1, 1024, false}),
          bench::layer_case(false, 3, 77),
          bench::layer_case(true, 1, 128)};
}

// FNV-1a over 32-bit words.
std::uint64_t hash(std::span<const float> values) {
  std::uint64_t state = 14695981039346656037u;
  for (const float value : values) state = (state ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211u;
  return state;
}

// The median of up to seven calls after a first one, within about half a second.
double seconds_per_call(const std::function<void()>& call) {
  call();
  std::vector<double> times;
  for (const double begin = bench::now(); times.size() < 7 && (times.empty() || bench::now() - begin < 0.5);) {
    const double start = bench::now();
    int calls = 0;
    do {
      call();
      ++calls;
    } while (bench::now() - start < 0.01);
    times.push_back((bench::now() - start) / calls);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Figures measure(const bench::Work& work) {
  std::fill(work.output.begin(), work.output.end(),
            0.0f);  // an element that a build does not write must not keep its previous value
  Figures figures;
  figures.seconds = seconds_per_call(work.library);
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t begin = work.output.size() * i / parts;
    figures.hashes[i] = hash(work.output.subspan(begin, work.output.size() * (i + 1) / parts - begin));
  }
  return figures;
}

void write(const std::string& file) {
  std::ofstream out(file);
  out << format << ' ' << headlane::isa() << " build with " << bench::compiler() << '\n' << std::hexfloat;
  for (const bench::Case& which : all_cases()) {
    bench::status(which.name());
    const Figures figures = measure(which.prepare());
    out << which.name() << ' ' << figures.seconds;
    for (const std::uint64_t part : figures.hashes) out << ' ' << part;
    out << '\n';
  }
  bench::status("");
  if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

struct Other {
  std::string built;
  std::map<std::string, Figures> figures;
};

Other read(const std::string& file) {
  std::ifstream in(file);
  std::string word;
  Other other;
  if (!(in >> word) || word != format) throw std::runtime_error(file + " was not written by headlane_compare --write");
  std::getline(in >> std::ws, other.built);
  while (in >> word) {
    std::string seconds;  // text: streams cannot read the hexadecimal floats they write
    Figures& figures = other.figures[word];
    in >> seconds;
    figures.seconds = std::strtod(seconds.c_str(), nullptr);
    for (std::uint64_t& part : figures.hashes) in >> part;
    if (!in) throw std::runtime_error(file + " ends in the middle of a line");
  }
  return other;
}

// "yes", or the position of the first difference.
std::string same_bits(const Figures& a, const Figures& b) {
  for (std::size_t i = 0; i < parts; ++i) {
    if (a.hashes[i] != b.hashes[i]) return "NO, part " + std::to_string(i + 1) + " of " + std::to_string(parts);
  }
  return "yes";
}

void print_row(const std::string& name, const std::vector<std::string>& cells, std::string_view verdict) {
  constexpr int widths[] = {12, 8, 12, 12, 8, 10};
  std::string line = pad_right(name, 22);
  for (std::size_t i = 0; i < cells.size(); ++i) line += pad_left(cells[i], widths[i]);
  bench::status("");
  std::printf("%s   %.*s\n", line.c_str(), static_cast<int>(verdict.size()), verdict.data());
  std::fflush(stdout);
}

std::string microseconds(const Figures& figures) { return fixed(figures.seconds * 1e6, 1); }

std::string rate(const bench::Case& which, const Figures& figures) {
  return bench::number(which.amount / figures.seconds * 1e-9);
}

bool compare_case(const bench::Case& which, const Other& other, const std::vector<std::string_view>& isas) {
  const auto found = other.figures.find(which.name());
  if (found == other.figures.end()) throw std::runtime_error("the file says nothing of " + which.name());
  const Figures& theirs = found->second;
  const bench::Work work = which.prepare();
  bool same = true;
  for (const std::string_view isa : isas) {
    bench::status(which.name());
    headlane::set_isa(isa);
    const Figures ours = measure(work);
    const std::string verdict = same_bits(ours, theirs);
    same &= verdict == "yes";
    const bool first = isa == isas.front();  // the other build's figures are printed once
    print_row(first ? bench::with_times(which.name()) : "",
              {first ? microseconds(theirs) : "", first ? rate(which, theirs) : "", std::string(isa),
               microseconds(ours), rate(which, ours), fixed(theirs.seconds / ours.seconds, 1) + "×"},
              verdict);
  }
  return same;
}

bool compare(const std::string& file) {
  const Other other = read(file);
  const std::vector<std::string_view> isas = headlane::available_isas();
  std::printf("%s, 1 thread; medians. GFLOP/s; softmax: 10⁹ elements/s; decode: GB/s of keys and values.\n",
              bench::cpu_name().c_str());
  std::printf("Left: the %s. Right: this build with %s.\n\n", other.built.c_str(), bench::compiler().c_str());
  print_row("operation", {"µs", "rate", "isa", "µs", "rate", "speed-up"}, "same bits");
  bool same = true;
  for (const bench::Case& which : all_cases()) same &= compare_case(which, other, isas);
  std::puts(same ? "\nThe same bits in every output." : "\nThe outputs differ.");
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string option = argc == 3 ? argv[1] : "";
    headlane::set_num_threads(1);
    if (option == "--write") return write(argv[2]), 0;
    if (option == "--against") return compare(argv[2]) ? 0 : 1;
    std::fputs("usage: headlane_compare --write FILE | --against FILE\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headlane_compare: %s\n", error.what());
  }
  return 2;
}
