#include "backend/candidates.h"

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright {

Candidate linear_candidate(const CandidateQuery& query, std::string tactic_name) {
  Candidate candidate;
  for (const PortDesc& port : query.inputs) candidate.inputs.push_back({port.type.dtype});
  for (const PortDesc& port : query.outputs) candidate.outputs.push_back({port.type.dtype});
  candidate.tactic_name = std::move(tactic_name);
  return candidate;
}

std::vector<TensorFormat> formats_of(const CandidateQuery& query, int rank) {
  std::vector<TensorFormat> formats = {TensorFormat::kLINEAR};
  for (const TensorFormat format : query.device->formats(rank)) formats.push_back(format);
  return formats;
}

bool has_shape_of(const PortDesc& port, const PortDesc& other) {
  return port.min == other.min && port.opt == other.opt && port.max == other.max;
}

void add_lower_precisions(const CandidateQuery& query, const PortDesc& like,
                          std::vector<Candidate>& candidates) {
  if (query.strongly_typed) return;
  const size_t count = candidates.size();
  for (const DataType type : {DataType::kBF16, DataType::kHALF}) {
    if (!(type == DataType::kBF16 ? query.bf16 : query.fp16)) continue;
    for (size_t i = 0; i < count; ++i) {
      Candidate candidate = candidates[i];
      const auto convert = [&](std::vector<PortType>& types, std::span<const PortDesc> ports) {
        for (size_t port = 0; port < ports.size(); ++port)
          if (ports[port].present && types[port].dtype == DataType::kFLOAT &&
              has_shape_of(ports[port], like))
            types[port].dtype = type;
      };
      convert(candidate.inputs, query.inputs);
      convert(candidate.outputs, query.outputs);
      if (candidate != candidates[i]) candidates.push_back(std::move(candidate));
    }
  }
}

bool fills_blocks(const PortDesc& port, TensorFormat format) {
  const int block = layout_of(format).block;
  if (block == 1) return true;
  return port.min.rank() >= 2 && port.min[1] == port.max[1] && port.max[1] % block == 0;
}

int element_size(DataType type) {
  require(bits(type) % 8 == 0, "expected a type with elements of whole bytes, not ", name(type));
  return bits(type) / 8;
}

}  // namespace opwright
