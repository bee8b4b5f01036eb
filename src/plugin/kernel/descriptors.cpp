#include "plugin/kernel/descriptors.h"

namespace opwright {

DynamicPluginTensorDesc describe(const PortDesc& port, const PortType& type) {
  DynamicPluginTensorDesc desc{};
  const bool has_scale = type.dtype == DataType::kINT8 && port.scale > 0;
  desc.desc = {port.opt.dims(), type.dtype, type.format, has_scale ? port.scale : -1.0f};
  for (int i = 0; i < port.opt.rank(); ++i)
    if (port.min[i] != port.max[i]) desc.desc.dims.d[i] = -1;
  desc.min = port.min.dims();
  desc.max = port.max.dims();
  desc.opt = port.opt.dims();
  return desc;
}

std::vector<DynamicPluginTensorDesc> describe(std::span<const PortDesc> ports) {
  std::vector<DynamicPluginTensorDesc> descs;
  descs.reserve(ports.size());
  for (const PortDesc& port : ports) descs.push_back(describe(port, port.type));
  return descs;
}

std::vector<PluginTensorDesc> describe_for_run(std::span<const PortDesc> ports) {
  std::vector<PluginTensorDesc> descs;
  descs.reserve(ports.size());
  for (const PortDesc& port : ports) descs.push_back(describe(port, port.type).desc);
  return descs;
}

void set_extents(std::span<PluginTensorDesc> descs, std::span<const Shape> shapes) {
  for (size_t i = 0; i < descs.size(); ++i) descs[i].dims = shapes[i].dims();
}

}  // namespace opwright
