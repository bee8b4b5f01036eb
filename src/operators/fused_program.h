#pragma once

#include <span>

#include "operators/pointwise.h"

namespace opwright {

class Inference;

/// The element of a further input that a fused program reads for an element of the output.
enum class FusedPlace : int64_t {
  kScalar = 0,    ///< the only element
  kChannel = 1,   ///< the channel's element: axis 1 of a convolution, the last one of a product
  kElement = 2,   ///< the element at the same place; the shapes are equal
  kRepeated = 3,  ///< as kElement, but the input repeats along outer axes
  kProduct = 4    ///< the sum of the product with the input, a matrix; only in a RowProduct
};

/// Pointwise operations that a convolution or product applies to its sums, with their bias, before
/// they are stored. The sum is input 0 of the program. The program's other inputs are the
/// operator's last ones.
struct FusedProgram {
  PointwiseParams program;             ///< has one result; without code there is no program
  Ints places;                         ///< FusedPlace of each input except the sum
  DataType result = DataType::kFLOAT;  ///< type in which the result is stored
  bool present() const { return !program.code.empty(); }
  /// Whether the operator, which has `count` inputs, may write its result over that input.
  bool may_overwrite(int input, int count) const {
    const int place = input - (count - inputs());
    return place >= 0 && places[place] == static_cast<int64_t>(FusedPlace::kElement);
  }
  /// Number of the operator's inputs that belong to the program.
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
  /// `channel_axis`, the type of the sums and the operator's last inputs. `matrix`: the input whose
  /// layout kProduct inputs share; -1: there are none.
  void check(const Inference& inference, DataType sums, std::span<const Expr> shape,
             int channel_axis, int matrix = -1) const;
};

/// The FusedPlace of an input of shape `dims` for an output of shape `shape`. Returns -1 where
/// there is none, or where open extents may change it.
int64_t fused_place(std::span<const Expr> dims, std::span<const Expr> shape, int channel_axis);

}  // namespace opwright
