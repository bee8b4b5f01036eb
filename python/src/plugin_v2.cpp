// IPluginV2DynamicExt implemented by Python classes.

#include "plugin_v2.h"

#include "base/cast.h"
#include "base/error.h"
#include "dims_exprs.h"
#include "gpu_allocator.h"
#include "held.h"
#include "library_plugin_v2.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/plugin_layers.h"
#include "plugin_faces.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// Whether the object can be the C++ engine's IPluginV2DynamicExt.
bool is_plugin_v2(nb::handle object) {
  for (const char* method : {"clone", "enqueue", "supports_format_combination"})
    if (!nb::hasattr(object, method)) return false;
  return !nb::hasattr(object, "get_capability_interface");
}

/// Error message for an object that is not a plugin.
std::string expected_plugin_v2(nb::handle object) {
  const bool is_v3 = nb::hasattr(object, "get_capability_interface");
  return "expected an IPluginV2DynamicExt with clone, enqueue and supports_format_combination; " +
         shown(object) + " came" + (is_v3 ? ", which is an IPluginV3" : "");
}

/// The resource context that a V2 plugin gets.
class V2Context final : public IPluginResourceContext {
 public:
  explicit V2Context(IGpuAllocator* allocator) : allocator_(allocator) {}
  IGpuAllocator* getGpuAllocator() const noexcept override { return allocator_; }
  IErrorRecorder* getErrorRecorder() const noexcept override { return nullptr; }

 private:
  IGpuAllocator* const allocator_;
};

/// The C++ face of a Python object that is an IPluginV2DynamicExt.
class V2Face final : public IPluginV2DynamicExt, public CaptureLimits, public AttachmentLimits {
 public:
  /// `is_owned`: whether the object ends with this face. The face then tells the object of its end.
  V2Face(nb::object object, bool is_owned) : object_(std::move(object)), is_owned_(is_owned) {}
  const nb::object& self() const { return object_.get(); }
  std::string capture_obstacle() const override { return capture_obstacle_of_class(self()); }
  bool wants_library_handles() const override {
    const nb::gil_scoped_acquire gil;
    constexpr const char* kMethod = "attach_to_context";
    const nb::object base = nb::module_::import_("opwright").attr("IPluginV2DynamicExt");
    const nb::object own = nb::getattr(self().type(), kMethod, nb::none());
    return !own.is_none() && !own.is(base.attr(kMethod));
  }

  int32_t getTensorRTVersion() const noexcept override {
    return static_cast<int32_t>(
        (static_cast<uint32_t>(PluginVersion::kV2_DYNAMICEXT_PYTHON) << 24U) |
        (static_cast<uint32_t>(NV_TENSORRT_VERSION) & 0xFFFFFFU));
  }

  AsciiChar const* getPluginType() const noexcept override { return get("plugin_type", type_); }
  AsciiChar const* getPluginVersion() const noexcept override {
    return get("plugin_version", version_);
  }
  AsciiChar const* getPluginNamespace() const noexcept override {
    return get("plugin_namespace", namespace_);
  }
  void setPluginNamespace(AsciiChar const* value) noexcept override {
    run("plugin_namespace", [&] { nb::setattr(self(), "plugin_namespace", nb::str(value)); });
  }

  int32_t getNbOutputs() const noexcept override {
    return guarded<int32_t>(kFailed, "num_outputs", [&] { return num_outputs_of(self()); });
  }

  DimsExprs getOutputDimensions(int32_t output, DimsExprs const* inputs, int32_t num_inputs,
                                IExprBuilder& builder) noexcept override {
    return guarded(DimsExprs{-1, {}}, "get_output_dimensions", [&] {
      const ExprScope scope = scope_of(builder);
      nb::list in;
      for (int32_t i = 0; i < num_inputs; ++i) in.append(to_dim_exprs(inputs[i], scope));
      return from_dim_exprs(
          self().attr("get_output_dimensions")(output, in, ExprBuilderRef{&builder, scope}),
          str("output ", output));
    });
  }

  DataType getOutputDataType(int32_t output, DataType const* inputs,
                             int32_t num_inputs) const noexcept override {
    // TensorRT's IPluginV2Ext spells the method in another way.
    constexpr const char* kMethod = "get_output_datatype";
    return guarded(DataType::kFLOAT, kMethod, [&] {
      const char* method =
          nb::hasattr(self(), "get_output_data_type") ? "get_output_data_type" : kMethod;
      return instance<DataType>(self().attr(method)(output, list_of(inputs, num_inputs)),
                                "DataType");
    });
  }

  bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* in_out, int32_t num_inputs,
                                 int32_t num_outputs) noexcept override {
    return guarded(false, "supports_format_combination", [&] {
      return boolean(self().attr("supports_format_combination")(
          pos, list_of(in_out, num_inputs + num_outputs), num_inputs));
    });
  }

  void configurePlugin(DynamicPluginTensorDesc const* in, int32_t num_inputs,
                       DynamicPluginTensorDesc const* out, int32_t num_outputs) noexcept override {
    run("configure_plugin", [&] {
      enqueue_ = {};
      num_inputs_ = num_inputs, num_outputs_ = num_outputs;
      self().attr("configure_plugin")(list_of(in, num_inputs), list_of(out, num_outputs));
    });
  }

  size_t getWorkspaceSize(PluginTensorDesc const* in, int32_t num_inputs,
                          PluginTensorDesc const* out,
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

  int32_t initialize() noexcept override {
    return guarded<int32_t>(kFailed, "initialize", [&]() -> int32_t {
      if (!nb::hasattr(self(), "initialize")) return 0;
      nb::object status = self().attr("initialize")();
      if (status.is_none()) return 0;
      const int64_t value = integer(status, "None or a status, 0 for success");
      return std::in_range<int32_t>(value) ? static_cast<int32_t>(value) : kFailed;
    });
  }
  void terminate() noexcept override { end("terminate"); }

  void attachToContext(cudnnContext* cudnn, cublasContext* cublas,
                       IGpuAllocator* allocator) noexcept override {
    run("attach_to_context", [&] {
      if (!nb::hasattr(self(), "attach_to_context")) return;
      context_.emplace(allocator);
      context_ref_ = {std::make_shared<AttachedContext>(&*context_)};
      self().attr("attach_to_context")(reinterpret_cast<uintptr_t>(cudnn),
                                       reinterpret_cast<uintptr_t>(cublas),
                                       context_allocator(context_ref_));
    });
  }
  void detachFromContext() noexcept override {
    end("detach_from_context");
    if (context_ref_.context) context_ref_.context->end();
  }

  int32_t enqueue(PluginTensorDesc const* input_descs, PluginTensorDesc const* output_descs,
                  void const* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t stream) noexcept override {
    return run("enqueue", [&] {
      // The call is made once for the shapes that configure_plugin() was given.
      if (!enqueue_) [[unlikely]]
        enqueue_.emplace(self(), list_of(input_descs, num_inputs_),
                         list_of(output_descs, num_outputs_));
      (*enqueue_)(inputs, outputs, workspace, stream);
    });
  }

  size_t getSerializationSize() const noexcept override {
    return guarded<size_t>(0, "serialize", [&] {
      serialized_ = serialized();
      return serialized_->size();
    });
  }
  void serialize(void* buffer) const noexcept override {
    run("serialize", [&] {
      const std::string bytes = serialized_ ? *serialized_ : serialized();
      std::memcpy(buffer, bytes.data(), bytes.size());
      serialized_.reset();
    });
  }

  void destroy() noexcept override {
    if (is_owned_) end("destroy");
    delete this;
  }
  IPluginV2DynamicExt* clone() const noexcept override {
    return guarded<IPluginV2DynamicExt*>(nullptr, "clone", [&]() -> IPluginV2DynamicExt* {
      nb::object copy = self().attr("clone")();
      require(is_plugin_v2(copy), "expected an IPluginV2DynamicExt; ", shown(copy), " came");
      return make_plugin_v2(copy, true);
    });
  }

 private:
  const char* get(const char* attribute, std::string& to) const noexcept {
    return guarded<const char*>(to.c_str(), attribute, [&] {
      to = text(self(), attribute).value_or(to);
      return to.c_str();
    });
  }

  std::string serialized() const {
    nb::object bytes = self().attr("serialize")();
    size_t characters = 0;
    if (nb::isinstance<nb::str>(bytes)) {  // many plugins return JSON
      characters = nb::len(bytes);
      bytes = bytes.attr("encode")();
    }
    require(nb::isinstance<nb::bytes>(bytes),
            "expected bytes, or a str, which is stored as UTF-8; ", shown(bytes), " came");
    std::string text(nb::cast<nb::bytes>(bytes).c_str(), nb::len(bytes));
    if (nb::hasattr(self(), "get_serialization_size")) {
      nb::object said = self().attr("get_serialization_size")();
      const int64_t size = integer(said, "the number of bytes of serialize()");
      const bool agrees =
          std::cmp_equal(size, text.size()) || (characters > 0 && std::cmp_equal(size, characters));
      require(agrees, "get_serialization_size() returned ", size, ", but serialize() returned ",
              text.size(), " bytes");
    }
    return text;
  }

  /// Calls a method that ends something. The caller may be a destructor, so exceptions are reported
  /// as Python reports those of __del__.
  void end(const char* method) noexcept {
    if (!Py_IsInitialized()) return;
    nb::gil_scoped_acquire gil;
    nb::error_scope raised_before;
    try {
      if (nb::hasattr(self(), method)) self().attr(method)();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(self());
    }
  }

  const Reference object_;
  const bool is_owned_;
  mutable std::string type_, version_ = "1", namespace_;
  mutable std::optional<std::string> serialized_;  // from getSerializationSize() to serialize()
  std::optional<V2Context> context_;
  ResourceContextRef context_ref_;  // empty once detached
  int32_t num_inputs_ = 0, num_outputs_ = 0;
  std::optional<EnqueueCall> enqueue_;
};

/// An InferContext for inputs whose shapes are all known.
struct KnownShapes final : InferContext {
  Expr declare_size_tensor(int, const Expr&, const Expr&) override {
    fail("V2 plugins have no size tensors");
  }
};

/// The extents of an output for inputs of known shapes.
nb::object get_output_shape(nb::handle object, int32_t index, nb::handle input_shapes) {
  const V2Plugin plugin(make_plugin_v2(object, false));
  KnownShapes context;
  ExprBuilder builder(context, plugin.num_outputs({}), false);
  std::vector<DimsExprs> inputs;
  for (const nb::object& shape : sequence(input_shapes, -1, "shapes"))
    inputs.push_back(builder.wrap(sym_shape(to_shape(shape))));
  const DimsExprs dims = plugin.call({}, [&] {
    return plugin.object().getOutputDimensions(index, inputs.data(),
                                               static_cast<int32_t>(inputs.size()), builder);
  });
  builder.check();
  Shape shape;
  for (const Expr& extent :
       builder.unwrap(dims, opwright::str("getOutputDimensions(", index, ") returned")))
    shape.push_back(extent.constant());
  return to_tuple(shape);
}

Layer* add_plugin_v2(Network& network, nb::handle inputs, nb::handle plugin) {
  std::vector<Tensor*> tensors;
  require(nb::hasattr(inputs, "__iter__"), "add_plugin_v2: inputs must be a list of ITensor");
  for (nb::handle tensor : nb::iter(inputs)) {
    require(nb::isinstance<Tensor>(tensor), "add_plugin_v2: inputs has ", shown(tensor),
            "; expected an ITensor of this network");
    tensors.push_back(nb::cast<Tensor*>(tensor));
  }
  if (library_plugin_v2(plugin) == nullptr && !is_plugin_v2(plugin))
    throw nb::type_error(expected_plugin_v2(plugin).c_str());
  // The network clones the plugin, so that later changes by the caller have no effect.
  const V2Plugin given(make_plugin_v2(plugin, false));
  OperatorPtr op = make_plugin_v2_operator(given.object(), static_cast<int>(tensors.size()));
  return network.add_layer(std::move(op), tensors);
}

}  // namespace

IPluginV2DynamicExt* make_plugin_v2(nb::handle object, bool is_owned) {
  if (const V2Plugin* library = library_plugin_v2(object)) {
    IPluginV2DynamicExt* copy = library->object().clone();
    require(copy != nullptr, "plugin ", opwright::str(library->identity()),
            ": clone() returned null");
    return copy;
  }
  require(is_plugin_v2(object), expected_plugin_v2(object));
  return new V2Face(nb::borrow(object), is_owned);
}

nb::object python_object_of(IPluginV2& plugin) {
  auto* face = cast_to<V2Face>(&plugin);
  return face != nullptr ? face->self() : nb::none();
}

void bind_plugin_v2(nb::module_& m) {
  m.attr("_TENSORRT_VERSION") = NV_TENSORRT_VERSION;
  nb::enum_<PluginCreatorVersion>(m, "PluginCreatorVersion", nb::is_arithmetic(),
                                  "Who implements a creator of V2 plugins.")
      .value("V1", PluginCreatorVersion::kV1)
      .value("V1_PYTHON", PluginCreatorVersion::kV1_PYTHON);
  bind_library_plugin_v2(m);
  m.def("_plugin_v2_output_shape", &get_output_shape, nb::arg("plugin"), nb::arg("index"),
        nb::arg("input_shapes"), "The extents of an output for inputs of these shapes.");
  auto network = nb::borrow<ReportingClass<Network>>(nb::type<Network>());
  network.def("add_plugin_v2", &add_plugin_v2, nb::arg("inputs"), nb::arg("plugin").none(),
              nb::rv_policy::reference, nb::call_policy<HoldsMaker>(),
              "Adds an IPluginV2DynamicExt: a Python object, or one that a creator made. The "
              "network keeps a clone.");
  nb::class_<PluginV2Layer, Layer>(m, "IPluginV2Layer", "The layer of a V2 plugin.")
      .def_prop_ro(
          "plugin",
          [](const PluginV2Layer& self) {
            nb::object object = python_object_of(self.plugin());
            return object.is_none() ? from_plugin_v2(V2Plugin::clone(self.plugin())) : object;
          },
          "The network's own plugin where Python implements it, else a clone.");
}

}  // namespace opwright::python
