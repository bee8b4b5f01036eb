#include "run/seed_plugins.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../cpp/plugin/quick_test_plugin.h"
#include "../cpp/plugin/test_plugins.h"
#include "../cpp/plugin/v2_test_plugin.h"
#include "base/error.h"
#include "plugin/abi/v2_model.h"
#include "plugin/abi/v3_model.h"
#include "plugin/model/function_model.h"
#include "plugin/plugin_operators.h"
#include "symbolic/expr.h"

namespace opwright::fuzz {
namespace {

[[noreturn]] void die(const char* plugin, const char* what) {
  std::fprintf(stderr, "fuzz: %s: %s\n", plugin, what);
  std::abort();
}

int64_t bytes_at(const PluginTensorDesc& desc) {
  return tensor_bytes(Shape(desc.dims), desc.type, desc.format);
}

uint8_t read_all(const void* data, int64_t bytes) {
  const auto* from = static_cast<const volatile uint8_t*>(data);
  uint8_t sum = 0;
  for (int64_t i = 0; i < bytes; ++i) sum = static_cast<uint8_t>(sum + from[i]);
  return sum;
}

bool is_plain(const PluginTensorDesc& desc) {
  return desc.format == TensorFormat::kLINEAR && desc.type == DataType::kFLOAT;
}
bool is_flexible(const PluginTensorDesc& desc) {
  return (desc.format == TensorFormat::kLINEAR || desc.format == TensorFormat::kHWC) &&
         (desc.type == DataType::kFLOAT || desc.type == DataType::kHALF);
}

/// Reads the input and writes as many bytes of the output as there are, of the same type.
void copy_all(const char* plugin, const PluginTensorDesc& in, const PluginTensorDesc& out,
              const void* from, void* to) {
  if (in.type != out.type || in.format != out.format) die(plugin, "its types differ");
  const int64_t bytes = bytes_at(in);
  if (bytes != bytes_at(out)) die(plugin, "its input and output differ in size");
  const uint8_t sum = read_all(from, bytes);
  if (from != to && bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
  if (bytes > 0) static_cast<uint8_t*>(to)[bytes - 1] = sum;
}

Behavior& v3_behavior() {
  static Behavior behavior = [] {
    Behavior b;
    b.name = "fuzz_v3";
    b.num_inputs = 1;
    b.workspace = 192;
    b.supports = [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
      return is_flexible(p[pos].desc) && (pos == 0 || (p[pos].desc.type == p[0].desc.type &&
                                                       p[pos].desc.format == p[0].desc.format));
    };
    b.tactics = [](DataType) { return std::vector<int32_t>{1, 2}; };
    b.enqueue = [](PluginTensorDesc const* in, PluginTensorDesc const* out,
                   void const* const* inputs, void* const* outputs, void* workspace,
                   int32_t tactic) {
      if (!is_flexible(in[0])) die("fuzz_v3", "types and formats that it did not accept");
      if (tactic != 1 && tactic != 2) die("fuzz_v3", "a tactic that it does not have");
      std::memset(workspace, 1, 192);
      copy_all("fuzz_v3", in[0], out[0], inputs[0], outputs[0]);
      return 0;
    };
    return b;
  }();
  return behavior;
}

Behavior& in_place_behavior() {
  static Behavior behavior = [] {
    Behavior b;
    b.name = "fuzz_in_place";
    b.num_inputs = 1;
    b.aliased = [](int32_t) { return 0; };
    b.enqueue = [](PluginTensorDesc const* in, PluginTensorDesc const* out,
                   void const* const* inputs, void* const* outputs, void*, int32_t) {
      if (inputs[0] != outputs[0] && bytes_at(in[0]) > 0)
        die("fuzz_in_place", "it does not run in place");
      copy_all("fuzz_in_place", in[0], out[0], inputs[0], outputs[0]);
      return 0;
    };
    return b;
  }();
  return behavior;
}

Behavior& size_behavior() {
  static Behavior behavior = [] {
    Behavior b;
    b.name = "fuzz_size";
    b.num_inputs = 1;
    b.num_outputs = 2;
    b.types = [](DataType* out, int32_t, DataType const*, int32_t) {
      out[0] = DataType::kFLOAT;
      out[1] = DataType::kINT32;
      return 0;
    };
    b.shapes = [](DimsExprs const* in, int32_t, DimsExprs const*, int32_t, DimsExprs* out, int32_t,
                  IExprBuilder& e) {
      const IDimensionExpr* upper = e.constant(1);
      for (int32_t i = 0; i < in[0].nbDims; ++i)
        upper = e.operation(DimensionOperation::kPROD, *upper, *in[0].d[i]);
      out[0].nbDims = 1;
      out[0].d[0] = e.declareSizeTensor(1, *upper, *upper);
      out[1].nbDims = 0;
      return 0;
    };
    b.supports = [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
      return p[pos].desc.format == TensorFormat::kLINEAR &&
             p[pos].desc.type == (pos == 2 ? DataType::kINT32 : DataType::kFLOAT);
    };
    b.enqueue = [](PluginTensorDesc const* in, PluginTensorDesc const* out,
                   void const* const* inputs, void* const* outputs, void*, int32_t) {
      if (!is_plain(in[0]) || out[0].type != DataType::kFLOAT || out[1].type != DataType::kINT32)
        die("fuzz_size", "types and formats that it did not accept");
      const int64_t bytes = bytes_at(in[0]);
      read_all(inputs[0], bytes);
      if (bytes > 0) std::memcpy(outputs[0], inputs[0], static_cast<size_t>(bytes));
      // A plugin may say anything.
      int32_t count = static_cast<int32_t>(bytes / 4);
      float first = 0;
      if (bytes > 0) std::memcpy(&first, inputs[0], 4);
      if (first == 1000.0f) count = INT32_MAX;
      if (first == 1001.0f) count = -1;
      if (first > 0 && first < 8) count = std::min(count, static_cast<int32_t>(first));
      std::memcpy(outputs[1], &count, sizeof(count));
      return 0;
    };
    return b;
  }();
  return behavior;
}

Behavior& shape_behavior() {
  static Behavior behavior = [] {
    Behavior b;
    b.name = "fuzz_shape";
    b.num_inputs = 1;
    b.shapes = [](DimsExprs const* in, int32_t, DimsExprs const* values, int32_t count,
                  DimsExprs* out, int32_t, IExprBuilder& e) {
      if (count != 1 || values[0].nbDims != 1 || values[0].d[0] == nullptr) return 1;
      out[0] = in[0];
      out[0].d[0] = e.operation(DimensionOperation::kPROD, *in[0].d[0], *values[0].d[0]);
      return 0;
    };
    b.supports = [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t n, int32_t m) {
      const bool is_value = pos == 1 && n + m == 3;
      return p[pos].desc.format == TensorFormat::kLINEAR &&
             p[pos].desc.type == (is_value ? DataType::kINT64 : DataType::kFLOAT);
    };
    b.enqueue = [](PluginTensorDesc const* in, PluginTensorDesc const* out,
                   void const* const* inputs, void* const* outputs, void*, int32_t) {
      if (!is_plain(in[0]) || !is_plain(out[0]))
        die("fuzz_shape", "types and formats that it did not accept");
      const uint8_t sum = read_all(inputs[0], bytes_at(in[0]));
      const int64_t bytes = bytes_at(out[0]);
      if (bytes > 0) std::memset(outputs[0], sum & 1, static_cast<size_t>(bytes));
      return 0;
    };
    return b;
  }();
  return behavior;
}

Behavior& v2_behavior() {
  static Behavior behavior = [] {
    Behavior b;
    b.name = "fuzz_v2";
    b.num_inputs = 1;
    b.workspace = 256;
    b.supports = [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
      return is_plain(p[pos].desc);
    };
    b.enqueue = [](PluginTensorDesc const* in, PluginTensorDesc const* out,
                   void const* const* inputs, void* const* outputs, void* workspace, int32_t) {
      if (!is_plain(in[0])) die("fuzz_v2", "types and formats that it did not accept");
      std::memset(workspace, 2, 256);
      copy_all("fuzz_v2", in[0], out[0], inputs[0], outputs[0]);
      return 0;
    };
    return b;
  }();
  // It notes every call.
  behavior.calls.clear();
  return behavior;
}

Behavior& v3_quick_behavior() {
  static Behavior behavior = [] {
    Behavior b;
    b.name = "quick_test";
    b.plugin_namespace = "ns";
    b.num_inputs = 1;
    b.combinations = {
        {{DataType::kFLOAT, TensorFormat::kLINEAR}, {DataType::kFLOAT, TensorFormat::kLINEAR}}};
    b.enqueue = [](PluginTensorDesc const* in, PluginTensorDesc const*, void const* const* inputs,
                   void* const* outputs, void*, int32_t) {
      if (!is_plain(in[0])) die("quick_test", "types and formats that it did not accept");
      copy_all("quick_test", in[0], in[0], inputs[0], outputs[0]);
      return 0;
    };
    return b;
  }();
  return behavior;
}

// Creators that believe nothing of what they are given, as those of real plugins should.

class V3Creator final : public IPluginCreatorV3One {
 public:
  explicit V3Creator(Behavior& b) : b_(b) {}
  IPluginV3* createPlugin(AsciiChar const*, PluginFieldCollection const*,
                          TensorRTPhase) noexcept override {
    return new TestPlugin(b_);
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return &names_; }
  char const* getPluginName() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  char const* getPluginNamespace() const noexcept override { return ""; }

 private:
  Behavior& b_;
  PluginFieldCollection names_{};
};

class V2Creator final : public IPluginCreator {
 public:
  explicit V2Creator(Behavior& b) : b_(b) {}
  IPluginV2* createPlugin(char const*, PluginFieldCollection const*) noexcept override {
    return new V2TestPlugin(b_, 7);
  }
  IPluginV2* deserializePlugin(char const*, void const* data, size_t size) noexcept override {
    read_all(data, static_cast<int64_t>(size));
    return size == 8 ? new V2TestPlugin(b_, 7) : nullptr;
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return &names_; }
  char const* getPluginName() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  void setPluginNamespace(char const*) noexcept override {}
  char const* getPluginNamespace() const noexcept override { return ""; }

 private:
  Behavior& b_;
  PluginFieldCollection names_{};
};

class QuickCreator final : public IPluginCreatorV3Quick {
 public:
  explicit QuickCreator(Behavior& b) : b_(b) {}
  IPluginV3* createPlugin(AsciiChar const*, AsciiChar const*, PluginFieldCollection const* fields,
                          TensorRTPhase, QuickPluginCreationRequest) noexcept override {
    int32_t type = -1;
    if (fields->nbFields == 1 && fields->fields[0].type == PluginFieldType::kINT32 &&
        fields->fields[0].length == 1)
      std::memcpy(&type, fields->fields[0].data, sizeof(type));
    return new QuickTestPlugin(b_, type);
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return nullptr; }
  char const* getPluginName() const noexcept override { return "quick_test"; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return "ns"; }

 private:
  Behavior& b_;
};

/// y = x * scale, of the type of x; both may be tuned to other floating types.
class FunctionScale final : public FunctionPlugin {
 public:
  const std::string& name() const override { return name_; }
  const std::string& plugin_namespace() const override { return namespace_; }
  const std::vector<FunctionParameter>& parameters() const override { return parameters_; }
  int num_outputs() const override { return 1; }
  bool has_impl(DeviceType device) const override { return device == DeviceType::kCPU; }
  bool has_aot_impl(DeviceType) const override { return false; }
  bool has_autotune() const override { return false; }
  std::vector<std::string> impl_attributes() const override { return {"scale"}; }
  std::vector<OutputInfo> infer(InferContext& context, const FieldValues&) const override {
    OutputInfo output;
    static_cast<TensorInfo&>(output) = *context.inputs[0];
    output.values = nullptr;
    return {output};
  }
  std::vector<Candidate> autotune(const CandidateQuery&, const FieldValues&) const override {
    return {};
  }
  std::unique_ptr<Kernel> attach(const KernelArgs& args, const FieldValues&,
                                 const FunctionOutputs&) const override {
    struct Callback final : Kernel {
      PortDesc in, out;
      int64_t in_bytes = 0, out_bytes = 0;
      static bool is_tuned(const PortDesc& port) {
        return is_floating(port.type.dtype) ||
               (port.type.dtype == DataType::kINT8 && port.scale > 0);
      }
      void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
        if (inputs[0] != outputs[0]) die("fuzz::scale", "its input and output differ in shape");
        in_bytes = tensor_bytes(inputs[0], in.type.dtype, in.type.format);
        out_bytes = tensor_bytes(outputs[0], out.type.dtype, out.type.format);
      }
      void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
        if (in.type.dtype != out.type.dtype && !(is_tuned(in) && is_tuned(out)))
          die("fuzz::scale", "its input and output have types that no tuning gives");
        const uint8_t sum = read_all(inputs[0], in_bytes);
        if (out_bytes > 0) std::memset(outputs[0], sum & 1, static_cast<size_t>(out_bytes));
      }
    };
    auto kernel = std::make_unique<Callback>();
    kernel->in = args.inputs[0];
    kernel->out = args.outputs[0];
    return kernel;
  }
  KernelCode compile(const KernelArgs&, const FieldValues&) const override {
    fail("fuzz::scale has no compiled form");
  }

 private:
  std::string name_ = "scale", namespace_ = "fuzz";
  std::vector<FunctionParameter> parameters_ = {
      {.name = "x", .kind = ParameterKind::kTensor},
      {.name = "scale", .type = PluginFieldType::kFLOAT32}};
};

}  // namespace

PluginRegistry& seed_registry() {
  static PluginRegistry* const registry = [] {
    static V3Creator v3(v3_behavior()), in_place(in_place_behavior()), size(size_behavior()),
        shape(shape_behavior());
    static V2Creator v2(v2_behavior());
    static QuickCreator quick(v3_quick_behavior());
    register_function_plugin(std::make_shared<FunctionScale>());
    auto* made = new PluginRegistry();
    for (V3Creator* creator : {&v3, &in_place, &size, &shape}) made->add(*creator, "");
    made->add(v2, "");
    made->add(quick, "ns");
    return made;
  }();
  v2_behavior();
  return *registry;
}

OperatorPtr v2_plugin() { return adopt_plugin_v2(V2Plugin(new V2TestPlugin(v2_behavior(), 7)), 1); }

OperatorPtr v3_plugin() {
  TestPlugin plugin(v3_behavior());
  return make_plugin_v3_operator(plugin, 1, 0);
}

OperatorPtr in_place_plugin() {
  TestPlugin plugin(in_place_behavior());
  return make_plugin_v3_operator(plugin, 1, 0);
}

OperatorPtr size_plugin() {
  TestPlugin plugin(size_behavior());
  return make_plugin_v3_operator(plugin, 1, 0);
}

OperatorPtr shape_plugin() {
  TestPlugin plugin(shape_behavior());
  return make_plugin_v3_operator(plugin, 1, 1);
}

OperatorPtr quick_plugin() {
  QuickTestPlugin plugin(v3_quick_behavior());
  return make_plugin_v3_operator(plugin, 1, 0);
}

OperatorPtr function_plugin() {
  seed_registry();
  const float scale = 2;
  return make_function_operator(
      find_function_plugin("fuzz", "scale"),
      {{"scale", PluginFieldType::kFLOAT32, 1, Blob::copy(&scale, sizeof(scale))}},
      FunctionMode::kCallback);
}

}  // namespace opwright::fuzz
