#include "runtime/step_ports.h"

namespace opwright {

StepPorts step_ports(const Schedule& schedule, const PlanStep& step, const ProfileValues& profile) {
  const auto describe = [&](int32_t index, PortType type) {
    PortDesc port;
    port.type = type;
    port.present = index >= 0;
    if (!port.present) return port;
    const PlanTensor& tensor = schedule.tensors[index];
    port.scale = tensor.scale;
    port.min = profile.shape(tensor.dims, OptProfileSelector::kMIN);
    port.opt = profile.shape(tensor.dims, OptProfileSelector::kOPT);
    port.max = profile.shape(tensor.dims, OptProfileSelector::kMAX);
    port.is_constant = tensor.location == PlanTensor::Location::kWeight;
    port.constant = tensor.data;
    return port;
  };
  StepPorts ports;
  for (size_t i = 0; i < step.inputs.size(); ++i)
    ports.inputs.push_back(describe(step.inputs[i], step.candidate.inputs[i]));
  for (size_t i = 0; i < step.outputs.size(); ++i)
    ports.outputs.push_back(describe(step.outputs[i], step.candidate.outputs[i]));
  return ports;
}

}  // namespace opwright
