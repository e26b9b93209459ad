// RowProgram: operations on rows that follow each other, as one call: nothing of Python is between
// them.
#pragma once

#include "rows/operation.hpp"

#include <vector>

namespace headlane::python {

/// It does not change once it runs: any number of threads may run it at the same time.
class RowProgram {
 public:
  explicit RowProgram(Place inputs) : inputs_(inputs) {}

  /// Adds an operation, and returns the number of its result. The program keeps its matrices.
  Place add(const Call& call, Operation operation, const std::vector<nb::handle>& matrices = {});

  /// Makes the result of an operation one of those that a run returns, in the order of these calls.
  void add_output(const Call& call, Place value) {
    call.require(value >= inputs_ && value < end(), "value ", value, " is not the result of an operation");
    for (const Place output : outputs_) call.require(output != value, "value ", value, " is an output already");
    outputs_.push_back(value);
  }

  /// values [..., width], [batch, length, width] for attention and rotary: dense. vectors: of any
  /// floating-point type, or None; tables [batch or 1, length, head_dim]; weights of convolutions
  /// [channels, width]. attentions: for each of them (mask, causal, scale, options, memory);
  /// memory: (keys, values, used) with a cache, which is only read if nothing is appended, else
  /// None. states: for each operation that has one, its state, which is read before the first token
  /// and written after the last one, or None: of convolutions [batch, channels, width] of the type
  /// of the values, of the delta rule [batch, heads, key_dim, value_dim] of float32, of Mamba-2
  /// [batch, heads, head_dim, state_size] of float32. Returns the outputs; None, and nothing is
  /// written, if values differ in type or rows, or a size is not the one that an operation needs.
  [[nodiscard]] nb::object run(const nb::list& values, const nb::list& vectors, const nb::list& attentions,
                               const nb::list& states, nb::handle num_threads) const;

 private:
  [[nodiscard]] Place end() const { return inputs_ + static_cast<Place>(operations_.size()); }
  /// Whether operations read all rows of a sequence.
  [[nodiscard]] bool has_sequences() const { return attentions_ + states_ > 0; }
  [[nodiscard]] std::vector<Index> widths_of(const Arrays& values, const Arrays& vectors) const;

  Place inputs_, vectors_ = 0, attentions_ = 0, states_ = 0;
  std::vector<Operation> operations_;
  std::vector<Place> outputs_;
  std::vector<nb::object> matrices_;
};

}  // namespace headlane::python
