// IPluginV3 implemented in C++, as Python sees and calls it.

#include "library_plugin.h"

#include <algorithm>

#include "base/error.h"
#include "library_arguments.h"
#include "opwright/plugin_v3.h"
#include "plugin/abi/v3_plugin_base.h"
#include "plugin/registry/plugin_library.h"
#include "plugin/registry/registry.h"

namespace opwright::python {
namespace {

/// A C++ plugin that Python owns, with the methods of its parts; the classes of
/// opwright/_library_plugins.py wrap it.
class PluginHandle {
 public:
  explicit PluginHandle(std::unique_ptr<IPluginV3> plugin)
      : code_(keep_code(*plugin)),
        plugin_(std::make_shared<std::unique_ptr<IPluginV3>>(std::move(plugin))) {}
  IPluginV3& plugin() const {
    require(*plugin_ != nullptr,
            "this plugin was attached to an execution context, with which it ended");
    return **plugin_;
  }

  /// Ends the plugin, whoever holds the handle, before what it is attached to ends.
  void end_with(AttachedContext& context) {
    context.at_end([code = std::weak_ptr(code_), plugin = std::weak_ptr(plugin_)] {
      const auto library = code.lock();  // until the plugin is gone
      if (const auto alive = plugin.lock()) alive->reset();
    });
  }

  /// Whether it has this part, of the One interfaces.
  bool has(PluginCapabilityType type) const { return part(type) != nullptr; }
  /// The version of the build interface: 2 where outputs may be aliased to inputs.
  int build_version() const { return build().getInterfaceInfo().major; }

  IPluginV3OneCore& core() const { return need<IPluginV3OneCore>(PluginCapabilityType::kCORE); }
  IPluginV3OneBuild& build() const { return need<IPluginV3OneBuild>(PluginCapabilityType::kBUILD); }
  IPluginV3OneRuntime& runtime() const {
    return need<IPluginV3OneRuntime>(PluginCapabilityType::kRUNTIME);
  }

  /// What `body`, a call of a method, returns; throws what a callback left behind.
  template <class Body>
  auto call(Body&& body) const {
    return call_plugin(where(), std::forward<Body>(body));
  }
  /// The same, or Error for a status other than 0.
  template <class Body>
  void call(const char* method, Body&& body) const {
    const std::string place = where();
    const int32_t status = call_plugin(place, std::forward<Body>(body));
    require(status == 0, place, method, "() returned ", status, " instead of 0");
  }

  PluginHandle* clone() const {
    const std::string place = where();
    std::unique_ptr<IPluginV3> copy =
        call_plugin(place, [&] { return std::unique_ptr<IPluginV3>(plugin().clone()); });
    require(copy != nullptr, place, "clone() returned null");
    return new PluginHandle(std::move(copy));
  }

 private:
  std::string where() const {
    const char* const name = call_plugin("", [&] { return core().getPluginName(); });
    return str("plugin '", name, "': ");
  }
  IPluginCapability* part(PluginCapabilityType type) const {
    IPluginCapability* const part =
        call_plugin("", [&] { return plugin().getCapabilityInterface(type); });
    static constexpr std::string_view kKinds[] = {"PLUGIN_V3ONE_CORE", "PLUGIN_V3ONE_BUILD",
                                                  "PLUGIN_V3ONE_RUNTIME"};
    return part != nullptr && is_kind(*part, kKinds[static_cast<int>(type)]) ? part : nullptr;
  }
  template <class Part>
  Part& need(PluginCapabilityType type) const {
    IPluginCapability* found = part(type);
    require(found != nullptr, "a C++ plugin lacks a part of the interface IPluginV3One");
    return static_cast<Part&>(*found);
  }

  const std::shared_ptr<const void> code_;                    ///< the library
  const std::shared_ptr<std::unique_ptr<IPluginV3>> plugin_;  ///< null once it has ended
};

int num_outputs(const PluginHandle& self) {
  return self.call([&] { return self.build().getNbOutputs(); });
}

nb::list get_output_data_types(const PluginHandle& self, nb::handle input_types) {
  const auto inputs = vector_of<DataType>(input_types, "DataType");
  std::vector<DataType> outputs(static_cast<size_t>(num_outputs(self)));
  self.call("getOutputDataTypes", [&] {
    return self.build().getOutputDataTypes(outputs.data(), count(outputs), inputs.data(),
                                           count(inputs));
  });
  return list_of(outputs.data(), count(outputs));
}

nb::list get_output_shapes(const PluginHandle& self, nb::handle inputs, nb::handle shape_inputs,
                           const ExprBuilderRef& builder) {
  const auto in = dims_exprs(inputs), shapes = dims_exprs(shape_inputs);
  std::vector<DimsExprs> outputs(static_cast<size_t>(num_outputs(self)));
  self.call("getOutputShapes", [&] {
    return self.build().getOutputShapes(in.data(), count(in), shapes.data(), count(shapes),
                                        outputs.data(), count(outputs), builder.get());
  });
  nb::list made;
  for (const DimsExprs& dims : outputs) made.append(to_dim_exprs(dims, builder.scope));
  return made;
}

nb::list get_valid_tactics(const PluginHandle& self) {
  std::vector<int32_t> tactics(
      static_cast<size_t>(std::max(self.call([&] { return self.build().getNbTactics(); }), 0)));
  self.call("getValidTactics",
            [&] { return self.build().getValidTactics(tactics.data(), count(tactics)); });
  return list_of(tactics.data(), count(tactics));
}

int32_t get_aliased_input(const PluginHandle& self, int32_t output) {
  require(self.build_version() >= 2, "the plugin's build part is an IPluginV3OneBuild, not V2");
  return self.call(
      [&] { return static_cast<IPluginV3OneBuildV2&>(self.build()).getAliasedInput(output); });
}

void bind_build(nb::class_<PluginHandle>& c) {
  c.def_prop_ro("num_outputs", &num_outputs)
      .def_prop_ro("format_combination_limit",
                   [](const PluginHandle& self) {
                     return self.call([&] { return self.build().getFormatCombinationLimit(); });
                   })
      .def_prop_ro(
          "metadata_string",
          [](const PluginHandle& self) {
            return optional_text(self.call([&] { return self.build().getMetadataString(); }));
          })
      .def_prop_ro(
          "timing_cache_id",
          [](const PluginHandle& self) {
            return optional_text(self.call([&] { return self.build().getTimingCacheID(); }));
          })
      .def("get_output_data_types", &get_output_data_types)
      .def("get_output_shapes", &get_output_shapes)
      .def("configure_plugin",
           [](const PluginHandle& self, nb::handle in, nb::handle out) {
             const auto inputs = dynamic_descs(in), outputs = dynamic_descs(out);
             self.call("configurePlugin", [&] {
               return self.build().configurePlugin(inputs.data(), count(inputs), outputs.data(),
                                                   count(outputs));
             });
           })
      .def("supports_format_combination",
           [](const PluginHandle& self, int32_t pos, nb::handle in_out, int32_t num_inputs) {
             const auto ports = dynamic_descs(in_out);
             require(
                 pos >= 0 && pos < count(ports) && num_inputs >= 0 && num_inputs <= count(ports),
                 "supports_format_combination: there are ", ports.size(),
                 " inputs and outputs, pos is ", pos, ", num_inputs ", num_inputs);
             return self.call([&] {
               return self.build().supportsFormatCombination(pos, ports.data(), num_inputs,
                                                             count(ports) - num_inputs);
             });
           })
      .def("get_workspace_size",
           [](const PluginHandle& self, nb::handle in, nb::handle out) {
             const auto inputs = dynamic_descs(in), outputs = dynamic_descs(out);
             return self.call([&] {
               return self.build().getWorkspaceSize(inputs.data(), count(inputs), outputs.data(),
                                                    count(outputs));
             });
           })
      .def("get_valid_tactics", &get_valid_tactics)
      .def("get_aliased_input", &get_aliased_input)
      .def_prop_ro("build_version", &PluginHandle::build_version);
}

void bind_runtime_part(nb::class_<PluginHandle>& c) {
  c.def("set_tactic",
        [](const PluginHandle& self, int32_t tactic) {
          self.call("setTactic", [&] { return self.runtime().setTactic(tactic); });
        })
      .def("on_shape_change",
           [](const PluginHandle& self, nb::handle in, nb::handle out) {
             const auto inputs = descs(in), outputs = descs(out);
             self.call("onShapeChange", [&] {
               return self.runtime().onShapeChange(inputs.data(), count(inputs), outputs.data(),
                                                   count(outputs));
             });
           })
      .def("enqueue",
           [](const PluginHandle& self, nb::handle input_desc, nb::handle output_desc,
              nb::handle inputs, nb::handle outputs, uintptr_t workspace, uintptr_t stream) {
             const auto in_descs = descs(input_desc), out_descs = descs(output_desc);
             const auto in = pointers(inputs), out = pointers(outputs);
             require(in.size() == in_descs.size() && out.size() == out_descs.size(),
                     "enqueue: ", in_descs.size(), " and ", out_descs.size(),
                     " descriptors came with ", in.size(), " and ", out.size(), " addresses");
             self.call("enqueue", [&] {
               return self.runtime().enqueue(in_descs.data(), out_descs.data(), in.data(),
                                             out.data(), reinterpret_cast<void*>(workspace),
                                             reinterpret_cast<cudaStream_t>(stream));
             });
           })
      .def("get_fields_to_serialize",
           [](const PluginHandle& self) {
             const PluginFieldCollection* fields = nullptr;
             self.call("getFieldsToSerialize", [&] {
               fields = self.runtime().getFieldsToSerialize();
               return fields == nullptr ? -1 : 0;
             });
             return FieldCollection{copy_fields(*fields)};
           })
      .def(
          "attach_to_context",
          [](const PluginHandle& self, const ResourceContextRef& context) -> PluginHandle* {
            IPluginV3* attached = nullptr;
            self.call("attachToContext", [&] {
              attached = self.runtime().attachToContext(&context.get());
              return attached == nullptr ? -1 : 0;
            });
            if (attached == &self.plugin()) return nullptr;
            auto handle = std::make_unique<PluginHandle>(std::unique_ptr<IPluginV3>(attached));
            handle->end_with(*context.context);
            return handle.release();
          },
          nb::rv_policy::take_ownership, "None where the plugin returned itself.");
}

}  // namespace

IPluginV3* library_plugin(nb::handle object) {
  if (!nb::hasattr(object, "_handle")) return nullptr;
  nb::object handle = object.attr("_handle");
  if (nb::isinstance<PluginHandle>(handle)) return &nb::cast<PluginHandle&>(handle).plugin();
  return quick_library_plugin(handle);
}

nb::object from_plugin_v3(std::unique_ptr<IPluginV3> plugin) {
  nb::object object = python_object_of(*plugin);
  if (!object.is_none()) return object;
  if (is_quick(*plugin)) return from_quick_plugin(std::move(plugin));
  auto* handle = new PluginHandle(std::move(plugin));
  return nb::module_::import_("opwright._library_plugins")
      .attr("LibraryPlugin")(nb::cast(handle, nb::rv_policy::take_ownership));
}

void bind_library_plugin(nb::module_& m) {
  nb::class_<PluginHandle> c(m, "_PluginHandle", "A plugin that a C++ library implements.");
  c.def("has", &PluginHandle::has)
      .def("clone", &PluginHandle::clone, nb::rv_policy::take_ownership)
      .def_prop_ro("name",
                   [](const PluginHandle& self) {
                     return self.call([&] { return self.core().getPluginName(); });
                   })
      .def_prop_ro("version",
                   [](const PluginHandle& self) {
                     return self.call([&] { return self.core().getPluginVersion(); });
                   })
      .def_prop_ro("namespace", [](const PluginHandle& self) {
        return self.call([&] { return self.core().getPluginNamespace(); });
      });
  bind_build(c);
  bind_runtime_part(c);
  bind_library_plugin_quick(m);
}

}  // namespace opwright::python
