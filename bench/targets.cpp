#include "targets.hpp"

#include "text.hpp"

#include <cstdio>

namespace bench {

namespace {

struct Target {
  std::string_view case_name;
  double share;       // of the FMA peak, or of the speed of a copy
  bool fastest_only;  // otherwise for every vector instruction set, each against its own peak
  std::string_view text;
};

constexpr Target shares[] = {
    {"gemm/512x512x512", 0.88, false, "GEMM 512×512×512: share of the FMA peak"},
    {"attention/512", 0.78, false, "attention, L = 512: share of the FMA peak"},
    {"attention/2048", 0.82, false, "attention, L = 2048: share of the FMA peak"},
    {"causal/2048", 0.76, false, "causal attention, L = 2048: useful work, share of the FMA peak"},
    {"attention/16", 0.35, true, "attention, L = 16: share of the FMA peak"},
    {"softmax/4096x512", 0.40, true, "softmax 4096×512: share of the speed of a copy"},
};
constexpr double scalar_gemm_share = 0.60;
constexpr double thread_gain = 1.9;  // at L = 2048
// Two equal times differ by this much on a shared machine even as medians.
constexpr double noise = 0.03;

bool print_check(const std::string& text, std::optional<double> value, double bound, bool as_percent) {
  const auto show = [&](double x) { return as_percent ? fixed(100 * x, 1) + "%" : fixed(x, 2) + "×"; };
  const bool holds = value && *value >= bound;
  std::printf("%s %s %s %s\n", pad_right(text, 80).c_str(), pad_left("≥ " + show(bound), 8).c_str(),
              pad_left(value ? show(*value) : "–", 8).c_str(), holds ? "  yes" : "  NO");
  return holds;
}

std::optional<double> gain(const Results& results, const std::string& case_name, const std::string& isa, int threads) {
  const auto one = results.rate(figure_name(case_name, isa, 1));
  const auto all = results.rate(figure_name(case_name, isa, threads));
  if (!one || !all) return {};
  return *all / *one;
}

}  // namespace

bool print_targets(const Results& results, const std::vector<Case>& cases, const std::vector<std::string>& isas,
                   int all_threads) {
  bool good = true;
  std::printf(
      "\nTargets, 1 thread; medians                                                           target  measured\n");
  for (const std::string& isa : isas) {
    for (const Target& target : shares) {
      if (target.fastest_only && isa != isas.front()) continue;
      const auto share = results.share(figure_name(std::string(target.case_name), isa, 1));
      good &= print_check(isa + ": " + std::string(target.text), share, target.share, true);
    }
  }
  good &= print_check("scalar: GEMM 512×512×512: share of the FMA peak",
                      results.share(figure_name("gemm/512x512x512", "scalar", 1)), scalar_gemm_share, true);
  if (all_threads == 1) return good;

  const std::string threads = plural(all_threads, "thread");
  if (all_threads == 2) {
    good &= print_check("2 threads against 1: attention, L = 2048", gain(results, "attention/2048", isas.front(), 2),
                        thread_gain, false);
  }
  bool never_slower = true;
  for (const Case& which : cases) {
    const auto value = gain(results, which.name(), isas.front(), all_threads);
    if (!value || *value >= 1 - noise) continue;
    never_slower = false;
    print_check(threads + " against 1: " + which.name(), value, 1, false);
  }
  std::printf("%s never slower than 1 (%s for noise)%s\n", threads.c_str(), percent(noise).c_str(),
              never_slower ? ": yes" : ": NO, see above");
  return good && never_slower;
}

}  // namespace bench
