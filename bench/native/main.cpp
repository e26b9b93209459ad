// headlane_bench: checks the worked example, prints the machine and its limits, then times the
// operations with Google Benchmark and prints a table for each.
#include "../examples/worked_examples.hpp"
#include "buffer.hpp"
#include "machine.hpp"
#include "runner.hpp"
#include "table.hpp"
#include "targets.hpp"
#include "text.hpp"

#include <benchmark/benchmark.h>
#include <headlane/runtime.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <stdexcept>

namespace {

using bench::Plan;

struct Options {
  bool quick = false;
  bool targets = false;
  int threads = headlane::num_threads();
  std::vector<std::string> isas;  // fastest first
};

void print_help() {
  std::puts(
      "headlane_bench [options]\n"
      "  --quick        fewer sizes and repetitions: under a minute\n"
      "  --targets      check the promised speeds; the exit code tells whether they hold\n"
      "  --threads=N    what \"all threads\" is\n"
      "  --isa=A,B      only these instruction sets\n"
      "and Google Benchmark's own, of which these are of use:\n"
      "  --benchmark_filter=REGEX    names are like gemm/512x512x512/avx2/threads:1\n"
      "  --benchmark_out=FILE        every repetition, and the limit measured beside it, as JSON");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Every available instruction set; "portable", for CPUs without fma, only if it is the only one.
std::vector<std::string> default_isas() {
  std::vector<std::string> isas;
  for (const std::string_view isa : headlane::available_isas()) {
    if (isa != "portable" || isas.empty()) isas.emplace_back(isa);
  }
  return isas;
}

// In the library's order, fastest first, whatever the order of the names.
std::vector<std::string> chosen_isas(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    headlane::set_isa(name);  // throws for an unknown name, and lists the known ones
  std::vector<std::string> isas;
  for (const std::string_view isa : headlane::available_isas()) {
    if (std::find(names.begin(), names.end(), isa) != names.end()) isas.emplace_back(isa);
  }
  return isas;
}

Options parse(int argc, char** argv) {
  Options options;
  options.isas = default_isas();
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--targets") {
      options.targets = true;
    } else if (argument.starts_with("--threads=")) {
      options.threads = std::stoi(argument.substr(10));
    } else if (argument.starts_with("--isa=")) {
      options.isas = chosen_isas(split(argument.substr(6)));
    } else {
      throw std::invalid_argument("unknown option " + argument + "; --help lists them");
    }
  }
  if (options.threads < 1) throw std::invalid_argument("--threads must be at least 1");
  return options;
}

std::vector<int> thread_counts(const Options& options) {
  return options.threads == 1 ? std::vector<int>{1} : std::vector<int>{1, options.threads};
}

// A figure for each number of threads, as in "1 / 2".
template <class Measure>
std::string each_count(const Options& options, const Measure& measure) {
  std::string text;
  for (const int threads : thread_counts(options)) {
    text += (text.empty() ? "" : " / ") + bench::number(measure(threads) * 1e-9);
  }
  return text;
}

std::string memory_line(const Options& options) {
  constexpr headlane::Index mib = 1 << 18;  // floats in a MiB
  const bench::Buffer large(256 * mib);
  const auto read = [&](std::size_t bytes) {
    return each_count(options, [&](int threads) { return bench::read_rate(large.data(), bytes, threads); });
  };
  const auto read_l1 = [&](int threads) {
    return bench::read_rate(large.data(), (16u << 10) * static_cast<unsigned>(threads), threads);
  };
  const auto copy = [&](int threads) {
    const std::size_t half = large.bytes() / 2;
    return static_cast<double>(half) / bench::copy_seconds(large.data(), large.data() + 128 * mib, half, threads);
  };
  return "reading 256 MiB " + read(256u << 20) + ", 1 MiB " + read(1u << 20) + ", 16 KiB a thread " +
         each_count(options, read_l1) + "; copying 128 MiB " + each_count(options, copy);
}

void print_machine(const Options& options) {
  const auto show = [](const std::string& key, const std::string& label, const std::string& value) {
    std::cout << label << value << '\n';
    benchmark::AddCustomContext("headlane_" + key, value);
  };
  std::string isas;
  for (const std::string& isa : options.isas) isas += (isas.empty() ? "" : " ") + isa;
  std::string counts;
  for (const int threads : thread_counts(options)) counts += (counts.empty() ? "" : " / ") + std::to_string(threads);
  std::string peaks;
  for (const std::string& isa : options.isas) {
    peaks += (peaks.empty() ? "" : ", ") + isa + " " +
             each_count(options, [&](int threads) { return bench::fma_peak(isa, threads); });
  }
  std::cout << '\n';
  show("version", "headlane         ", std::string(headlane::version()));
  show("cpu", "CPU              ", bench::cpu_name() + ", " + bench::plural(bench::cores(), "core"));
  show("isas", "instruction sets ", isas);
  show("compiler", "compiler         ", bench::compiler() + ", xsimd " + bench::xsimd_version());
  show("threads", "threads          ", counts);
  show("peaks", "FMA peak         ", peaks + " GFLOP/s (binary32)");
  show("memory", "memory           ", memory_line(options) + " GB/s");
  std::cout << "\nMedians. Every share is of a limit measured right beside the figure. naive: the textbook loops.\n"
            << std::flush;
}

Plan make_plan(const Options& options) {
  const int usual = options.quick ? 3 : 5;
  Plan plan{.cases = {},
            .kinds = {options.isas.rbegin(), options.isas.rend()},
            .threads = thread_counts(options),
            .seconds = options.quick ? 0.01 : 0.04,
            .repetitions = options.targets ? 9 : usual};
  if (!options.targets) plan.kinds.insert(plan.kinds.begin(), "naive");
  for (const auto& cases :
       {bench::gemm_cases(), bench::softmax_cases(), bench::attention_cases(), bench::norm_cases(),
        bench::activation_cases(), bench::position_cases(), bench::recurrent_cases(), bench::layer_cases()}) {
    for (const bench::Case& which : cases) {
      if (which.quick || !options.quick) plan.cases.push_back(which);
    }
  }
  return plan;
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv, print_help);
  const Options options = parse(argc, argv);
  if (!worked::print_example_a(std::cout)) {
    std::cerr << "the worked example came out wrong\n";
    return 1;
  }
  print_machine(options);
  const Plan plan = make_plan(options);
  bench::register_benchmarks(plan);
  bench::TableReporter reporter(plan.kinds, plan.threads);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  bool good = !bench::anything_failed();
  if (options.targets) {
    std::vector<std::string> vector_isas = options.isas;
    std::erase_if(vector_isas, [](const std::string& isa) { return isa == "scalar" || isa == "portable"; });
    good &= bench::print_targets(reporter.results(), plan.cases, vector_isas, options.threads);
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "headlane_bench: " << error.what() << '\n';
    return 2;
  }
}
