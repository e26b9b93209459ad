// Shared by gemm, matmul, linear and gemm_gated: the right operand and the epilogue.
#pragma once

#include "core/result.hpp"

#include <headlane/gemm_batch.hpp>

namespace headlane::python {

/// The activation of this name; none for None. Throws ValueError for another name, TypeError for
/// another type.
Activation activation_named(const Call& call, nb::handle given);

/// Throws ValueError unless it is a matrix.
void require_matrix(const Array& array);

/// Throws ValueError unless it has an axis.
void require_axis(const Array& array);

/// The right operand: a PackedMatrix, which the caller keeps alive, or a matrix, read in place.
class Right {
 public:
  Right(const Call& call, const char* name, nb::handle object);

  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] Index rows() const { return packed_ != nullptr ? packed_->rows() : array_->size(0); }
  [[nodiscard]] Index columns() const { return packed_ != nullptr ? packed_->columns() : array_->size(1); }
  /// One of the two is null.
  [[nodiscard]] const PackedMatrix* packed() const { return packed_; }
  [[nodiscard]] const Array* array() const { return pointer_to(array_); }

  void multiply(const View<const float, 2>& a, const View<float, 2>& c, const GemmOptions& options) const {
    if (packed_ != nullptr) gemm(a, *packed_, c, options);
    else gemm(a, view_of<const float, 2>(*array_), c, options);
  }

  /// Multiplies each matrix of a batch by this one.
  void multiply(const View<const float, 3>& a, const View<float, 3>& c, const GemmBatchOptions& options) const {
    if (packed_ != nullptr) gemm_batch(a, *packed_, c, options);
    else gemm_batch(a, view_of<const float, 2>(*array_).broadcast(0, a.size(0)), c, options);
  }

 private:
  const char* name_;
  const PackedMatrix* packed_;
  std::optional<Array> array_;
};

/// Throws ValueError unless `left` has as many columns as `right` has rows.
void require_fitting(const Array& left, const Right& right);

/// Throws ValueError unless activations of this type can be multiplied by `packed`, which is null
/// for a matrix that is not packed.
void require_stored_for(const Call& call, DType activations, const char* name, const PackedMatrix* packed);

/// Throws ValueError unless it is a vector as long as the last axis of the result.
void require_bias(const Array& bias, const std::vector<Index>& result);

/// The arguments of an Epilogue.
struct EpilogueArguments {
  nb::handle bias = nb::none(), residual = nb::none(), activation = nb::none();
};

/// activation(product + bias) + residual.
class Epilogue {
 public:
  Epilogue(const Call& call, const EpilogueArguments& given);

  /// Throws ValueError unless bias and residual fit a result of this shape, which has an axis.
  void check(const std::vector<Index>& shape) const;

  [[nodiscard]] const Array* bias() const { return pointer_to(bias_); }
  [[nodiscard]] const Array* residual() const { return pointer_to(residual_); }
  /// Bias and activation. The caller adds the residual: it knows its rows.
  [[nodiscard]] GemmOptions options() const;

 private:
  std::optional<Array> bias_, residual_;
  Activation activation_;
};

/// a [..., k] times b [k, n]. Messages name them `left` and `right`.
nb::object rows_times(const Call& call, const char* left, nb::handle a, const char* right, nb::handle b, nb::handle out,
                      const EpilogueArguments& given, nb::handle activations, nb::handle num_threads);

}  // namespace headlane::python
