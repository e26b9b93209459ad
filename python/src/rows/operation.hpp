// Operations on rows of values, and one run of them.
#pragma once

#include "core/array.hpp"

#include <headlane/activation.hpp>
#include <headlane/attention.hpp>
#include <headlane/packed_matrix.hpp>

#include <array>
#include <memory>
#include <optional>

namespace headlane::python {

/// The number of a value, of a vector or of the options of an attention.
using Place = int;
inline constexpr Place absent = -1;

/// Which numbers of a head are turned together, and what a table has for them.
enum class RotaryPairs {
  halves,                ///< i and half + i, with a number of the table each
  halves_backwards,      ///< likewise, by the negative angle
  neighbours,            ///< 2i and 2i + 1, likewise
  neighbours_by_pair,    ///< 2i and 2i + 1, with number i of the table for both
  neighbours_by_half,    ///< likewise, and the table has no other numbers
  neighbours_to_halves,  ///< as by pair; the results are i and half + i
};

/// Values are numbered: those that a run is given, then the results of the operations. So are
/// vectors, which a run is given: biases, weights of norms, and tables of cosines and sines.
struct Operation {
  enum class Kind {
    linear,      ///< activation(x · matrix + bias) + residual
    gated,       ///< activation(x · matrix + bias) · (x · up + second)
    norm,        ///< layer norm (centred) or RMS norm of x + residual, with weight `second` and bias; if
                 ///< head_dim is not 0, of each head of x
    columns,     ///< columns begin … end - 1 of x, or of each `group` of its columns if that is not 0
    activation,  ///< activation(x)
    scale,       ///< x · factor
    sum,         ///< x + residual
    product,     ///< x · residual; if head_dim is not 0, each head of x by one number of it
    weigh,       ///< each row of x times the factor of its position, which a table has
    join,        ///< each head of x, followed by that of residual, or by the only one that this has
    rotary,      ///< of each head of x the first numbers, as many as a table has: those · cosines +
                 ///< (their halves, exchanged, the first one negated) · sines; the others are x's;
                 ///< by RotaryPairs neighbours instead of halves
    attention,   ///< of the queries x to keys and values: all rows of a sequence; if kv_heads is
                 ///< not 0, these are appended to a cache unless they are absent, and x attends to
                 ///< all of the cache
    gated_norm,  ///< RMS norm of x, of each head if head_dim is not 0, with weight `second`, times
                 ///< activation(residual); if gate_first, the RMS norm of each head_dim numbers of
                 ///< x · activation(residual), with a weight of all columns
    convolve,    ///< activation(causal convolution of the rows of a sequence by `second`, + bias),
                 ///< with a state
    delta,       ///< the gated delta rule of queries x, keys and values, with a state: the gate of
                 ///< decays reads residual, and has a_log `second` and dt_bias `bias`
    scan,        ///< Mamba-2 with a state: x is C, keys are B, values its input; the step is
                 ///< softplus(residual + dt_bias) within limits, a_log is `second`, D is `third`
  };

  Kind kind;
  Place x;
  Place residual = absent, keys = absent, values = absent, beta = absent;
  // Vectors; of rotary the cosines and sines, of weigh the factors.
  Place bias = absent, second = absent, third = absent;
  const PackedMatrix *matrix = nullptr, *up = nullptr;
  Activation activation = Activation::none;
  DType activations = DType::float32;
  bool centred = false, gate_first = false;
  float eps = 0, factor = 1, min_step = 0, max_step = 0;  // the last two of scan
  Index heads = 0, head_dim = 0;
  Place attention = absent;  // the number of an attention, or of a state
  Index rotary_dim = 0;      // how many the tables have; 0: any number
  RotaryPairs pairs = RotaryPairs::halves;
  bool in_float32 = false;              // of rotary: rounded to the type once
  Index begin = 0, end = 0, group = 0;  // of columns; group: of residual's heads in join, too
  Index kv_heads = 0, value_dim = 0;    // with a cache or a state
  std::array<Index, 3> columns{};       // likewise: the first of queries, keys and values

  /// Not of all rows of a sequence.
  [[nodiscard]] bool is_of_rows() const { return kind != Kind::attention && !has_state(); }
  [[nodiscard]] bool has_state() const { return kind == Kind::convolve || is_linear_attention(); }
  [[nodiscard]] bool is_linear_attention() const { return kind == Kind::delta || kind == Kind::scan; }
  [[nodiscard]] bool has_tables() const { return kind == Kind::rotary || kind == Kind::weigh; }
  [[nodiscard]] bool has_cache() const { return kind == Kind::attention && kv_heads > 0; }
  /// The values that it reads; absent ones too.
  [[nodiscard]] std::array<Place, 5> inputs() const { return {x, residual, keys, values, beta}; }
};

/// The memory of a cache, [batch, heads, positions, dim], of whose positions the first `used` are
/// filled.
struct CacheMemory {
  CacheMemory(const Call& call, nb::handle keys_, nb::handle values_, Index used_)
      : keys(call, "keys", keys_, Floats(), Access::update),
        values(call, "values", values_, Floats(), Access::update),
        used(used_) {}

  Array keys, values;
  Index used;
};

/// The arguments of one attention operation.
struct AttentionArguments {
  AttentionOptions options;
  const CacheMemory* cache = nullptr;
};

/// Arrays of a call. Absent ones are None in Python.
using Arrays = std::unique_ptr<std::optional<Array>[]>;

}  // namespace headlane::python
