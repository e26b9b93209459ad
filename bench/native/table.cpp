#include "table.hpp"

#include "cases.hpp"
#include "text.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace bench {

namespace {

constexpr int size_columns = 18;
constexpr int naive_columns = 7;
constexpr int cell_columns = 12;
constexpr int speedup_columns = 8;

double median(std::vector<double> values) {
  const auto middle = static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  const double upper = values[static_cast<std::size_t>(middle)];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

int columns_of(const std::string& kind) { return kind == "naive" ? naive_columns : cell_columns; }

void print(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  status("");
  std::puts(text.c_str());
  std::fflush(stdout);
}

}  // namespace

std::string figure_name(const std::string& case_name, std::string_view kind, int threads) {
  return case_name + "/" + std::string(kind) + "/threads:" + std::to_string(threads);
}

void Results::add(const std::string& name, double rate, double limit) {
  samples_[name].rates.push_back(rate);
  samples_[name].shares.push_back(limit > 0 ? rate / limit : 0);
}

std::optional<double> Results::rate(const std::string& name) const {
  const auto found = samples_.find(name);
  if (found == samples_.end()) return {};
  return median(found->second.rates);
}

std::optional<double> Results::share(const std::string& name) const {
  const auto found = samples_.find(name);
  if (found == samples_.end()) return {};
  return median(found->second.shares);
}

TableReporter::TableReporter(std::vector<std::string> kinds, std::vector<int> threads)
    : kinds_(std::move(kinds)), threads_(std::move(threads)) {}

bool TableReporter::ReportContext(const Context&) { return true; }

void TableReporter::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    const auto rate = run.counters.find("rate");
    const auto limit = run.counters.find("limit");
    if (run.run_type != Run::RT_Iteration || rate == run.counters.end() || limit == run.counters.end()) continue;
    const std::string& name = run.run_name.function_name;
    const std::string case_name = name.substr(0, name.find('/', name.find('/') + 1));
    if (case_name != case_name_) {
      print_line();
      case_name_ = case_name;
    }
    results_.add(name, rate->second, limit->second);
  }
}

void TableReporter::Finalize() {
  print_line();
  case_name_.clear();
  if (left_out_) print("\n–: not run; the textbook loops would take too long, and there are none of layers.");
}

void TableReporter::print_heading(const std::string& op) {
  for (const Section& section : sections) {
    if (section.op != op) continue;
    print("");
    print(std::string(section.title));
  }
  std::string threads_line(size_columns, ' ');
  std::string kinds_line = pad_right("size", size_columns);
  for (const int threads : threads_) {
    std::string kinds;
    for (const std::string& kind : kinds_) kinds += pad_left(kind, columns_of(kind));
    kinds += pad_left("speed-up", speedup_columns + 1) + "  ";
    threads_line += pad_right(pad_left(plural(threads, "thread"), naive_columns + cell_columns), width(kinds));
    kinds_line += kinds;
  }
  print(threads_line);
  print(kinds_line);
}

void TableReporter::print_line() {
  if (case_name_.empty()) return;
  const std::size_t slash = case_name_.find('/');
  const std::string op = case_name_.substr(0, slash);
  if (op != op_) print_heading(op);
  op_ = op;
  std::string line = pad_right(with_times(case_name_.substr(slash + 1)), size_columns);
  for (const int threads : threads_) line += group(threads);
  print(line);
}

// The cells of one number of threads: the figures, and the speed-up of the best over scalar code.
std::string TableReporter::group(int threads) {
  std::string text;
  double best = 0;
  for (const std::string& kind : kinds_) {
    const std::string name = figure_name(case_name_, kind, threads);
    const auto rate = results_.rate(name);
    std::string cell = "–";
    if (rate) cell = number(*rate * 1e-9);
    if (rate && kind != "naive") {
      if (const auto share = results_.share(name)) cell += pad_left(percent(*share), 5);
      best = std::max(best, *rate);
    }
    left_out_ = left_out_ || !rate;
    text += pad_left(cell, columns_of(kind));
  }
  const auto scalar = results_.rate(figure_name(case_name_, "scalar", threads));
  return text + pad_left(scalar ? fixed(best / *scalar, 1) + "×" : "–", speedup_columns + 1) + "  ";
}

}  // namespace bench
