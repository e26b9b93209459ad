#include "targets.hpp"

#include "text.hpp"

#include <cstdio>
#include <utility>

namespace bench {

namespace {

struct Target {
  std::string_view case_name;
  double share;  // of the FMA peak, or of a copy's speed
  std::string_view text;
  bool fastest_only;        // else for every vector instruction set, each against its own peak
  bool times_copy = false;  // printed as the ratio of its time to a copy's, 1 / share
};

constexpr Target shares[] = {
    {"gemm/512x512x512", 0.88, "GEMM 512×512×512: share of the FMA peak", false},
    {"attention/512", 0.78, "attention, L = 512: share of the FMA peak", false},
    {"attention/2048", 0.82, "attention, L = 2048: share of the FMA peak", false},
    {"causal/2048", 0.76, "causal attention, L = 2048: useful work, share of the FMA peak", false},
    {"attention/16", 0.35, "attention, L = 16: share of the FMA peak", true},
    {"softmax/4096x512", 0.40, "softmax 4096×512: share of the speed of a copy", true},
    {"norm/layer-2048x512", 1 / 1.4, "layer norm 2048×512: time against a copy", true, true},
    {"norm/rms-2048x512", 1 / 1.4, "RMS norm 2048×512: time against a copy", true, true},
    {"activation/gelu-2048x512", 1 / 2.0, "GELU 2048×512: time against a copy", true, true},
    {"position/sinus-2048x512", 1 / 1.5, "sinusoidal encoding 2048×512: time against a copy", true, true},
    {"position/rotary-8x2048x64", 1 / 1.5, "rotary embedding 8×2048×64: time against a copy", true, true},
    {"attention_layer/128", 0.84, "attention layer, L = 128: share of the FMA peak", true},
    {"attention_layer/512", 0.88, "attention layer, L = 512: share of the FMA peak", true},
    {"attention_layer/16x128", 0.88, "attention layer, 16 × L = 128: share of the FMA peak", true},
    {"encoder_layer/128", 0.84, "encoder layer, L = 128: share of the FMA peak", true},
    {"encoder_layer/512", 0.88, "encoder layer, L = 512: share of the FMA peak", true},
    {"encoder_layer/16x128", 0.88, "encoder layer, 16 × L = 128: share of the FMA peak", true},
};
constexpr double scalar_gemm_share = 0.60;
constexpr double thread_gain = 1.9;
constexpr std::pair<std::string_view, std::string_view> gains[] = {
    {"attention/2048", "attention, L = 2048"},
    {"attention_layer/128", "attention layer, L = 128"},
    {"attention_layer/512", "attention layer, L = 512"},
    {"attention_layer/16x128", "attention layer, 16 × L = 128"},
    {"encoder_layer/128", "encoder layer, L = 128"},
    {"encoder_layer/512", "encoder layer, L = 512"},
    {"encoder_layer/16x128", "encoder layer, 16 × L = 128"},
};
// Medians of equal times differ by this much on a shared machine.
constexpr double noise = 0.03;

// A figure is printed as a share, a factor, or the reciprocal of a share.
enum class Show { percent, times, inverse };

bool print_check(const std::string& text, std::optional<double> value, double bound, Show as) {
  const auto show = [&](double x) {
    return as == Show::percent ? fixed(100 * x, 1) + "%" : fixed(as == Show::inverse ? 1 / x : x, 2) + "×";
  };
  const bool holds = value && *value >= bound;
  const std::string sign = as == Show::inverse ? "≤ " : "≥ ";
  std::printf("%s %s %s %s\n", pad_right(text, 80).c_str(), pad_left(sign + show(bound), 8).c_str(),
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
      good &= print_check(isa + ": " + std::string(target.text), share, target.share,
                          target.times_copy ? Show::inverse : Show::percent);
    }
  }
  good &= print_check("scalar: GEMM 512×512×512: share of the FMA peak",
                      results.share(figure_name("gemm/512x512x512", "scalar", 1)), scalar_gemm_share, Show::percent);
  if (all_threads == 1) return good;

  const std::string threads = plural(all_threads, "thread");
  if (all_threads == 2) {
    for (const auto& [name, text] : gains) {
      good &= print_check("2 threads against 1: " + std::string(text),
                          gain(results, std::string(name), isas.front(), 2), thread_gain, Show::times);
    }
  }
  bool never_slower = true;
  for (const Case& which : cases) {
    const auto value = gain(results, which.name(), isas.front(), all_threads);
    if (!value || *value >= 1 - noise) continue;
    never_slower = false;
    print_check(threads + " against 1: " + which.name(), value, 1, Show::times);
  }
  std::printf("%s never slower than 1 (%s for noise)%s\n", threads.c_str(), percent(noise).c_str(),
              never_slower ? ": yes" : ": NO, see above");
  return good && never_slower;
}

}  // namespace bench
