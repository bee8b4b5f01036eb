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

/// What must hold of the inputs before a compiled kernel may run.
struct KernelCheck {
  Expr condition;       ///< over the symbols of KernelCode; holds where it is not 0
  std::string message;  ///< of the Error where it does not, one line
};

/// KernelLaunch::TensorMap, its expressions not yet in a program.
struct KernelTensorMap {
  int input = 0;
  DataType type = DataType::kHALF;
  std::vector<Expr> extents, strides;
  std::vector<int32_t> box, steps;
  std::vector<Expr> lower, upper;
};

/// A compiled kernel and how to launch it. Expressions are over local symbols: the extents of the
/// operator's inputs, numbered input after input, axis after axis (input 0 of rank 4 has symbols 0
/// to 3, input 1 starts at 4; absent inputs have none), then the elements of the shape inputs in
/// the order of `shape_inputs`.
struct KernelCode {
  std::string name;   ///< the exported symbol
  CodeObject object;  ///< on the CPU: an ELF shared object that exports `void name(void** args,
                      ///< int64_t x, int64_t y, int64_t z)`, with `host` set and the instruction
                      ///< set that it needs in `target` ("x86-64 avx2 fma"); else what the
                      ///< device's backend takes, with the target that its CodeFormat tells
  std::string layer_kind;  ///< of the built-in layer that it computes, "Pointwise", for the
                           ///< inspector; empty for a plugin's
  Expr grid[3] = {1, 1, 1};
  Expr block[3] = {1, 1, 1};
  Expr shared_memory = 0;
  bool begins_early = false;  ///< whether it may begin while the kernel before it ends: its code
                              ///< waits for that one before it reads or writes what others do
  std::vector<KernelArgument> arguments;
  std::vector<Expr> scratch;      ///< bytes behind each pointer that follows the outputs, which is
                                  ///< null where it is 0; for GPUs only
  std::vector<int> shape_inputs;  ///< inputs (INT32 or INT64, constant shape) whose values count
  std::vector<KernelCheck> checks;
  std::vector<KernelTensorMap> maps;  ///< of 128 bytes each, behind the scratch pointers
  std::vector<int> order;  ///< what each parameter of the kernel takes: a number among the inputs,
                           ///< the arguments, the outputs, the scratch pointers and the tensor
                           ///< maps, of which some may be taken more than once and others never;
                           ///< empty: as they are
};

/// Its launch, all expressions in one program.
KernelLaunch make_launch(const KernelCode& code);

/// An operator whose kernel is code in the plan: kind "CompiledKernel". Arguments are passed as to
/// cuLaunchKernel: args[i] points to argument i, which is an input's pointer (null where the input
/// is absent), then the extra arguments, then an output's pointer, unless the code has an order of
/// its own. A grid cell is a task of a
/// parallel loop; a grid of 1 runs on the calling thread, and one of more than 2^31 - 1 cells, or
/// of none where an output has elements, is an error. Block and shared memory count on GPUs only,
/// where a cell is a block of threads and the grid has at most 2^31 - 1 x 65535 x 65535.
PlannedOperatorPtr make_compiled_kernel(KernelCode code);
/// Makes it again from what a plan stores. Throws Error for code that is not permitted; its bytes
/// are then not touched.
PlannedOperatorPtr load_compiled_kernel(const Attributes& attributes,
                                        const OperatorLoadContext& context);

}  // namespace opwright
