#pragma once

#include <span>
#include <vector>

#include "network/operator.h"
#include "opwright/plugin_base.h"

namespace opwright {

/// The port with another type and format, as plugins see it during a build.
DynamicPluginTensorDesc describe(const PortDesc& port, const PortType& type);
std::vector<DynamicPluginTensorDesc> describe(std::span<const PortDesc> ports);
/// The ports as plugins see them at run time; extents that are not known yet are -1.
std::vector<PluginTensorDesc> describe_for_run(std::span<const PortDesc> ports);
/// Sets the extents of the first descriptors.
void set_extents(std::span<PluginTensorDesc> descs, std::span<const Shape> shapes);

}  // namespace opwright
