#include "backend/gpu/kernels.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/library.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

/// Kernels by kind of operator. RegisteredKernels fill the table while the library is loaded.
struct KernelTable : std::unordered_map<std::string_view, KernelEntry> {};

}  // namespace

void register_kernels(std::string_view kind, const KernelEntry& entry) {
  Library::part<KernelTable>().emplace(kind, entry);
}

void require_candidate(const KernelEntry& entry, const Operator& op, const KernelArgs& args) {
  const Candidate& wanted = *args.candidate;
  // The query allows only the types of the ports, none lower.
  std::vector<PortDesc> inputs(args.inputs.begin(), args.inputs.end());
  std::vector<PortDesc> outputs(args.outputs.begin(), args.outputs.end());
  if (op.kind() != Reformat::kKind)
    for (std::vector<PortDesc>* const ports : {&inputs, &outputs})
      for (PortDesc& port : *ports) port.type.format = TensorFormat::kLINEAR;
  CandidateQuery query;
  query.layer = args.layer, query.inputs = inputs, query.outputs = outputs;
  query.device = args.device, query.hardware_compatibility = args.hardware_compatibility;
  query.strongly_typed = query.tf32 = query.all_tactics = true;
  const std::vector<Candidate> all = entry.candidates(op, query);
  const bool is_known = std::any_of(all.begin(), all.end(), [&](const Candidate& candidate) {
    return candidate.tactic == wanted.tactic && candidate.inputs == wanted.inputs &&
           candidate.outputs == wanted.outputs;
  });
  require(is_known, "layer '", args.layer, "': tactic ", wanted.tactic, " (", wanted.tactic_name,
          ") of ", op.kind(), " cannot compute ", str(wanted), " of these shapes; ", all.size(),
          " others can");
}

std::vector<KernelTactics> kernel_tactics() { return tactics_of(Library::part<KernelTable>()); }

const KernelEntry* find_entry(std::string_view kind) {
  const auto& table = Library::part<KernelTable>();
  const auto found = table.find(kind);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace opwright::gpu
