// Collects Google Benchmark's results and prints them as tables, each line once its last figure is
// known.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// The name of a benchmark: gemm/512x512x512/avx2/threads:1.
std::string figure_name(const std::string& case_name, std::string_view kind, int threads);

class Results {
 public:
  void add(const std::string& name, double rate, double limit);
  /// Median over the repetitions, in units per second; empty if not measured.
  [[nodiscard]] std::optional<double> rate(const std::string& name) const;
  /// Median of the shares of the limits measured beside each repetition.
  [[nodiscard]] std::optional<double> share(const std::string& name) const;

 private:
  struct Samples {
    std::vector<double> rates, shares;
  };
  std::map<std::string, Samples> samples_;
};

class TableReporter : public benchmark::BenchmarkReporter {
 public:
  /// `kinds` are the columns, slowest first; `threads` the groups of columns.
  TableReporter(std::vector<std::string> kinds, std::vector<int> threads);

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

  [[nodiscard]] const Results& results() const { return results_; }

 private:
  void print_heading(const std::string& op);
  void print_line();
  [[nodiscard]] std::string group(int threads);

  std::vector<std::string> kinds_;
  std::vector<int> threads_;
  Results results_;
  std::string case_name_;  // of the current line
  std::string op_;         // of the current table
  bool left_out_ = false;  // a dash was printed
};

}  // namespace bench
