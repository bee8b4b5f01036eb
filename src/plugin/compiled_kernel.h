#pragma once

#include <string>
#include <vector>

#include "network/operator.h"
#include "symbolic/expr.h"

namespace opwright {

enum class ArgumentType : int32_t { kINT32, kINT64, kFLOAT32, kFLOAT64, kINT8, kINT16 };

/// A scalar argument between the inputs and the outputs of a compiled kernel.
struct KernelArgument {
  ArgumentType type = ArgumentType::kINT32;
  Expr value;           ///< integers; over the symbols of KernelCode
  double constant = 0;  ///< floating types
};

/// A compiled kernel and how to launch it. Expressions are over local symbols: the extents of the
/// operator's inputs, numbered input after input, axis after axis (input 0 of rank 4 has symbols 0
/// to 3, input 1 starts at 4).
struct KernelCode {
  std::string name;   ///< the exported symbol
  CodeObject object;  ///< on the CPU: an ELF shared object that exports `void name(void** args,
                      ///< int64_t x, int64_t y, int64_t z)`
  Expr grid[3] = {1, 1, 1};
  Expr block[3] = {1, 1, 1};
  Expr shared_memory = 0;
  std::vector<KernelArgument> arguments;
};

/// An operator whose kernel is code in the plan: kind "CompiledKernel". Arguments are passed as to
/// cuLaunchKernel: args[i] points to argument i, which is an input's pointer, then the extra
/// arguments, then an output's pointer. A grid cell is a task of a parallel loop; a grid of 1 runs
/// on the calling thread.
OperatorPtr make_compiled_kernel(KernelCode code, Candidate candidate,
                                 std::vector<OutputInfo> outputs, std::string timing_key);

}  // namespace opwright
