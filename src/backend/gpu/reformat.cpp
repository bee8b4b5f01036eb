#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/copy.h"
#include "backend/gpu/elementwise.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> reformat_candidates(const Operator&, const CandidateQuery& query) {
  const PortType from = query.inputs[0].type, to = query.outputs[0].type;
  if (from.format != TensorFormat::kLINEAR || to.format != TensorFormat::kLINEAR) return {};
  if (from == to) return {linear_candidate(query, "copy")};
  if (bits(from.dtype) < 8 || bits(to.dtype) < 8) return {};
  return elementwise_tactics(linear_candidate(query, {}), query);
}

/// The conversions of base/half.h, INT8 with the tensor's scale included.
std::string conversion(DataType from, DataType to, float scale) {
  const bool quantizes = to == DataType::kINT8 && is_floating(from);
  const bool dequantizes = from == DataType::kINT8 && is_floating(to);
  if (scale > 0 && quantizes)
    return str("y0 = convert<signed char>(rintf(__fdiv_rn(x0, ", float_literal(scale), ")));\n");
  if (scale > 0 && dequantizes)
    return str("y0 = __fmul_rn(convert<float>(x0), ", float_literal(scale), ");\n");
  return str("y0 = convert<", register_type(to), ">(x0);\n");
}

std::optional<GeneratedKernel> generate_reformat(const Operator&, const KernelArgs& args) {
  const PortType from = args.candidate->inputs[0], to = args.candidate->outputs[0];
  require(from.format == TensorFormat::kLINEAR && to.format == TensorFormat::kLINEAR, "Layer '",
          args.layer, "': GPUs have no conversion from ", str(from), " to ", str(to));
  if (from == to) return std::nullopt;
  return generate_elementwise("reformat", args,
                              {{}, conversion(from.dtype, to.dtype, args.inputs[0].scale), {0}});
}

const RegisteredKernels<Reformat> kReformatKernels({reformat_candidates, generate_reformat,
                                                    make_copy_kernel, check_copy});

}  // namespace
}  // namespace opwright::gpu
