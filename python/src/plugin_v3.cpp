// IPluginV3 implemented by Python classes, and C++ plugins as Python sees them.

#include "opwright/plugin_v3.h"

#include "base/error.h"
#include "dims_exprs.h"
#include "network/network.h"
#include "plugin/v3_operator.h"
#include "plugin_callbacks.h"

namespace opwright::python {
namespace {

/// A C++ plugin that Python owns; the Python class LibraryPlugin wraps it.
struct PluginHandle {
  std::unique_ptr<IPluginV3> plugin;
};

class Core final : public IPluginV3OneCore {
 public:
  explicit Core(nb::object object) : object_(std::move(object)) {}
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }
  AsciiChar const* getPluginName() const noexcept override { return get("plugin_name", name_); }
  AsciiChar const* getPluginVersion() const noexcept override {
    return get("plugin_version", version_);
  }
  AsciiChar const* getPluginNamespace() const noexcept override {
    return get("plugin_namespace", namespace_);
  }

 private:
  const char* get(const char* attribute, std::string& to) const noexcept {
    return guarded<const char*>(to.c_str(), [&] {
      to = text(object_.get(), attribute).value_or(to);
      return to.c_str();
    });
  }
  Reference object_;
  mutable std::string name_, version_ = "1", namespace_;
};

class Build final : public IPluginV3OneBuildV2 {
 public:
  explicit Build(nb::object object) : object_(std::move(object)) {}
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t num_inputs,
                          DynamicPluginTensorDesc const* out,
                          int32_t num_outputs) noexcept override {
    return run([&] {
      self().attr("configure_plugin")(list_of(in, num_inputs), list_of(out, num_outputs));
    });
  }

  int32_t getOutputDataTypes(DataType* outputs, int32_t num_outputs, DataType const* inputs,
                             int32_t num_inputs) const noexcept override {
    return run([&] {
      const auto types = sequence(self().attr("get_output_data_types")(list_of(inputs, num_inputs)),
                                  num_outputs, "get_output_data_types");
      for (int32_t o = 0; o < num_outputs; ++o) outputs[o] = nb::cast<DataType>(types[o]);
    });
  }

  int32_t getOutputShapes(DimsExprs const* inputs, int32_t num_inputs,
                          DimsExprs const* shape_inputs, int32_t num_shape_inputs,
                          DimsExprs* outputs, int32_t num_outputs,
                          IExprBuilder& builder) noexcept override {
    auto scope = std::make_shared<ExprScope>();
    const int32_t status = run([&] {
      nb::list in, shapes;
      for (int32_t i = 0; i < num_inputs; ++i) in.append(to_dim_exprs(inputs[i], scope));
      for (int32_t i = 0; i < num_shape_inputs; ++i)
        shapes.append(to_dim_exprs(shape_inputs[i], scope));
      const auto dims =
          sequence(self().attr("get_output_shapes")(in, shapes, ExprBuilderRef{&builder, scope}),
                   num_outputs, "get_output_shapes");
      for (int32_t o = 0; o < num_outputs; ++o)
        outputs[o] = from_dim_exprs(dims[o], str("get_output_shapes, output ", o));
    });
    scope->is_open = false;
    return status;
  }

  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* in_out,
                                 int32_t num_inputs, int32_t num_outputs) noexcept override {
    return guarded(false, [&] {
      return nb::cast<bool>(nb::bool_(self().attr("supports_format_combination")(
          pos, list_of(in_out, num_inputs + num_outputs), num_inputs)));
    });
  }

  int32_t getNbOutputs() const noexcept override {
    return guarded<int32_t>(kFailed, [&] {
      require(nb::hasattr(self(), "num_outputs"), "plugin class ",
              nb::cast<std::string>(self().type().attr("__name__")),
              " must set num_outputs, the number of its outputs");
      return nb::cast<int32_t>(self().attr("num_outputs"));
    });
  }

  size_t getWorkspaceSize(DynamicPluginTensorDesc const* in, int32_t num_inputs,
                          DynamicPluginTensorDesc const* out,
                          int32_t num_outputs) const noexcept override {
    return guarded<size_t>(0, [&]() -> size_t {
      if (!nb::hasattr(self(), "get_workspace_size")) return 0;
      return nb::cast<size_t>(
          self().attr("get_workspace_size")(list_of(in, num_inputs), list_of(out, num_outputs)));
    });
  }

  int32_t getNbTactics() noexcept override {
    return guarded<int32_t>(0, [&] {
      tactics_.clear();
      if (nb::hasattr(self(), "get_valid_tactics"))
        for (const nb::object& tactic :
             sequence(self().attr("get_valid_tactics")(), -1, "get_valid_tactics"))
          tactics_.push_back(nb::cast<int32_t>(nb::int_(tactic)));
      return static_cast<int32_t>(tactics_.size());
    });
  }
  int32_t getValidTactics(int32_t* tactics, int32_t count) noexcept override {
    for (int32_t i = 0; i < count && std::cmp_less(i, tactics_.size()); ++i)
      tactics[i] = tactics_[i];
    return 0;
  }

  char const* getTimingCacheID() noexcept override {
    return optional_text("timing_cache_id", timing_cache_id_);
  }
  char const* getMetadataString() noexcept override {
    return optional_text("metadata_string", metadata_);
  }
  int32_t getFormatCombinationLimit() noexcept override {
    return guarded<int32_t>(kDEFAULT_FORMAT_COMBINATION_LIMIT, [&]() -> int32_t {
      if (!nb::hasattr(self(), "format_combination_limit"))
        return kDEFAULT_FORMAT_COMBINATION_LIMIT;
      return nb::cast<int32_t>(self().attr("format_combination_limit"));
    });
  }
  int32_t getAliasedInput(int32_t output) noexcept override {
    return guarded<int32_t>(-1, [&]() -> int32_t {
      if (!nb::hasattr(self(), "get_aliased_input")) return -1;
      return nb::cast<int32_t>(self().attr("get_aliased_input")(output));
    });
  }

 private:
  const nb::object& self() const { return object_.get(); }
  const char* optional_text(const char* attribute, std::string& to) noexcept {
    return guarded<const char*>(nullptr, [&]() -> const char* {
      std::optional<std::string> value = text(self(), attribute);
      if (!value) return nullptr;
      to = std::move(*value);
      return to.c_str();
    });
  }
  Reference object_;
  std::vector<int32_t> tactics_;
  std::string timing_cache_id_, metadata_;
};

class RuntimePart final : public IPluginV3OneRuntime {
 public:
  RuntimePart(nb::object object, std::shared_ptr<IPluginResourceContext*> context)
      : object_(std::move(object)), context_(std::move(context)) {}
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  int32_t setTactic(int32_t tactic) noexcept override {
    return run([&] {
      if (nb::hasattr(self(), "set_tactic")) self().attr("set_tactic")(tactic);
    });
  }

  int32_t onShapeChange(PluginTensorDesc const* in, int32_t num_inputs, PluginTensorDesc const* out,
                        int32_t num_outputs) noexcept override {
    return run([&] {
      nb::list input_descs = list_of(in, num_inputs), output_descs = list_of(out, num_outputs);
      self().attr("on_shape_change")(input_descs, output_descs);
      enqueue_ = EnqueueCall(self(), std::move(input_descs), std::move(output_descs));
    });
  }

  int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs,
                  void* const* outputs, void* workspace, cudaStream_t stream) noexcept override {
    return run([&] { enqueue_(inputs, outputs, workspace, stream); });
  }

  IPluginV3* attachToContext(IPluginResourceContext* context) noexcept override;

  PluginFieldCollection const* getFieldsToSerialize() noexcept override {
    return guarded<PluginFieldCollection const*>(nullptr, [&] {
      return fields_.set(
          to_fields(self().attr("get_fields_to_serialize")(), "get_fields_to_serialize"));
    });
  }

 private:
  const nb::object& self() const { return object_.get(); }
  Reference object_;
  EnqueueCall enqueue_;
  std::shared_ptr<IPluginResourceContext*> context_;
  FieldsResult fields_;
};

/// The C++ face of a Python object with get_capability_interface and clone.
class PythonPlugin final : public IPluginV3 {
 public:
  PythonPlugin(nb::object object, std::shared_ptr<IPluginResourceContext*> context)
      : object_(std::move(object)), context_(std::move(context)) {}
  ~PythonPlugin() noexcept override {
    if (context_) *context_ = nullptr;
  }
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    return guarded<IPluginCapability*>(nullptr, [&]() -> IPluginCapability* {
      nb::object part = object_.get().attr("get_capability_interface")(type);
      if (part.is_none()) return nullptr;
      switch (type) {
        case PluginCapabilityType::kCORE:
          if (!core_) core_ = std::make_unique<Core>(part);
          return core_.get();
        case PluginCapabilityType::kBUILD:
          if (!build_) build_ = std::make_unique<Build>(part);
          return build_.get();
        case PluginCapabilityType::kRUNTIME:
          if (!runtime_) runtime_ = std::make_unique<RuntimePart>(part, context_);
          return runtime_.get();
      }
      return nullptr;
    });
  }

  IPluginV3* clone() noexcept override {
    return guarded<IPluginV3*>(nullptr, [&]() -> IPluginV3* {
      nb::object copy = object_.get().attr("clone")();
      require(!copy.is_none(), "clone() of plugin class ",
              nb::cast<std::string>(object_.get().type().attr("__name__")), " returned None");
      return to_plugin_v3(copy).release();
    });
  }

  const nb::object& object() const { return object_.get(); }

 private:
  Reference object_;
  std::shared_ptr<IPluginResourceContext*> context_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<Build> build_;
  std::unique_ptr<RuntimePart> runtime_;
};

IPluginV3* RuntimePart::attachToContext(IPluginResourceContext* context) noexcept {
  return guarded<IPluginV3*>(nullptr, [&]() -> IPluginV3* {
    auto shared = std::make_shared<IPluginResourceContext*>(context);
    nb::object attached = self().attr("attach_to_context")(ResourceContextRef{shared});
    require(!attached.is_none(), "attach_to_context() of plugin class ",
            nb::cast<std::string>(self().type().attr("__name__")), " returned None");
    if (nb::hasattr(attached, "_handle")) return to_plugin_v3(attached).release();
    return new PythonPlugin(attached, std::move(shared));
  });
}

/// The C++ plugin behind a LibraryPlugin, or null.
IPluginV3* handle_of(nb::handle object) {
  if (!nb::hasattr(object, "_handle") || !nb::isinstance<PluginHandle>(object.attr("_handle")))
    return nullptr;
  return nb::cast<PluginHandle&>(object.attr("_handle")).plugin.get();
}

template <class Part>
Part* part_of(const PluginHandle& self, PluginCapabilityType type) {
  return static_cast<Part*>(self.plugin->getCapabilityInterface(type));
}

Layer* add_plugin_v3(Network& network, nb::handle inputs, nb::handle shape_inputs,
                     nb::handle plugin) {
  std::vector<Tensor*> tensors;
  int num_inputs = 0, num_shape_inputs = 0;
  auto take = [&](nb::handle list, int& count, const char* what) {
    if (list.is_none()) return;
    require(nb::hasattr(list, "__iter__"), "add_plugin_v3: ", what, " must be a list of ITensor");
    for (nb::handle tensor : nb::iter(list)) {
      require(nb::isinstance<Tensor>(tensor), "add_plugin_v3: ", what, " has ",
              nb::cast<std::string>(nb::repr(tensor)), "; expected an ITensor of this network");
      tensors.push_back(nb::cast<Tensor*>(tensor));
      ++count;
    }
  };
  take(inputs, num_inputs, "inputs");
  take(shape_inputs, num_shape_inputs, "shape_inputs");
  // The network's own copy, so that what the caller does to the plugin later has no effect.
  OperatorPtr op = make_plugin_v3_operator(*to_plugin_v3(plugin), num_inputs, num_shape_inputs);
  return network.add_layer(std::move(op), tensors);
}

}  // namespace

std::unique_ptr<IPluginV3> to_plugin_v3(nb::handle object) {
  if (IPluginV3* plugin = handle_of(object); plugin != nullptr) {
    std::unique_ptr<IPluginV3> copy(plugin->clone());
    rethrow_pending_exception();
    require(copy != nullptr, "the plugin could not be cloned");
    return copy;
  }
  if (!nb::hasattr(object, "get_capability_interface") || !nb::hasattr(object, "clone"))
    throw nb::type_error(("expected an IPluginV3, an object with get_capability_interface and "
                          "clone; " +
                          nb::cast<std::string>(nb::repr(object)) + " came")
                             .c_str());
  return std::make_unique<PythonPlugin>(nb::borrow(object), nullptr);
}

nb::object python_object_of(IPluginV3& plugin) {
  if (auto* python = dynamic_cast<PythonPlugin*>(&plugin)) return python->object();
  return nb::none();
}

nb::object from_plugin_v3(std::unique_ptr<IPluginV3> plugin) {
  nb::object object = python_object_of(*plugin);
  if (!object.is_none()) return object;
  auto* handle = new PluginHandle{std::move(plugin)};
  return nb::module_::import_("opwright._plugin_classes")
      .attr("LibraryPlugin")(nb::cast(handle, nb::rv_policy::take_ownership));
}

void bind_plugin_v3(nb::module_& m) {
  bind_dims_exprs(m);
  bind_plugin_callbacks(m);
  nb::class_<PluginHandle>(m, "_PluginHandle", "A plugin that a C++ library implements.")
      .def_prop_ro(
          "name",
          [](const PluginHandle& self) {
            return part_of<IPluginV3OneCore>(self, PluginCapabilityType::kCORE)->getPluginName();
          })
      .def_prop_ro(
          "version",
          [](const PluginHandle& self) {
            return part_of<IPluginV3OneCore>(self, PluginCapabilityType::kCORE)->getPluginVersion();
          })
      .def_prop_ro("namespace",
                   [](const PluginHandle& self) {
                     return part_of<IPluginV3OneCore>(self, PluginCapabilityType::kCORE)
                         ->getPluginNamespace();
                   })
      .def_prop_ro("num_outputs",
                   [](const PluginHandle& self) {
                     auto* build = part_of<IPluginV3OneBuild>(self, PluginCapabilityType::kBUILD);
                     return build != nullptr ? build->getNbOutputs() : 0;
                   })
      .def("fields",
           [](const PluginHandle& self) {
             auto* runtime = part_of<IPluginV3OneRuntime>(self, PluginCapabilityType::kRUNTIME);
             const PluginFieldCollection* fields = runtime->getFieldsToSerialize();
             require(fields != nullptr, "the plugin gave no fields");
             return FieldCollection{copy_fields(*fields)};
           })
      .def(
          "clone",
          [](const PluginHandle& self) {
            std::unique_ptr<IPluginV3> copy(self.plugin->clone());
            require(copy != nullptr, "the plugin could not be cloned");
            return new PluginHandle{std::move(copy)};
          },
          nb::rv_policy::take_ownership);

  auto network = nb::borrow<nb::class_<Network>>(nb::type<Network>());
  network.def("add_plugin_v3", &add_plugin_v3, nb::arg("inputs"), nb::arg("shape_inputs"),
              nb::arg("plugin"), nb::rv_policy::reference_internal,
              "Adds an IPluginV3: a Python object, or one that a creator made. The network keeps a "
              "clone.");
  auto layer = nb::borrow<nb::class_<Layer>>(nb::type<Layer>());
  layer.def_prop_ro(
      "plugin",
      [](const Layer& self) -> nb::object {
        IPluginV3* plugin = plugin_of(*self.op());
        if (plugin == nullptr) {
          PyErr_Format(PyExc_AttributeError, "layer '%s' is not a V3 plugin, but a %s",
                       self.name().c_str(), std::string(self.op()->kind()).c_str());
          throw nb::python_error();
        }
        nb::object object = python_object_of(*plugin);
        if (!object.is_none()) return object;
        return from_plugin_v3(std::unique_ptr<IPluginV3>(plugin->clone()));
      },
      "Of layers that add_plugin_v3 or the ONNX parser made: the plugin.");
  m.attr("IPluginV3Layer") = nb::type<Layer>();
}

}  // namespace opwright::python
