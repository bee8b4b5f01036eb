#include "plugin/kernel/stored_ports.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/types.h"
#include "plugin/kernel/descriptors.h"

namespace opwright {

void StoredPorts::require_counts(size_t num_inputs, int num_outputs,
                                 const std::function<bool(size_t)>& may_be_absent) const {
  const Candidate& candidate = *args_.candidate;
  if (args_.inputs.size() != num_inputs || candidate.inputs.size() != num_inputs)
    reject("the engine gives it ", args_.inputs.size(), " inputs, with types of ",
           candidate.inputs.size(), ", and it takes ", num_inputs);
  const bool fits =
      num_outputs < 0 ? !args_.outputs.empty() : std::cmp_equal(args_.outputs.size(), num_outputs);
  if (!fits || candidate.outputs.size() != args_.outputs.size())
    reject("the engine gives it ", args_.outputs.size(), " outputs, with types of ",
           candidate.outputs.size(), ", and it has ",
           num_outputs < 0 ? "at least one" : str(num_outputs));
  for (size_t i = 0; i < args_.inputs.size(); ++i)
    if (!args_.inputs[i].present && (may_be_absent == nullptr || !may_be_absent(i)))
      reject("input ", i, " is absent in the engine, and the plugin needs it");
  for (size_t o = 0; o < args_.outputs.size(); ++o)
    if (!args_.outputs[o].present) reject("output ", o, " is absent in the engine");
}

void StoredPorts::require_shape_input(size_t input) const {
  const PortDesc& port = args_.inputs[input];
  const DataType dtype = port.type.dtype;
  if (dtype != DataType::kINT32 && dtype != DataType::kINT64)
    reject("input ", input, ", whose elements determine shapes, is stored as ", name(dtype),
           ", and must be INT32 or INT64");
  if (port.type.format != TensorFormat::kLINEAR)
    reject("input ", input, ", whose elements determine shapes, is stored as ",
           opwright::str(port.type), ", and must be in LINEAR");
  if (port.opt.rank() > 1 || port.min != port.max || port.opt.numel() > TensorInfo::kMaxValues)
    reject("input ", input, ", whose elements determine shapes, is stored with shapes from ",
           port.min, " to ", port.max, ", and must be a scalar or a vector of constant length");
}

void StoredPorts::require_shared(int input, int output) const {
  const auto in = static_cast<size_t>(input), out = static_cast<size_t>(output);
  if (in >= args_.inputs.size() || !args_.inputs[in].present)
    reject("output ", output, " is aliased to input ", input, ", which the engine does not give");
  const PortType from = args_.inputs[in].type, to = args_.outputs[out].type;
  if (from != to)
    reject("output ", output, " is stored as ", opwright::str(to), " but aliased to input ", input,
           ", which is ", opwright::str(from));
}

void StoredPorts::require_supported(
    int num_inputs,
    const std::function<bool(int pos, std::span<const DynamicPluginTensorDesc> ports)>& supports)
    const {
  std::vector<DynamicPluginTensorDesc> ports =
      describe(args_.inputs.first(static_cast<size_t>(num_inputs)));
  for (const DynamicPluginTensorDesc& output : describe(args_.outputs)) ports.push_back(output);
  for (int pos = 0; std::cmp_less(pos, ports.size()); ++pos) {
    if (supports(pos, ports)) continue;
    const bool is_input = pos < num_inputs;
    const int number = is_input ? pos : pos - num_inputs;
    const PortDesc& port = (is_input ? args_.inputs : args_.outputs)[static_cast<size_t>(number)];
    reject(is_input ? "input " : "output ", number, " is stored as ", opwright::str(port.type),
           ", which supportsFormatCombination() refuses");
  }
}

void StoredPorts::require_tactic(std::span<const int32_t> tactics) const {
  if (std::ranges::any_of(tactics, [&](int32_t each) { return each == args_.candidate->tactic; }))
    return;
  std::string list;
  for (const int32_t each : tactics) list += str(list.empty() ? "" : ", ", each);
  reject("the engine stores the tactic ", args_.candidate->tactic, ", and it has ", list);
}

void StoredPorts::require_tactic_number(int64_t most) const {
  const int64_t tactic = args_.candidate->tactic;
  if (tactic < 0 || tactic > most)
    reject("the engine stores the tactic ", tactic, ", and autotune gives 0 to ", most);
}

void StoredPorts::require_workspace(size_t wanted, int64_t stored) const {
  if (std::cmp_greater(wanted, stored))
    reject("it wants ", wanted, " bytes of workspace, and the engine stores ", stored);
}

}  // namespace opwright
