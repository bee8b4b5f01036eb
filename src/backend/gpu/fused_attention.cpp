#include "operators/fused_attention.h"

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/attention_writer.h"
#include "backend/gpu/kernels.h"

namespace opwright::gpu::attention {
namespace {

std::vector<Candidate> attention_candidates(const Operator& op, const CandidateQuery& query) {
  const FusedAttentionParams& params = static_cast<const FusedAttention&>(op).params();
  const DataType type = query.inputs[0].type.dtype;
  const bool is_known =
      type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
  if (!is_known || params.size > kMaxSize || params.value_size > kMaxSize) return {};
  std::vector<DataType> types = {type};
  if (!query.strongly_typed && type == DataType::kFLOAT) {
    if (query.fp16) types.push_back(DataType::kHALF);
    if (query.bf16) types.push_back(DataType::kBF16);
  }
  std::vector<Candidate> found;
  for (const DataType offered : types)
    for (const int64_t tactic : tactics(params, offered, query)) {
      Candidate candidate = linear_candidate(query, tactic_of(tactic).name());
      for (size_t i = 0; i < 3; ++i) candidate.inputs[i].dtype = offered;
      candidate.outputs[0].dtype = params.fused.present() ? params.fused.result : offered;
      candidate.tactic = tactic;
      found.push_back(std::move(candidate));
    }
  return found;
}

std::optional<GeneratedKernel> generate_attention(const Operator& op, const KernelArgs& args) {
  return AttentionWriter(static_cast<const FusedAttention&>(op).params(), args).write();
}

const RegisteredKernels<FusedAttention> kFusedAttentionKernels({.candidates = attention_candidates,
                                                                .generate = generate_attention,
                                                                .make = nullptr,
                                                                .tactics = tactic_names});

}  // namespace
}  // namespace opwright::gpu::attention
