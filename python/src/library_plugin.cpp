// Python's view of an IPluginV3 that C++ implements.

#include "library_plugin.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "library_arguments.h"
#include "opwright/plugin_v3.h"

namespace opwright::python {
namespace {

nb::list to_list(const std::vector<DataType>& types) { return list_of(types.data(), count(types)); }

nb::list get_output_data_types(const V3PluginHandle& self, nb::handle input_types) {
  const auto inputs = vector_of<DataType>(input_types, "DataType");
  std::vector<DataType> outputs(static_cast<size_t>(self.plugin().num_outputs({})));
  self.call("getOutputDataTypes", [&] {
    return self.plugin().one().build->getOutputDataTypes(outputs.data(), count(outputs),
                                                         inputs.data(), count(inputs));
  });
  return to_list(outputs);
}

nb::list get_output_shapes(const V3PluginHandle& self, nb::handle inputs, nb::handle shape_inputs,
                           const ExprBuilderRef& builder) {
  const auto in = dims_exprs(inputs), shapes = dims_exprs(shape_inputs);
  std::vector<DimsExprs> outputs(static_cast<size_t>(self.plugin().num_outputs({})));
  self.ask_build("getOutputShapes", [&](auto& build) {
    return build.getOutputShapes(in.data(), count(in), shapes.data(), count(shapes), outputs.data(),
                                 count(outputs), builder.get());
  });
  nb::list made;
  for (const DimsExprs& dims : outputs) made.append(to_dim_exprs(dims, builder.scope));
  return made;
}

nb::list get_valid_tactics(const V3PluginHandle& self) {
  std::vector<int32_t> tactics(static_cast<size_t>(
      std::max(self.ask_build([](auto& build) { return build.getNbTactics(); }), 0)));
  self.ask_build("getValidTactics", [&](auto& build) {
    return build.getValidTactics(tactics.data(), count(tactics));
  });
  return list_of(tactics.data(), count(tactics));
}

bool supports_v3_combination(const V3PluginHandle& self, int32_t pos, nb::handle in_out,
                             int32_t num_inputs) {
  const auto ports = dynamic_descs(in_out);
  require(pos >= 0 && pos < count(ports) && num_inputs >= 0 && num_inputs <= count(ports),
          "supports_format_combination: there are ", ports.size(), " inputs and outputs, pos is ",
          pos, ", num_inputs ", num_inputs);
  return self.call([&] {
    return self.plugin().one().build->supportsFormatCombination(pos, ports.data(), num_inputs,
                                                                count(ports) - num_inputs);
  });
}

size_t get_v3_workspace_size(const V3PluginHandle& self, nb::handle in, nb::handle out) {
  const auto inputs = dynamic_descs(in), outputs = dynamic_descs(out);
  return self.call([&] {
    return self.plugin().one().build->getWorkspaceSize(inputs.data(), count(inputs), outputs.data(),
                                                       count(outputs));
  });
}

int build_version(const V3PluginHandle& self) {
  return self.ask_build([](auto& build) { return build.getInterfaceInfo().major; });
}

/// Binds the build part: the methods of both families, and the methods of only the One family.
void bind_build(nb::class_<V3PluginHandle>& c) {
  c.def_prop_ro("num_outputs",
                [](const V3PluginHandle& self) { return self.plugin().num_outputs({}); })
      .def_prop_ro(
          "timing_cache_id",
          [](const V3PluginHandle& self) { return optional_text(self.plugin().timing_cache_id()); })
      .def_prop_ro("metadata_string",
                   [](const V3PluginHandle& self) {
                     return optional_text(self.ask_build(
                         [](auto& build) -> const char* { return build.getMetadataString(); }));
                   })
      .def("configure_plugin",
           [](const V3PluginHandle& self, nb::handle in, nb::handle out) {
             self.plugin().configure({}, dynamic_descs(in), dynamic_descs(out));
           })
      .def("get_output_shapes", &get_output_shapes)
      .def("get_valid_tactics", &get_valid_tactics)
      .def("get_aliased_input",
           [](const V3PluginHandle& self, int32_t output) {
             constexpr int kAny = std::numeric_limits<int32_t>::max();
             return self.plugin().aliased_input({}, output, kAny);
           })
      .def_prop_ro("build_version", &build_version)
      .def_prop_ro("format_combination_limit",
                   [](const V3PluginHandle& self) {
                     return self.call(
                         [&] { return self.plugin().one().build->getFormatCombinationLimit(); });
                   })
      .def("get_output_data_types", &get_output_data_types)
      .def("supports_format_combination", &supports_v3_combination)
      .def("get_workspace_size", &get_v3_workspace_size);
}

void enqueue(const V3PluginHandle& self, nb::handle input_desc, nb::handle output_desc,
             nb::handle inputs, nb::handle outputs, uintptr_t workspace, uintptr_t stream) {
  const auto in_descs = descs(input_desc), out_descs = descs(output_desc);
  const auto in = pointers(inputs), out = pointers(outputs);
  require(in.size() == in_descs.size() && out.size() == out_descs.size(),
          "enqueue: ", in_descs.size(), " and ", out_descs.size(), " descriptors came with ",
          in.size(), " and ", out.size(), " addresses");
  self.call("enqueue", [&] {
    return self.plugin().one().runtime->enqueue(in_descs.data(), out_descs.data(), in.data(),
                                                out.data(), reinterpret_cast<void*>(workspace),
                                                reinterpret_cast<cudaStream_t>(stream));
  });
}

V3PluginHandle* attach_to_context(const V3PluginHandle& self, const ResourceContextRef& context) {
  IPluginV3* attached = nullptr;
  self.call("attachToContext", [&] {
    attached = self.plugin().one().runtime->attachToContext(&context.get());
    return attached == nullptr ? -1 : 0;
  });
  if (attached == &self.plugin().object()) return nullptr;
  auto handle = std::make_unique<V3PluginHandle>(V3Plugin(std::unique_ptr<IPluginV3>(attached)));
  handle->end_with(*context.context);
  return handle.release();
}

/// Binds the runtime part in the same way.
void bind_runtime_part(nb::class_<V3PluginHandle>& c) {
  c.def("set_tactic",
        [](const V3PluginHandle& self, int32_t tactic) {
          self.call("setTactic", [&] { return self.plugin().one().runtime->setTactic(tactic); });
        })
      .def("get_fields_to_serialize",
           [](const V3PluginHandle& self) { return FieldCollection{self.plugin().fields()}; })
      .def("on_shape_change",
           [](const V3PluginHandle& self, nb::handle in, nb::handle out) {
             const auto inputs = descs(in), outputs = descs(out);
             self.call("onShapeChange", [&] {
               return self.plugin().one().runtime->onShapeChange(inputs.data(), count(inputs),
                                                                 outputs.data(), count(outputs));
             });
           })
      .def("enqueue", &enqueue)
      .def("attach_to_context", &attach_to_context, nb::rv_policy::take_ownership,
           "None where the plugin returned itself.");
}

}  // namespace

IPluginV3* library_plugin(nb::handle object) {
  if (!nb::hasattr(object, "_handle")) return nullptr;
  nb::object handle = object.attr("_handle");
  if (!nb::isinstance<V3PluginHandle>(handle)) return nullptr;
  return &nb::cast<V3PluginHandle&>(handle).plugin().object();
}

nb::object from_plugin_v3(std::unique_ptr<IPluginV3> plugin) {
  nb::object object = python_object_of(*plugin);
  if (!object.is_none()) return object;
  auto handle = std::make_unique<V3PluginHandle>(V3Plugin(std::move(plugin)));
  nb::object wrap =
      handle->plugin().is_quick()
          ? nb::module_::import_("opwright._plugins.library_quick").attr("LibraryPluginV3Quick")
          : nb::module_::import_("opwright._plugins.library").attr("LibraryPlugin");
  return wrap(nb::cast(handle.release(), nb::rv_policy::take_ownership));
}

void bind_library_plugin(nb::module_& m) {
  nb::class_<V3PluginHandle> c(m, "_V3PluginHandle", "An IPluginV3 that a C++ library implements.");
  c.def(
       "clone",
       [](const V3PluginHandle& self) { return new V3PluginHandle(self.plugin().clone()); },
       nb::rv_policy::take_ownership)
      .def_prop_ro("name", [](const V3PluginHandle& self) { return self.plugin().identity().name; })
      .def_prop_ro("version",
                   [](const V3PluginHandle& self) { return self.plugin().identity().version; })
      .def_prop_ro(
          "namespace",
          [](const V3PluginHandle& self) { return self.plugin().identity().plugin_namespace; })
      .def_prop_ro("has_build",
                   [](const V3PluginHandle& self) { return self.plugin().has_build(); });
  bind_build(c);
  bind_runtime_part(c);
  bind_library_plugin_quick(c);
}

}  // namespace opwright::python
