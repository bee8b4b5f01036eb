#include "plugin_quick_classes.h"

#include <cstring>

#include "base/error.h"
#include "opwright/plugin_quick.h"
#include "plugin/abi/v3_plugin.h"
#include "plugin_faces.h"
#include "quick_launch_refs.h"

namespace opwright::python {
namespace {

bool is_instance(nb::handle object, const char* class_name) {
  nb::object type = nb::module_::import_("opwright._plugins.classes_quick").attr(class_name);
  return nb::isinstance(object, type);
}

/// Build part of both kinds of plugins: plugins that are called, and plugins with a compiled
/// kernel.
template <class Interface>
class QuickBuildFace : public BuildFace<Interface> {
 public:
  using BuildFace<Interface>::BuildFace;

  int32_t getNbOutputs() const noexcept override {
    constexpr const char* kMethod = "get_num_outputs";
    return guarded<int32_t>(kFailed, kMethod,
                            [&] { return int32(self().attr(kMethod)(), "the number of outputs"); });
  }

  int32_t getOutputDataTypes(DataType* outputs, int32_t num_outputs, DataType const* inputs,
                             int32_t const* ranks, int32_t num_inputs) const noexcept override {
    constexpr const char* kMethod = "get_output_data_types";
    return run(kMethod, [&] {
      this->take_types(
          self().attr(kMethod)(list_of(inputs, num_inputs), list_of(ranks, num_inputs)), outputs,
          num_outputs);
    });
  }

  int32_t getNbSupportedFormatCombinations(DynamicPluginTensorDesc const* in_out,
                                           int32_t num_inputs,
                                           int32_t num_outputs) noexcept override {
    constexpr const char* kMethod = "get_supported_format_combinations";
    return guarded<int32_t>(kFailed, kMethod, [&] {
      const int32_t ports = num_inputs + num_outputs;
      const auto entries = sequence(self().attr(kMethod)(list_of(in_out, ports), num_inputs), -1,
                                    "PluginTensorDesc");
      require(!entries.empty() && entries.size() % static_cast<size_t>(ports) == 0,
              "expected a list of PluginTensorDesc, one for each of the ", ports,
              " inputs and outputs of each combination; ", entries.size(), " came");
      combinations_.clear();
      for (const nb::object& entry : entries)
        combinations_.push_back(instance<PluginTensorDesc>(entry, "PluginTensorDesc"));
      return static_cast<int32_t>(combinations_.size()) / ports;
    });
  }
  int32_t getSupportedFormatCombinations(DynamicPluginTensorDesc const*, int32_t, int32_t,
                                         PluginTensorDesc* combinations,
                                         int32_t) noexcept override {
    std::copy(combinations_.begin(), combinations_.end(), combinations);
    return 0;
  }

  char const* getTimingCacheID() noexcept override {
    return text_of("get_timing_cache_id", timing_cache_id_);
  }
  char const* getMetadataString() noexcept override {
    return text_of("get_metadata_string", metadata_);
  }

 protected:
  using BuildFace<Interface>::self;

 private:
  const char* text_of(const char* method, std::string& to) noexcept {
    return guarded<const char*>(nullptr, method, [&]() -> const char* {
      nb::object value = self().attr(method)();
      if (value.is_none()) return nullptr;
      require(nb::isinstance<nb::str>(value), "expected a str or None; ", shown(value), " came");
      to = nb::cast<std::string>(value);
      return to.c_str();
    });
  }
  std::vector<PluginTensorDesc> combinations_;
  std::string timing_cache_id_, metadata_;
};

class QuickAotBuildFace final : public QuickBuildFace<IPluginV3QuickAOTBuild>, public KernelTarget {
 public:
  using QuickBuildFace::QuickBuildFace;

  int32_t setTactic(int32_t tactic) noexcept override {
    return run("set_tactic", [&] { self().attr("set_tactic")(tactic); });
  }

  int32_t getLaunchParams(DimsExprs const* inputs, DynamicPluginTensorDesc const* in_out,
                          int32_t num_inputs, int32_t num_outputs,
                          IKernelLaunchParams* launch_params, ISymExprs* arguments,
                          IExprBuilder& builder) noexcept override {
    return run("get_launch_params", [&] {
      const ExprScope scope = scope_of(builder);
      const LaunchRefs refs(*launch_params, *arguments);
      self().attr("get_launch_params")(
          to_list(inputs, num_inputs, scope), list_of(in_out, num_inputs + num_outputs), num_inputs,
          refs.launch_params(), refs.arguments(), ExprBuilderRef{&builder, scope});
    });
  }

  int32_t getKernel(PluginTensorDesc const* in, int32_t num_inputs, PluginTensorDesc const* out,
                    int32_t num_outputs, char const** name, char** code,
                    int32_t* size) noexcept override {
    return run("get_kernel", [&] {
      nb::object result =
          self().attr("get_kernel")(list_of(in, num_inputs), list_of(out, num_outputs));
      const bool is_pair = nb::isinstance<nb::tuple>(result) && nb::len(result) == 2;
      require(is_pair && is_text(result[0]) && is_text(result[1]),
              "expected (kernel name, code), each a str or bytes; ", shown(result), " came");
      name_ = to_text(result[0]);
      code_ = to_text(result[1]);
      require(std::in_range<int32_t>(code_.size()), "expected at most 2 GiB of code; ",
              code_.size(), " bytes came");
      nb::object source = nb::borrow(result[1]);
      target_ = nb::hasattr(source, "target") ? nb::cast<std::string>(source.attr("target")) : "";
      *name = name_.c_str();
      *code = code_.data();
      *size = static_cast<int32_t>(code_.size());
    });
  }

  std::string kernel_target() const override { return target_; }

 private:
  std::string name_, code_, target_;
};

/// Descriptors, strides and the Python list of them, for the inputs or the outputs of a plugin.
class QuickPorts {
 public:
  /// Makes the lists anew if a descriptor or stride differs from the last call.
  void set(PluginTensorDesc const* descs, Dims const* strides, int32_t count) {
    const auto size = static_cast<size_t>(count);
    // The comparison includes padding bytes, which at worst makes the lists anew.
    if (addresses_ && size == descs_.size() &&
        std::memcmp(descs, descs_.data(), size * sizeof(*descs)) == 0 &&
        std::memcmp(strides, strides_.data(), size * sizeof(*strides)) == 0)
      return;
    descs_.assign(descs, descs + size);
    strides_.assign(strides, strides + size);
    desc_list_ = Reference(list_of(descs, count));
    nb::list list;
    for (size_t i = 0; i < size; ++i) list.append(Shape(strides[i]));
    stride_list_ = Reference(std::move(list));
    addresses_.emplace(count);
  }
  PyObject* descs() const { return desc_list_.get().ptr(); }
  PyObject* strides() const { return stride_list_.get().ptr(); }
  PyObject* addresses(void const* const* pointers) { return addresses_->set(pointers); }

 private:
  std::vector<PluginTensorDesc> descs_;
  std::vector<Dims> strides_;
  Reference desc_list_, stride_list_;
  std::optional<AddressList> addresses_;
};

class QuickRuntimeFace final : public RuntimeFace<IPluginV3QuickRuntime> {
 public:
  using RuntimeFace::RuntimeFace;

  int32_t enqueue(PluginTensorDesc const* input_desc, PluginTensorDesc const* output_desc,
                  void const* const* inputs, void* const* outputs, Dims const* input_strides,
                  Dims const* output_strides, int32_t num_inputs, int32_t num_outputs,
                  cudaStream_t stream) noexcept override {
    return run("enqueue", [&] {
      if (!enqueue_.is_valid()) enqueue_ = Reference(self().attr("enqueue"));
      inputs_.set(input_desc, input_strides, num_inputs);
      outputs_.set(output_desc, output_strides, num_outputs);
      call_method(enqueue_.get(), inputs_.descs(), outputs_.descs(), inputs_.addresses(inputs),
                  outputs_.addresses(outputs), inputs_.strides(), outputs_.strides(),
                  stream_.set(stream));
    });
  }

 private:
  Reference enqueue_;
  QuickPorts inputs_, outputs_;
  IntegerArgument stream_;
};

}  // namespace

bool is_quick_part(nb::handle object) {
  return is_instance(object, "IPluginV3QuickCore") || is_instance(object, "IPluginV3QuickBuild") ||
         is_instance(object, "IPluginV3QuickRuntime");
}

std::unique_ptr<IPluginCapability> make_quick_part(nb::object object, PluginCapabilityType type) {
  switch (type) {
    case PluginCapabilityType::kCORE:
      if (!is_instance(object, "IPluginV3QuickCore")) return nullptr;
      return std::make_unique<CoreFace<IPluginV3QuickCore>>(std::move(object));
    case PluginCapabilityType::kBUILD:
      if (is_instance(object, "IPluginV3QuickAOTBuild"))
        return std::make_unique<QuickAotBuildFace>(std::move(object));
      if (!is_instance(object, "IPluginV3QuickBuild")) return nullptr;
      return std::make_unique<QuickBuildFace<IPluginV3QuickBuild>>(std::move(object));
    case PluginCapabilityType::kRUNTIME:
      if (!is_instance(object, "IPluginV3QuickRuntime")) return nullptr;
      return std::make_unique<QuickRuntimeFace>(std::move(object));
  }
  return nullptr;
}

}  // namespace opwright::python
