#pragma once

#include <string>
#include <vector>

#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"

namespace opwright::gpu {

/// What is computed for each element of the outputs, which have one shape, from the elements of the
/// inputs at its place, broadcast to that shape by NumPy's rules.
struct ElementwiseBody {
  std::string declarations;  ///< device functions that `statements` calls
  /// Reads `x0`, `x1`, ... (an element of each input of `reads`) and assigns `y0`, `y1`, ..., all
  /// of their ports' register types.
  std::string statements;
  std::vector<int> reads;  ///< inputs whose elements are used
};

/// The candidate, and the same with the other formats that all of its ports can have: those with as
/// many axes as the output do, and the others are single elements.
std::vector<Candidate> with_formats(const Candidate& candidate, const CandidateQuery& query);
/// The candidate once for each way in which threads share the elements of such a kernel.
std::vector<Candidate> elementwise_tactics(const Candidate& candidate, const CandidateQuery& query);
/// KernelTactics::names of them.
std::vector<std::string> elementwise_tactic_names();
GeneratedKernel generate_elementwise(std::string name, const KernelArgs& args,
                                     const ElementwiseBody& body);

}  // namespace opwright::gpu
