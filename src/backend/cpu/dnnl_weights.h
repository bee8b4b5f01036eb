#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <vector>

#include "backend/cpu/dnnl_program.h"
#include "network/operator.h"

namespace opwright {

/// An input that holds weights. Constant weights are reordered once into the primitive's layout, or
/// the plan has them in it. Other weights are reordered in each run.
class DnnlWeights {
 public:
  /// `plain` describes the elements of the port in LINEAR order for the primitive. Extents and
  /// strides may differ from the port's shape, the bytes do not.
  DnnlWeights(const KernelArgs& args, int input, const dnnl::memory::desc& plain);

  bool is_constant() const { return is_constant_; }
  /// The layout of the packed weights, once there are any. Primitives for other shapes should
  /// accept it.
  const std::optional<dnnl::memory::desc>& packed_desc() const { return packed_desc_; }
  /// The weights in the wanted layout. `plain` corresponds to the constructor's argument, for the
  /// shapes of this program.
  Operand operand(DnnlProgram& program, const dnnl::memory::desc& plain,
                  const dnnl::memory::desc& wanted);
  /// The weights for Kernel::packed().
  std::vector<PackedInput> packed() const;

 private:
  Blob pack(const dnnl::memory::desc& wanted) const;

  int input_;
  dnnl::memory::desc plain_;
  bool is_constant_;
  Blob constant_;       ///< in the layout `plain_`; empty once packed and when the plan has the
                        ///< packed form
  PackedInput stored_;  ///< the plan's packed form
  std::optional<dnnl::memory::desc> packed_desc_;
  Blob packed_;
};

/// A constant input in row-major order of its extents for the primitive, also where the plan has it
/// packed. Empty where the input is not constant.
Blob plain_constant(const KernelArgs& args, int input, const dnnl::memory::dims& extents,
                    dnnl::memory::data_type type);

/// A one-dimensional constant, such as a bias, as FP32; empty when the port is not constant.
Blob constant_as_float(const PortDesc& port);

}  // namespace opwright
