// merge: combines partial results of attention over disjoint keys.
#include <headlane/merge.hpp>

#include "attention/arguments.hpp"
#include "core/errors.hpp"
#include "core/functions.hpp"

#include <deque>

namespace headlane::python {
namespace {

/// The parts, borrowed: tuples (out, lse) or (out, max, sum).
class Parts {
 public:
  Parts(const Call& call, nb::handle parts) {
    if (!nb::hasattr(parts, "__iter__")) call.refuse_value("parts", parts, "a sequence of tuples");
    for (const nb::handle part : nb::borrow<nb::object>(parts)) add(call, nb::borrow<nb::object>(part));
    call.require(!parts_.empty(), "parts is empty");
    parts_[0].out->require(parts_[0].out->rank() >= 2, " has shape ", *parts_[0].out, ", the minimum is [length, dim]");
    for (const Part& part : parts_) check(part);
  }

  [[nodiscard]] Like like() const { return parts_[0].out->like(); }
  [[nodiscard]] std::vector<Index> shape() const { return parts_[0].out->shape(); }

  [[nodiscard]] std::vector<AttentionPart> at(const Batch& batch, const Batch::Position& at, Index heads) const {
    std::vector<AttentionPart> views;
    const bool has_heads = parts_[0].out->rank() >= 3;
    for (const Part& part : parts_) {
      const Array& out = *part.out;
      AttentionPart& view = views.emplace_back();
      view.out = view_at<float>(out, batch, at, heads, out.size(-2), out.size(-1));
      view.lse = values_of_rows(*part.lse, batch, at, has_heads);
      if (part.sum != nullptr) view.sum = values_of_rows(*part.sum, batch, at, has_heads);
    }
    return views;
  }

  [[nodiscard]] std::vector<const Array*> arrays() const {
    std::vector<const Array*> arrays;
    for (const Array& array : arrays_) arrays.push_back(&array);
    return arrays;
  }

 private:
  struct Part {
    const Array *out, *lse, *sum;
  };

  void add(const Call& call, const nb::object& part) {
    const std::string name = "parts[" + std::to_string(parts_.size()) + "]";
    const nb::object arrays = PySequence_Check(part.ptr()) != 0 ? elements_of(part) : nb::object();
    const std::size_t count = arrays.is_valid() ? nb::len(arrays) : 0;
    call.require(count == 2 || count == 3, name, " is neither (out, lse) nor (out, max, sum)");
    const auto array = [&](std::size_t i, const char* what) -> const Array* {
      if (i >= count) return nullptr;
      const std::string& own = names_.emplace_back(name + what);
      return &arrays_.emplace_back(call, own.c_str(), nb::object(arrays[i]), Element::float32);
    };
    parts_.push_back({array(0, ".out"), array(1, ".lse"), array(2, ".sum")});
  }

  void check(const Part& part) const {
    const std::vector<Index> wanted = shape(), rows(wanted.begin(), wanted.end() - 1);
    part.out->require(part.out->shape() == wanted, " has shape ", *part.out, ", parts[0].out has ", wanted);
    for (const Array* values : {part.lse, part.sum})
      if (values != nullptr)
        values->require(values->shape() == rows, " has shape ", *values, ", parts[0].out has ", wanted);
  }

  std::deque<std::string> names_;
  std::deque<Array> arrays_;  // a deque: its elements do not move
  std::vector<Part> parts_;
};

}  // namespace

nb::object merge_of(nb::handle parts, nb::handle sinks, nb::handle return_lse, nb::handle return_sum, nb::handle out,
                    nb::handle num_threads) {
  const Call call("merge");
  const Parts of(call, parts);
  const std::optional<Array> of_sinks = optional_array(call, "sinks", sinks, Element::float32);
  if (of_sinks) of_sinks->require(of_sinks->rank() == 1, " has shape ", *of_sinks, ", wanted [heads]");
  std::vector<Index> rows = of.shape();
  const Index columns = rows.back();
  rows.pop_back();
  const RowResults results(call, of.like(), out, rows, columns, call.flag("return_lse", return_lse),
                           call.flag("return_sum", return_sum));
  const Array& result = results.out();
  const bool has_heads = result.rank() >= 3;
  const Index heads = has_heads ? result.size(-3) : 1;
  Batch batch(3);
  batch.widen(result);
  if (batch.rank() > 1) {
    std::vector<const Array*> inputs = of.arrays();
    inputs.push_back(pointer_to(of_sinks));
    results.result().require_apart(inputs);
  }
  const int threads = call.threads(num_threads);
  const auto sink_of_head = of_sinks ? view_of<const float, 1>(*of_sinks) : View<const float, 1>{};
  call.compute([&] {
    batch.for_each(std::max(0, batch.rank() - 1), [&](const Batch::Position& at) {
      const MergeOptions options{.lse = results.lse_at(batch, at, has_heads),
                                 .sum = results.sum_at(batch, at, has_heads),
                                 .sinks = sink_of_head,
                                 .num_threads = threads};
      merge(of.at(batch, at, heads), view_at<float>(result, batch, at, heads, result.size(-2), columns), options);
    });
  });
  return results.object();
}

}  // namespace headlane::python
