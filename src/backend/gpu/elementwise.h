#pragma once

#include <string>
#include <vector>

#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"

namespace opwright::gpu {

/// The computation of each element of the outputs, which have one shape. It reads the inputs'
/// elements at the same place; inputs are broadcast to that shape by NumPy's rules.
struct ElementwiseBody {
  std::string declarations;  ///< device functions that `statements` calls
  /// Reads `x0`, `x1`, ..., an element of each input of `reads`, and assigns `y0`, `y1`, .... All
  /// have their ports' register types.
  std::string statements;
  std::vector<int> reads;  ///< inputs whose elements are used
};

/// The candidate, and copies with each other format that all of its ports can have. Ports of the
/// output's rank have the format; other ports must have a single element.
std::vector<Candidate> with_formats(const Candidate& candidate, const CandidateQuery& query);
/// Copies of the candidate for each way in which threads share the elements of such a kernel.
std::vector<Candidate> elementwise_tactics(const Candidate& candidate, const CandidateQuery& query);
/// KernelTactics::names of elementwise kernels.
std::vector<std::string> elementwise_tactic_names();
GeneratedKernel generate_elementwise(std::string name, const KernelArgs& args,
                                     const ElementwiseBody& body);

}  // namespace opwright::gpu
