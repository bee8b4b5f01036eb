#include "representations.h"

#include "backend/backend.h"
#include "base/limits.h"
#include "base/printable.h"
#include "base/units.h"
#include "bindings.h"
#include "compile/builder_config.h"
#include "network/network.h"
#include "runtime/context.h"
#include "runtime/engine.h"
#include "runtime/inspect.h"

namespace opwright::python {
namespace {

/// The shape as text such as "(n, 8)". Extents that vary appear by name, or as -1.
template <class Names>
std::string shape_text(const Shape& shape, const Names& name_of) {
  std::string all;
  for (int i = 0; i < shape.rank(); ++i) {
    const std::string name = shape[i] < 0 ? printable(name_of(i)) : "";
    all += (i == 0 ? "" : ", ") + (name.empty() ? std::to_string(shape[i]) : name);
  }
  return str('(', all, shape.rank() == 1 ? ",)" : ")");
}

std::string quoted_name(const std::string& name) {
  return name.empty() ? "" : str(" '", printable(name), "'");
}

template <class Ports, class Show>
std::string port_list(const Ports& ports, const Show& show) {
  constexpr size_t kMost = 8;
  std::string all;
  size_t count = 0;
  for (const auto& port : ports) {
    if (count++ == kMost) break;
    all += (all.empty() ? "" : ", ") + show(port);
  }
  if (ports.size() > kMost) all += str(" and ", ports.size() - kMost, " more");
  return all.empty() ? "nothing" : all;
}

std::string device_of(const Engine& engine) {
  const Device& device = engine.device();
  std::string backend(device.backend().name());
  return device.is_host() ? backend : str(backend, ':', device.ordinal());
}

template <class ShapeOf>
std::string list_ports(const Plan& plan, bool is_inputs, const ShapeOf& shape_of) {
  const auto show = [&](const PlanPort& port) {
    const std::vector<std::string> names =
        is_inputs ? port.dimension_names : extent_texts(plan, port);
    const auto name_of = [&](int i) {
      return static_cast<size_t>(i) < names.size() ? names[i] : std::string();
    };
    return str(printable(port.name), ": ", name(port.type.dtype), ' ',
               shape_text(shape_of(port), name_of));
  };
  return port_list(is_inputs ? plan.inputs : plan.outputs, show);
}

template <class ShapeOf>
std::string ports_of(const Plan& plan, const ShapeOf& shape_of) {
  return list_ports(plan, true, shape_of) + " -> " + list_ports(plan, false, shape_of);
}

}  // namespace

std::string describe_ports(const Engine& engine, bool is_inputs) {
  return list_ports(engine.plan(), is_inputs,
                    [&](const PlanPort& port) { return engine.tensor_shape(port.name); });
}

std::string describe(const char* type, const Engine& engine) {
  const Plan& plan = engine.plan();
  uint64_t weights = 0;
  {
    const auto lock = engine.lock_weights();
    weights = weights_size(plan);
  }
  return str('<', type, quoted_name(plan.name), " on ", device_of(engine), ": ",
             describe_ports(engine, true), " -> ", describe_ports(engine, false), "; ",
             counted(static_cast<size_t>(engine.num_layers()), "step"), ", ", bytes_text(weights),
             " of weights, ", bytes_text(engine.memory_size()), " of working memory>");
}

std::string describe(const Network& network) {
  const auto show = [](const Tensor* tensor) {
    try {
      return str(printable(tensor->name()), ": ", name(tensor->dtype()), ' ',
                 shape_text(tensor->shape(), [&](int i) -> std::string {
                   return tensor->is_network_input() ? tensor->dimension_name(i) : "";
                 }));
    } catch (const Error&) {
      return printable(tensor->name()) + ": of a layer that does not fit";
    }
  };
  return str("<INetworkDefinition", quoted_name(network.name()), ": ",
             port_list(network.inputs(), show), " -> ", port_list(network.outputs(), show), "; ",
             counted(static_cast<size_t>(network.num_layers()), "layer"), '>');
}

std::string describe(Context& context) {
  const Engine& engine = *context.engine();
  const auto shape_of = [&](const PlanPort& port) { return context.tensor_shape(port.name); };
  return str("<IExecutionContext", quoted_name(engine.plan().name), " on ", device_of(engine),
             ", profile ", context.profile(), ": ", ports_of(engine.plan(), shape_of), "; ",
             bytes_text(engine.memory_size(context.profile())), " of working memory>");
}

std::string describe(const BuilderConfig& config) {
  const DeviceId& device = config.device;
  std::string flags;
  for (int i = 0; i < EnumMax<BuilderFlag>(); ++i) {
    const auto flag = static_cast<BuilderFlag>(i);
    if (!config.flags.has(flag)) continue;
    try {
      flags += str(", ", nb::cast<std::string>(nb::cast(flag).attr("name")));
    } catch (const nb::python_error&) {
      flags += str(", ", i);  // a flag without a name
    }
  }
  return str(
      "<IBuilderConfig for ", device.backend, device.ordinal > 0 ? str(':', device.ordinal) : "",
      ": ",
      counted(static_cast<size_t>(config.num_optimization_profiles()), "optimization profile"),
      flags, config.timing ? "" : ", nothing is timed", '>');
}

}  // namespace opwright::python
