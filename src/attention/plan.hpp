// How attention is cut into tasks, what is packed, and the memory that this takes.
#pragma once

#include "attention/problem.hpp"
#include "kernels/table.hpp"

namespace headlane::internal {

/// Depends on shapes and options, and on the starts of a ragged batch: not on other data, so that a plan holds for every call.
struct AttentionCut {
  enum class Way {
    by_head,  // a task is a kv head with all its queries, and packs keys and values for itself
    by_rows,  // all threads pack some kv heads, then share their query rows
    in_place  // nothing is packed: a cache, or few rows; tasks may share the keys of a row
  };
  Way way;
  Index longest;                 // keys that a query may see
  Index blocks;                  // of keys
  Index value_width;             // value_dim, rounded up to whole panels
  Index key_block, value_block;  // floats of a packed block; value_block is 0 if values are read where they stand
  bool heads_together;           // one query each: the query heads of a kv head are the rows of a tile
  Index rows_of_task, parts;     // so many rows at a time, parts to a head
  Index key_parts;               // tasks that share the keys of a row
  Index at_once;                 // kv heads that are packed at a time
  Index tasks;
  bool fetches;  // tasks of heads fetch the next one into the L2

  explicit AttentionCut(const AttentionProblem& p);

  /// Floats of all packed blocks of a kv head.
  [[nodiscard]] Index packed() const { return blocks * (key_block + value_block); }
  /// Of the result of rows_of_task rows with one block of keys: maxima, sums, values.
  [[nodiscard]] Index part() const { return rows_of_task * (value_width + 2); }
};

/// Where a thread works.
struct AttentionBuffers {
  float *q, *scores, *state, *per_row, *distances, *turned, *packed;
};

/// The memory of a call: the caller's workspace, or what is kept per thread.
class AttentionMemory {
 public:
  AttentionMemory(const AttentionProblem& p, const AttentionCut& cut);
  /// Throws std::invalid_argument if the caller's workspace is too small.
  void open(const char* function);
  /// What all threads share; null if that is nothing.
  [[nodiscard]] float* shared() const { return shared_; }
  [[nodiscard]] AttentionBuffers of_thread(int thread) const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  const AttentionProblem& p_;
  Index q_, scores_, state_, per_row_, distances_, turned_, packed_, shared_floats_;
  float *shared_ = nullptr, *given_ = nullptr;
  [[nodiscard]] Index thread_floats() const;
};

}  // namespace headlane::internal
