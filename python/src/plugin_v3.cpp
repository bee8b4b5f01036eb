// IPluginV3 that Python classes implement, and Python's view of C++ plugins.

#include "opwright/plugin_v3.h"

#include <array>

#include "base/cast.h"
#include "base/error.h"
#include "dims_exprs.h"
#include "held.h"
#include "library_plugin.h"
#include "network/shape_inputs.h"
#include "plugin/abi/plugin_layers.h"
#include "plugin/abi/v3_plugin.h"
#include "plugin_faces.h"
#include "plugin_quick_classes.h"
#include "quick_launch_refs.h"
#include "reporting.h"

namespace opwright::python {
namespace {

constexpr const char* kExpected =
    "expected an IPluginV3, an object with get_capability_interface and clone; ";

/// Whether the object can be the C++ engine's IPluginV3.
bool is_plugin_v3(nb::handle object) {
  return nb::hasattr(object, "get_capability_interface") && nb::hasattr(object, "clone");
}

class OneBuildFace final : public BuildFace<IPluginV3OneBuildV2> {
 public:
  using BuildFace::BuildFace;

  int32_t getOutputDataTypes(DataType* outputs, int32_t num_outputs, DataType const* inputs,
                             int32_t num_inputs) const noexcept override {
    return run("get_output_data_types", [&] {
      take_types(self().attr("get_output_data_types")(list_of(inputs, num_inputs)), outputs,
                 num_outputs);
    });
  }

  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* in_out,
                                 int32_t num_inputs, int32_t num_outputs) noexcept override {
    return guarded(false, "supports_format_combination", [&] {
      return boolean(self().attr("supports_format_combination")(
          pos, list_of(in_out, num_inputs + num_outputs), num_inputs));
    });
  }

  int32_t getNbOutputs() const noexcept override {
    return guarded<int32_t>(kFailed, "num_outputs", [&] { return num_outputs_of(self()); });
  }

  size_t getWorkspaceSize(DynamicPluginTensorDesc const* in, int32_t num_inputs,
                          DynamicPluginTensorDesc const* out,
                          int32_t num_outputs) const noexcept override {
    return guarded<size_t>(0, "get_workspace_size", [&]() -> size_t {
      if (!nb::hasattr(self(), "get_workspace_size")) return 0;
      const int64_t size = integer(
          self().attr("get_workspace_size")(list_of(in, num_inputs), list_of(out, num_outputs)),
          "a number of bytes");
      require(size >= 0, "expected a number of bytes; ", size, " came");
      return static_cast<size_t>(size);
    });
  }

  char const* getTimingCacheID() noexcept override {
    return optional_text("timing_cache_id", timing_cache_id_);
  }
  char const* getMetadataString() noexcept override {
    return optional_text("metadata_string", metadata_);
  }
  int32_t getFormatCombinationLimit() noexcept override {
    return guarded<int32_t>(
        kDEFAULT_FORMAT_COMBINATION_LIMIT, "format_combination_limit", [&]() -> int32_t {
          nb::object value = optional_attribute(self(), "format_combination_limit");
          if (!value.is_valid()) return kDEFAULT_FORMAT_COMBINATION_LIMIT;
          const int64_t limit = integer(value, "a number of combinations");
          require(limit >= 1 && std::in_range<int32_t>(limit),
                  "expected a number of combinations, at least 1; ", limit, " came");
          return static_cast<int32_t>(limit);
        });
  }

 private:
  const char* optional_text(const char* attribute, std::string& to) noexcept {
    return guarded<const char*>(nullptr, attribute, [&]() -> const char* {
      std::optional<std::string> value = text(self(), attribute);
      if (!value) return nullptr;
      to = std::move(*value);
      return to.c_str();
    });
  }
  std::string timing_cache_id_, metadata_;
};

class OneRuntimeFace final : public RuntimeFace<IPluginV3OneRuntime> {
 public:
  OneRuntimeFace(nb::object object, std::shared_ptr<AttachedContext> context)
      : RuntimeFace(std::move(object)), context_(std::move(context)) {}

  int32_t onShapeChange(PluginTensorDesc const* in, int32_t num_inputs, PluginTensorDesc const* out,
                        int32_t num_outputs) noexcept override {
    return run("on_shape_change", [&] {
      nb::list input_descs = list_of(in, num_inputs), output_descs = list_of(out, num_outputs);
      self().attr("on_shape_change")(input_descs, output_descs);
      enqueue_ = EnqueueCall(self(), std::move(input_descs), std::move(output_descs));
    });
  }

  int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs,
                  void* const* outputs, void* workspace, cudaStream_t stream) noexcept override {
    return run("enqueue", [&] { enqueue_(inputs, outputs, workspace, stream); });
  }

  IPluginV3* attachToContext(IPluginResourceContext* context) noexcept override;

 private:
  EnqueueCall enqueue_;
  std::shared_ptr<AttachedContext> context_;
};

/// The C++ face of a Python object with get_capability_interface and clone.
class PythonPlugin final : public IPluginV3 {
 public:
  PythonPlugin(nb::object object, std::shared_ptr<AttachedContext> context)
      : object_(std::move(object)), context_(std::move(context)) {}
  ~PythonPlugin() noexcept override {
    if (context_) context_->end();
  }
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    return guarded<IPluginCapability*>(
        nullptr, "get_capability_interface", [&]() -> IPluginCapability* {
          nb::object part = object_.get().attr("get_capability_interface")(type);
          if (part.is_none()) return nullptr;
          if (is_quick_part(part)) {
            auto& face = quick_parts_.at(static_cast<size_t>(type));
            if (face == nullptr) face = make_quick_part(std::move(part), type);
            return face.get();
          }
          switch (type) {
            case PluginCapabilityType::kCORE:
              return face(core_, part, "plugin_name", "IPluginV3OneCore");
            case PluginCapabilityType::kBUILD:
              return face(build_, part, "supports_format_combination", "IPluginV3OneBuild");
            case PluginCapabilityType::kRUNTIME:
              return face(runtime_, part, "enqueue", "IPluginV3OneRuntime", context_);
          }
          return nullptr;
        });
  }

  IPluginV3* clone() noexcept override {
    return guarded<IPluginV3*>(nullptr, "clone", [&]() -> IPluginV3* {
      nb::object copy = object_.get().attr("clone")();
      return to_plugin_v3(copy).release();
    });
  }

  const nb::object& object() const { return object_.get(); }

 private:
  /// The part's face, made at the first request. `member` is an attribute that only such a part
  /// has.
  template <class Face, class... Args>
  static Face* face(std::unique_ptr<Face>& made, nb::object part, const char* member,
                    const char* expected, Args... args) {
    require(optional_attribute(part, member).is_valid(), "expected an ", expected, "; ",
            shown(part), " came, which has no ", member);
    if (!made) made = std::make_unique<Face>(std::move(part), std::move(args)...);
    return made.get();
  }

  Reference object_;
  std::shared_ptr<AttachedContext> context_;
  std::unique_ptr<CoreFace<IPluginV3OneCore>> core_;
  std::unique_ptr<OneBuildFace> build_;
  std::unique_ptr<OneRuntimeFace> runtime_;
  std::array<std::unique_ptr<IPluginCapability>, 3> quick_parts_;
};

IPluginV3* OneRuntimeFace::attachToContext(IPluginResourceContext* context) noexcept {
  return guarded<IPluginV3*>(nullptr, "attach_to_context", [&]() -> IPluginV3* {
    auto shared = std::make_shared<AttachedContext>(context);
    nb::object attached = self().attr("attach_to_context")(ResourceContextRef{shared});
    require(is_plugin_v3(attached), kExpected, shown(attached), " came");
    if (library_plugin(attached) != nullptr) return to_plugin_v3(attached).release();
    return new PythonPlugin(attached, std::move(shared));
  });
}

}  // namespace

std::unique_ptr<IPluginV3> to_plugin_v3(nb::handle object) {
  if (IPluginV3* plugin = library_plugin(object); plugin != nullptr) return clone_of(*plugin);
  require(is_plugin_v3(object), kExpected, shown(object), " came");
  return std::make_unique<PythonPlugin>(nb::borrow(object), nullptr);
}

nb::object python_object_of(IPluginV3& plugin) {
  if (auto* python = cast_to<PythonPlugin>(&plugin)) return python->object();
  return nb::none();
}

Layer* add_plugin_v3(Network& network, nb::handle inputs, nb::handle shape_inputs,
                     nb::handle plugin) {
  std::vector<Tensor*> tensors;
  int num_inputs = 0, num_shape_inputs = 0;
  auto take = [&](nb::handle list, int& count, const char* what) {
    if (list.is_none()) return;
    require(nb::hasattr(list, "__iter__"), "add_plugin_v3: ", what, " must be a list of ITensor");
    for (nb::handle tensor : nb::iter(list)) {
      // Function plugins may have absent inputs.
      if (tensor.is_none() && is_plugin_call(plugin)) {
        tensors.push_back(nullptr);
        continue;
      }
      require(nb::isinstance<Tensor>(tensor), "add_plugin_v3: ", what, " has ",
              nb::cast<std::string>(nb::repr(tensor)), "; expected an ITensor of this network");
      tensors.push_back(nb::cast<Tensor*>(tensor));
      ++count;
    }
  };
  take(inputs, num_inputs, "inputs");
  take(shape_inputs, num_shape_inputs, "shape_inputs");
  // The network clones the plugin, so that later changes by the caller have no effect.
  OperatorPtr op = operator_of_call(plugin, network);
  if (op == nullptr) {
    if (!is_plugin_v3(plugin)) throw nb::type_error(str(kExpected, shown(plugin), " came").c_str());
    try {
      op = make_plugin_v3_operator(*to_plugin_v3(plugin), num_inputs, num_shape_inputs);
    } catch (const Error& error) {
      // A plugin that lacks a part may have no name of its own.
      fail_with(error.code(), "add_plugin_v3 with an object of class ", class_name(plugin), ": ",
                error.what());
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (op->is_shape_input(static_cast<int>(i)) && tensors[i] != nullptr &&
        &tensors[i]->network() == &network)
      make_shape_inputs(*tensors[i]);
  return network.add_layer(std::move(op), tensors);
}

void bind_plugin_v3(nb::module_& m) {
  bind_dims_exprs(m);
  bind_plugin_callbacks(m);
  bind_library_plugin(m);
  bind_quick_launch(m);
  auto network = nb::borrow<ReportingClass<Network>>(nb::type<Network>());
  network.def("add_plugin_v3", &add_plugin_v3, nb::arg("inputs"), nb::arg("shape_inputs"),
              nb::arg("plugin").none(), nb::rv_policy::reference, nb::call_policy<HoldsMaker>(),
              "Adds an IPluginV3: a Python object, or one that a creator made. The network keeps a "
              "clone.");
  nb::class_<PluginV3Layer, Layer>(m, "IPluginV3Layer", "The layer of an IPluginV3.")
      .def_prop_ro(
          "plugin",
          [](const PluginV3Layer& self) {
            nb::object object = python_object_of(self.plugin());
            if (!object.is_none()) return object;
            return from_plugin_v3(clone_of(self.plugin()));
          },
          "The network's own plugin where Python implements it, else a clone.");
}

}  // namespace opwright::python
