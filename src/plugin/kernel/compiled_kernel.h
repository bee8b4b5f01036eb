#pragma once

#include <string>
#include <vector>

#include "network/kernel_launch.h"
#include "network/operator.h"
#include "symbolic/expr.h"

namespace opwright {

struct OperatorLoadContext;

/// An argument between the inputs and the outputs of a compiled kernel.
struct KernelArgument {
  ArgumentType type = ArgumentType::kINT32;
  Expr value;           ///< over the symbols of KernelCode
  double constant = 0;  ///< floating types: added to the value
};

/// A condition on the inputs of a compiled kernel, checked before it runs.
struct KernelCheck {
  Expr condition;       ///< over the symbols of KernelCode; 0: it does not hold
  std::string message;  ///< one line, for the Error if it does not hold
};

/// A KernelLaunch::TensorMap whose expressions are not in a program yet.
struct KernelTensorMap {
  int input = 0;
  DataType type = DataType::kHALF;
  std::vector<Expr> extents, strides;
  std::vector<int32_t> box, steps;
  std::vector<Expr> lower, upper;
};

/// A compiled kernel and how to launch it. Expressions are over local symbols. First come the
/// extents of the operator's inputs, numbered input by input, axis by axis: input 0 of rank 4 has
/// symbols 0 to 3, input 1 starts at 4, absent inputs have none. Then come the elements of the
/// shape inputs in the order of `shape_inputs`.
struct KernelCode {
  std::string name;  ///< the exported symbol
  /// On the CPU: an ELF shared object that exports `void name(void** args, int64_t x, int64_t y,
  /// int64_t z)`. `host` is set, and `target` has the instruction set that the code needs
  /// ("x86-64 avx2 fma"). On other devices: code for the device's backend, with the target that
  /// its CodeFormat tells.
  CodeObject object;
  std::string layer_kind;  ///< kind of the built-in layer that it computes, "Pointwise", for the
                           ///< inspector; empty for a plugin
  Expr grid[3] = {1, 1, 1};
  Expr block[3] = {1, 1, 1};
  Expr shared_memory = 0;
  /// Whether it may begin while the previous kernel ends. Its code waits for the previous kernel
  /// before it reads or writes memory that other kernels use.
  bool begins_early = false;
  std::vector<KernelArgument> arguments;
  /// Bytes of each scratch buffer. The buffers' pointers follow the outputs, and are null for 0
  /// bytes. Only for GPUs.
  std::vector<Expr> scratch;
  std::vector<int> shape_inputs;  ///< inputs (INT32 or INT64, constant shape) whose values count
  std::vector<KernelCheck> checks;
  std::vector<KernelTensorMap> maps;  ///< of 128 bytes each, behind the scratch pointers
  /// The argument for each parameter of the kernel, as a number among inputs, arguments, outputs,
  /// scratch pointers and tensor maps. An argument may be taken several times or never. Empty: the
  /// parameters are these arguments in order.
  std::vector<int> order;
};

/// The launch of the code, with all expressions in one program.
KernelLaunch make_launch(const KernelCode& code);

/// An operator whose kernel is code in the plan: kind "CompiledKernel". Arguments are passed as to
/// cuLaunchKernel: args[i] points to argument i. The arguments are the inputs' pointers (null where
/// an input is absent), the extra arguments, then the outputs' pointers, unless the code has its
/// own order. On the CPU a grid cell is a task of a parallel loop; a grid of 1 runs on the calling
/// thread. A grid of more than 2^31 - 1 cells is an error, and so is a grid without cells if an
/// output has elements. Block and shared memory only count on GPUs. There a cell is a block of
/// threads, and the grid has at most 2^31 - 1 x 65535 x 65535 cells.
PlannedOperatorPtr make_compiled_kernel(KernelCode code);
/// Makes the operator again from its stored form in a plan. Throws Error for code that is not
/// permitted, without reading its bytes.
PlannedOperatorPtr load_compiled_kernel(const Attributes& attributes,
                                        const OperatorLoadContext& context);

}  // namespace opwright
