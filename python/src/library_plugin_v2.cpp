// Python's view of an IPluginV2DynamicExt that C++ implements.

#include "library_plugin_v2.h"

#include <optional>

#include "base/error.h"
#include "gpu_allocator.h"
#include "library_arguments.h"
#include "plugin/registry/callback.h"

namespace opwright::python {
namespace {

/// A C++ plugin that Python owns; the class LibraryPluginV2 wraps it.
class V2PluginHandle {
 public:
  explicit V2PluginHandle(V2Plugin plugin) : plugin_(std::move(plugin)) {}
  V2Plugin& get() {
    require(plugin_.has_value(), "this plugin was destroyed");
    return *plugin_;
  }
  IPluginV2DynamicExt& object() { return get().object(); }
  void destroy() { plugin_.reset(); }
  /// Keeps the allocator as long as the plugin may use it.
  IGpuAllocator* keep(std::shared_ptr<IGpuAllocator> allocator) {
    allocator_ = std::move(allocator);
    return allocator_.get();
  }

  /// Calls `body`, which calls a method, and returns its result. Throws the exception that a
  /// callback left behind.
  template <class Body>
  auto call(Body&& body) {
    return get().call({}, std::forward<Body>(body));
  }
  /// Calls `body`, which returns a status. Throws Error if it is not 0.
  template <class Body>
  void call(const char* method, Body&& body) {
    get().call({}, method, std::forward<Body>(body));
  }

 private:
  std::shared_ptr<IGpuAllocator> allocator_;
  std::optional<V2Plugin> plugin_;
};

DimExprs get_output_dimensions(V2PluginHandle& self, int32_t index, nb::handle inputs,
                               const ExprBuilderRef& builder) {
  const auto in = dims_exprs(inputs);
  const DimsExprs dims = self.call([&] {
    return self.object().getOutputDimensions(index, in.data(), count(in), builder.get());
  });
  require(dims.nbDims >= 0 && dims.nbDims <= Dims::MAX_DIMS, "getOutputDimensions(", index,
          ") returned a rank of ", dims.nbDims);
  return to_dim_exprs(dims, builder.scope);
}

void configure_plugin(V2PluginHandle& self, nb::handle in, nb::handle out) {
  const auto inputs = dynamic_descs(in), outputs = dynamic_descs(out);
  self.get().configure("", inputs, outputs);
}

bool supports_format_combination(V2PluginHandle& self, int32_t pos, nb::handle in_out,
                                 int32_t num_inputs) {
  const auto ports = descs(in_out);
  require(pos >= 0 && pos < count(ports) && num_inputs >= 0 && num_inputs <= count(ports),
          "supports_format_combination: there are ", ports.size(), " inputs and outputs, pos is ",
          pos, ", num_inputs ", num_inputs);
  return self.call([&] {
    return self.object().supportsFormatCombination(pos, ports.data(), num_inputs,
                                                   count(ports) - num_inputs);
  });
}

size_t get_workspace_size(V2PluginHandle& self, nb::handle in, nb::handle out) {
  const auto inputs = descs(in), outputs = descs(out);
  return self.call([&] {
    return self.object().getWorkspaceSize(inputs.data(), count(inputs), outputs.data(),
                                          count(outputs));
  });
}

void enqueue_v2(V2PluginHandle& self, nb::handle input_desc, nb::handle output_desc,
                nb::handle inputs, nb::handle outputs, uintptr_t workspace, uintptr_t stream) {
  const auto in_descs = descs(input_desc), out_descs = descs(output_desc);
  const auto in = pointers(inputs), out = pointers(outputs);
  require(in.size() == in_descs.size() && out.size() == out_descs.size(),
          "enqueue: ", in_descs.size(), " and ", out_descs.size(), " descriptors came with ",
          in.size(), " and ", out.size(), " addresses");
  self.call("enqueue", [&] {
    return self.object().enqueue(in_descs.data(), out_descs.data(), in.data(), out.data(),
                                 reinterpret_cast<void*>(workspace),
                                 reinterpret_cast<cudaStream_t>(stream));
  });
}

nb::bytes serialize(V2PluginHandle& self) {
  const Blob bytes = self.get().serialize("");
  return nb::bytes(bytes.data(), bytes.size());
}

}  // namespace

const V2Plugin* library_plugin_v2(nb::handle object) {
  if (!nb::hasattr(object, "_handle") || !nb::isinstance<V2PluginHandle>(object.attr("_handle")))
    return nullptr;
  return &nb::cast<V2PluginHandle&>(object.attr("_handle")).get();
}

nb::object from_plugin_v2(V2Plugin plugin) {
  nb::object object = python_object_of(plugin.object());
  if (!object.is_none()) return object;
  auto* handle = new V2PluginHandle(std::move(plugin));
  return nb::module_::import_("opwright._plugins.library_v2")
      .attr("LibraryPluginV2")(nb::cast(handle, nb::rv_policy::take_ownership));
}

void bind_library_plugin_v2(nb::module_& m) {
  nb::class_<V2PluginHandle> c(m, "_V2PluginHandle", "A V2 plugin that a C++ library implements.");
  c.def_prop_ro("plugin_type",
                [](V2PluginHandle& self) {
                  return self.call([&] { return self.object().getPluginType(); });
                })
      .def_prop_ro("plugin_version",
                   [](V2PluginHandle& self) {
                     return self.call([&] { return self.object().getPluginVersion(); });
                   })
      .def_prop_rw(
          "plugin_namespace",
          [](V2PluginHandle& self) {
            return self.call([&] { return self.object().getPluginNamespace(); });
          },
          [](V2PluginHandle& self, const std::string& value) { self.get().set_namespace(value); })
      .def_prop_ro("tensorrt_version",
                   [](V2PluginHandle& self) {
                     return static_cast<IPluginV2&>(self.object()).getTensorRTVersion() & 0xFFFFFF;
                   })
      .def_prop_ro("num_outputs",
                   [](V2PluginHandle& self) {
                     return self.call([&] { return self.object().getNbOutputs(); });
                   })
      .def("get_output_dimensions", &get_output_dimensions)
      .def("get_output_datatype",
           [](V2PluginHandle& self, int32_t index, nb::handle input_types) {
             const auto types = vector_of<DataType>(input_types, "DataType");
             return self.call([&] {
               return self.object().getOutputDataType(index, types.data(), count(types));
             });
           })
      .def("supports_format_combination", &supports_format_combination)
      .def("configure_plugin", &configure_plugin)
      .def("get_workspace_size", &get_workspace_size)
      .def("initialize",
           [](V2PluginHandle& self) {
             return self.call([&] { return self.object().initialize(); });
           })
      .def("terminate", [](V2PluginHandle& self) { self.call([&] { self.object().terminate(); }); })
      .def(
          "attach_to_context",
          [](V2PluginHandle& self, uintptr_t cudnn, uintptr_t cublas, nb::handle allocator) {
            IGpuAllocator* const kept = self.keep(to_allocator(allocator));
            self.call([&] {
              self.object().attachToContext(reinterpret_cast<cudnnContext*>(cudnn),
                                            reinterpret_cast<cublasContext*>(cublas), kept);
            });
          },
          nb::arg("cudnn"), nb::arg("cublas"), nb::arg("allocator").none())
      .def("detach_from_context",
           [](V2PluginHandle& self) { self.call([&] { self.object().detachFromContext(); }); })
      .def("enqueue", &enqueue_v2)
      .def_prop_ro("serialization_size",
                   [](V2PluginHandle& self) {
                     return self.call([&] { return self.object().getSerializationSize(); });
                   })
      .def("serialize", &serialize)
      .def("destroy", &V2PluginHandle::destroy)
      .def(
          "clone", [](V2PluginHandle& self) { return new V2PluginHandle(self.get().clone()); },
          nb::rv_policy::take_ownership);
}

}  // namespace opwright::python
