#pragma once

#include <span>

#include "operators/pointwise.h"

namespace opwright {

class Inference;

/// Which element of a further input a fused program takes for an element of the output.
enum class FusedPlace : int64_t {
  kScalar = 0,    ///< the only one
  kChannel = 1,   ///< that of its channel: axis 1 of a convolution, the last one of a product
  kElement = 2,   ///< that at its place; the shapes are the same
  kRepeated = 3,  ///< the same, but for outer axes, which the input repeats along
  kProduct = 4    ///< the input is a matrix: the sum of the product with it; of a RowProduct
};

/// Pointwise operations that a convolution or product applies to its sums, with their bias, before
/// they are stored. The sum is input 0 of the program; the others are the operator's last inputs.
struct FusedProgram {
  PointwiseParams program;             ///< with one result; without code there is none
  Ints places;                         ///< FusedPlace of each input but the sum
  DataType result = DataType::kFLOAT;  ///< what the result is stored as
  bool present() const { return !program.code.empty(); }
  /// Whether the operator, which has `count` inputs, may write its result over that input.
  bool may_overwrite(int input, int count) const {
    const int place = input - (count - inputs());
    return place >= 0 && places[place] == static_cast<int64_t>(FusedPlace::kElement);
  }
  /// How many of the operator's inputs belong to it.
  int inputs() const { return static_cast<int>(places.size()); }
  FusedProgram without_scales() const {
    return present() ? FusedProgram{program.without_scales(), places, result} : *this;
  }
  template <class V>
  void visit(V& v) {
    v.internal("fused_code", program.code), v.internal("fused_immediates", program.immediates);
    v.internal("fused_results", program.results), v.internal("fused_places", places);
    v.internal("fused_type", result);
  }
  /// Throws Error unless the program fits an output of that shape, whose channels are axis
  /// `channel_axis`, the type of the sums and the operator's last inputs. `matrix`: the input that
  /// those of kProduct lie like; -1: there are none.
  void check(const Inference& inference, DataType sums, std::span<const Expr> shape,
             int channel_axis, int matrix = -1) const;
};

/// Where elements of an input of shape `dims` are for an output of shape `shape`; -1 where it is
/// none of FusedPlace, or where extents that are open may make it another.
int64_t fused_place(std::span<const Expr> dims, std::span<const Expr> shape, int channel_axis);

}  // namespace opwright
