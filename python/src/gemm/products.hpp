// What gemm, matmul, linear and gemm_gated share: the right operand, and what a product ends with.
#pragma once

#include "core/call.hpp"

#include <headlane/gemm_batch.hpp>

namespace headlane::python {

/// Throws ValueError, with a list, for a name that no activation has; TypeError for what is no name. None is none.
Activation activation_named(const char* function, nb::handle given);

/// Throws ValueError for another rank, TypeError for another type.
void require_matrix(const char* function, const Array& array);

/// Throws ValueError without an axis, TypeError for another type.
void require_rows(const char* function, const Array& array);

template <class T>
View<T, 2> matrix_of(const Array& x) {
  return {x.floats(), {x.size(0), x.size(1)}, {x.stride(0), x.stride(1)}};
}

inline View<const float, 1> vector_of(const Array& x) { return {x.floats(), {x.size(0)}, {x.stride(0)}}; }

/// Null if the object is none. Throws TypeError for one whose __init__() was not called.
const PackedMatrix* packed_matrix_of(const char* function, const char* name, nb::handle object);

/// The right operand: a PackedMatrix, which the caller's reference keeps, or a matrix that is read where it stands.
class Right {
 public:
  Right(const char* function, const char* name, nb::handle object);

  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] Index rows() const { return packed_ != nullptr ? packed_->rows() : array_->size(0); }
  [[nodiscard]] Index columns() const { return packed_ != nullptr ? packed_->columns() : array_->size(1); }
  /// One of the two is null.
  [[nodiscard]] const PackedMatrix* packed() const { return packed_; }
  [[nodiscard]] const Array* array() const { return array_ ? &*array_ : nullptr; }

  void multiply(const View<const float, 2>& a, const View<float, 2>& c, const GemmOptions& options) const {
    if (packed_ != nullptr) gemm(a, *packed_, c, options);
    else gemm(a, matrix_of<const float>(*array_), c, options);
  }

  /// Each matrix of a batch with this one.
  void multiply(const View<const float, 3>& a, const View<float, 3>& c, const GemmBatchOptions& options) const {
    if (packed_ != nullptr) gemm_batch(a, *packed_, c, options);
    else gemm_batch(a, matrix_of<const float>(*array_).broadcast(0, a.size(0)), c, options);
  }

 private:
  const char* name_;
  const PackedMatrix* packed_;
  std::optional<Array> array_;
};

/// Throws ValueError unless `left` has as many columns as `right` has rows.
void require_fitting(const char* function, const Array& left, const Right& right);

/// Throws ValueError unless it is a vector as long as the last axis of the result.
void require_bias(const char* function, const Array& bias, const std::vector<Index>& result);

/// What a caller gave for an Ending.
struct EndingArguments {
  nb::handle bias = nb::none(), residual = nb::none(), activation = nb::none();
};

/// activation(product + bias) + residual.
class Ending {
 public:
  Ending(const char* function, const EndingArguments& given);

  /// Throws ValueError unless bias and residual fit a result of this shape, which has an axis.
  void check(const std::vector<Index>& shape) const;

  [[nodiscard]] const Array* bias() const { return bias_ ? &*bias_ : nullptr; }
  [[nodiscard]] const Array* residual() const { return residual_ ? &*residual_ : nullptr; }
  /// With bias and activation; the residual is added by those who know its rows.
  [[nodiscard]] GemmOptions options() const;

 private:
  const char* function_;
  std::optional<Array> bias_, residual_;
  Activation activation_;
};

/// left [..., k] times right [k, n], with the names that messages give them.
nb::object rows_times(const char* function, const char* left, nb::handle a, const char* right, nb::handle b,
                      nb::handle out, const EndingArguments& given, nb::handle num_threads);

}  // namespace headlane::python
