// IPluginV2Ext and IPluginV2IOExt: what they are told, and that it runs.

#include "plugin/abi/fixed_shape_plugin.h"

#include <algorithm>

#include "plugin/abi/v2_model.h"
#include "plugin/engine_for_test.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/registry.h"

namespace opwright {
namespace {

using Calls = std::vector<std::string>;

std::string text(const Dims& dims) { return Shape(dims).str(); }

/// What all objects of a test share.
struct Notes {
  Calls calls;
  int live = 0;
  bool can_clone = true;
  TensorFormat format = TensorFormat::kLINEAR;
};

/// y = x repeated along the last axis by the number in `times`, an INT32 vector that is not read:
/// what only fixed shapes allow. It keeps the extents that it was configured for. `Base` is one of
/// the two interfaces.
template <class Base>
class Repeat : public Base {
 public:
  Repeat(Notes& notes, int32_t times) : notes_(notes), stored_{times, 0, 0} { ++notes_.live; }
  Repeat(Notes& notes, void const* data) : notes_(notes) {
    std::memcpy(stored_, data, sizeof(stored_));
    ++notes_.live;
  }
  Repeat(Repeat const& other) : Base(other), notes_(other.notes_) {
    std::copy_n(other.stored_, 3, stored_);
    ++notes_.live;
  }
  ~Repeat() override { --notes_.live; }

  char const* getPluginType() const noexcept override { return "repeat"; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  void setPluginNamespace(char const* value) noexcept override { namespace_ = value; }
  char const* getPluginNamespace() const noexcept override { return namespace_.c_str(); }
  int32_t getNbOutputs() const noexcept override { return 1; }
  Dims getOutputDimensions(int32_t, Dims const* inputs, int32_t count) noexcept override {
    note("dimensions of " + text(inputs[0]) + " and " + text(inputs[count - 1]));
    Dims out = inputs[0];
    out.d[out.nbDims - 1] *= stored_[0];
    return out;
  }
  DataType getOutputDataType(int32_t, DataType const* types, int32_t) const noexcept override {
    return types[0];
  }
  size_t getWorkspaceSize(int32_t batch) const noexcept override {
    note("workspace of " + std::to_string(batch));
    return 64;
  }
  int32_t initialize() noexcept override {
    note("initialize");
    return 0;
  }
  void terminate() noexcept override { note("terminate"); }
  void attachToContext(cudnnContext*, cublasContext*, IGpuAllocator* allocator) noexcept override {
    note(allocator != nullptr ? "attach" : "attach to nothing");
  }
  void detachFromContext() noexcept override { note("detach"); }
  int32_t enqueue(int32_t batch, void const* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t) noexcept override {
    note("enqueue " + std::to_string(batch));
    if (workspace == nullptr) return 1;
    const auto* x = static_cast<float const*>(inputs[0]);
    auto* y = static_cast<float*>(outputs[0]);
    for (int32_t row = 0; row < batch * stored_[1]; ++row)
      for (int32_t i = 0; i < stored_[0]; ++i, y += stored_[2])
        std::copy_n(x + row * stored_[2], stored_[2], y);
    return 0;
  }
  size_t getSerializationSize() const noexcept override { return sizeof(stored_); }
  void serialize(void* buffer) const noexcept override {
    std::memcpy(buffer, stored_, sizeof(stored_));
  }
  void destroy() noexcept override { delete this; }

 protected:
  void note(const std::string& call) const { notes_.calls.push_back(call); }
  /// `input` has rows and columns.
  void keep(const Dims& input) {
    stored_[1] = static_cast<int32_t>(input.d[0]);
    stored_[2] = static_cast<int32_t>(input.d[1]);
  }

  Notes& notes_;

 private:
  int32_t stored_[3];
  std::string namespace_;
};

class ExtRepeat final : public Repeat<IPluginV2Ext> {
 public:
  using Repeat::Repeat;
  bool supportsFormat(DataType type, PluginFormat format) const noexcept override {
    EXPECT_NE(format, TensorFormat::kCHW4);
    return type == DataType::kFLOAT && format == notes_.format;
  }
  void configurePlugin(Dims const* in, int32_t inputs, Dims const* out, int32_t outputs,
                       DataType const* in_types, DataType const* out_types,
                       bool const* in_broadcast, bool const* out_broadcast, PluginFormat format,
                       int32_t batch) noexcept override {
    EXPECT_EQ(outputs, 1);
    for (int32_t i = 0; i < inputs; ++i) EXPECT_FALSE(in_broadcast[i]);
    EXPECT_FALSE(out_broadcast[0]);
    EXPECT_EQ(in_types[0], DataType::kFLOAT);
    EXPECT_EQ(out_types[0], DataType::kFLOAT);
    EXPECT_EQ(format, notes_.format);
    note("configure " + text(in[0]) + " to " + text(out[0]) + " batch " + std::to_string(batch));
    keep(in[0]);
  }
  ExtRepeat* clone() const noexcept override {
    return notes_.can_clone ? new ExtRepeat(*this) : nullptr;
  }
};

class IoExtRepeat final : public Repeat<IPluginV2IOExt> {
 public:
  using Repeat::Repeat;
  bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* ports, int32_t inputs,
                                 int32_t outputs) const noexcept override {
    EXPECT_EQ(outputs, 1);
    EXPECT_EQ(ports[0].dims.nbDims, 2);
    const DataType wanted = pos == 1 && inputs == 2 ? DataType::kINT32 : DataType::kFLOAT;
    return ports[pos].type == wanted && ports[pos].format == TensorFormat::kLINEAR;
  }
  void configurePlugin(PluginTensorDesc const* in, int32_t, PluginTensorDesc const* out,
                       int32_t) noexcept override {
    note("configure " + text(in[0].dims) + " to " + text(out[0].dims));
    keep(in[0].dims);
  }
  IoExtRepeat* clone() const noexcept override { return new IoExtRepeat(*this); }
};

template <class Plugin>
class Creator final : public IPluginCreator {
 public:
  explicit Creator(Notes& notes) : notes_(notes) {}
  char const* getPluginName() const noexcept override { return "repeat"; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  PluginFieldCollection const* getFieldNames() noexcept override { return nullptr; }
  IPluginV2Ext* createPlugin(char const*, PluginFieldCollection const*) noexcept override {
    return nullptr;
  }
  IPluginV2Ext* deserializePlugin(char const*, void const* data, size_t) noexcept override {
    return new Plugin(notes_, data);
  }
  void setPluginNamespace(char const*) noexcept override {}
  char const* getPluginNamespace() const noexcept override { return ""; }

 private:
  Notes& notes_;
};

/// The plan of the plugin on an input x of this shape, and perhaps a vector of INT32 as long as the
/// first extent.
Plan build_fixed(OperatorPtr op, const Shape& shape, bool has_vector = false) {
  Network network;
  std::vector<Tensor*> inputs{network.add_input("x", DataType::kFLOAT, shape)};
  if (has_vector) inputs.push_back(network.add_input("n", DataType::kINT32, {shape[0]}));
  Layer* layer = network.add_layer(std::move(op), inputs, "the plugin");
  layer->output(0)->set_name("y");
  network.mark_output(*layer->output(0));
  return deserialize(to_file(compile(network, {})));
}

/// The calls since the last time; runs of the same call count once.
Calls take(Notes& notes) {
  Calls calls = std::exchange(notes.calls, {});
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  return calls;
}

TEST(FixedShapePlugin, ExtIsToldShapesWithoutTheBatch) {
  Notes notes;
  Creator<ExtRepeat> creator(notes);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, ""));
  auto* plugin = new ExtRepeat(notes, 2);
  OperatorPtr op = make_plugin_v2_operator(*plugin, 1);
  EXPECT_NE(dynamic_cast<ExtRepeat*>(plugin_v2_of(*op)), nullptr);
  plugin->destroy();
  const Plan plan = build_fixed(std::move(op), {3, 2, 2});
  const std::string configured = "configure 2x2 to 2x4 batch 3";
  EXPECT_EQ(take(notes),
            (Calls{"dimensions of 2x2 and 2x2", configured, "workspace of 3", "initialize",
                   "attach", "enqueue 3", "detach", "attach", "detach", "terminate"}));
  EXPECT_EQ(notes.live, 0);

  LoadOptions options;
  options.plugins = &registry;
  std::shared_ptr<Engine> engine = Engine::load(plan, options);
  std::vector<float> x(12), y(24);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  {
    Context context(engine);
    context.set_input_address(0, x.data());
    context.set_output_address(0, y.data());
    context.enqueue();
  }
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], x[i / 4 * 2 + i % 2]) << i;
  // It was configured when it was built.
  EXPECT_EQ(take(notes), (Calls{"initialize", "attach", "enqueue 3", "detach"}));
  engine.reset();
  EXPECT_EQ(take(notes), Calls{"terminate"});
  EXPECT_EQ(notes.live, 0);
}

TEST(FixedShapePlugin, IoExtIsToldShapesWithoutTheBatch) {
  Notes notes;
  Creator<IoExtRepeat> creator(notes);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, ""));
  const Plan plan =
      build_fixed(adopt_plugin_v2(V2Plugin(new IoExtRepeat(notes, 3)), 2), {2, 1, 2}, true);
  const Calls calls = take(notes);
  EXPECT_EQ(calls.at(0), "dimensions of 1x2 and scalar");
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "configure 1x2 to 1x6"), 1);
  LoadOptions options;
  options.plugins = &registry;
  const std::shared_ptr<Engine> engine = Engine::load(plan, options);
  const std::vector<float> x{1, 2, 3, 4};
  const std::vector<int32_t> n{0, 0};
  std::vector<float> y(12);
  Context context(engine);
  context.set_input_address(0, x.data());
  context.set_input_address(1, n.data());
  context.set_output_address(0, y.data());
  context.enqueue();
  EXPECT_EQ(y, (std::vector<float>{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}));
}

TEST(FixedShapePlugin, ExtChoosesOneFormatForAllFloatingPorts) {
  Notes notes;
  const OperatorPtr op = adopt_plugin_v2(V2Plugin(new ExtRepeat(notes, 1)), 2);
  const std::vector<PortDesc> inputs = {port(DataType::kFLOAT, {2, 8, 4, 4}),
                                        port(DataType::kINT32, {2, 3})};
  const std::vector<PortDesc> outputs = {port(DataType::kFLOAT, {2, 8, 4, 4})};
  const std::vector<Candidate> linear = op->candidates(make_query(inputs, outputs));
  ASSERT_EQ(linear.size(), 1u);
  EXPECT_EQ(linear[0].inputs[1], (PortType{DataType::kINT32, TensorFormat::kLINEAR}));
  notes.format = TensorFormat::kHWC;
  const std::vector<Candidate> last = op->candidates(make_query(inputs, outputs));
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].inputs[0].format, TensorFormat::kHWC);
  EXPECT_EQ(last[0].inputs[1].format, TensorFormat::kLINEAR);
  EXPECT_EQ(last[0].outputs[0].format, TensorFormat::kHWC);
  notes.format = TensorFormat::kCHW4;  // which such plugins are never asked about
  EXPECT_CONTAINS(thrown_error([&] { op->candidates(make_query(inputs, outputs)); }),
                  "accepts no combination");
}

TEST(FixedShapePlugin, SaysWhatDoesNotFit) {
  Notes notes;
  const auto message = [&](std::vector<TensorInfo> tensors) {
    TestContext context(std::move(tensors));
    const int count = static_cast<int>(context.inputs.size());
    const OperatorPtr op = adopt_plugin_v2(V2Plugin(new ExtRepeat(notes, 1)), count);
    return thrown_error([&] { op->infer(context); });
  };
  const std::string who = "layer 'test layer': plugin 'repeat' (version 1, namespace ''): ";
  EXPECT_CONTAINS(
      message({tensor(DataType::kFLOAT, {Expr::symbol(0), 3})}),
      who + "input 0 has a dynamic extent, axis 0; plugins of this kind run with fixed");
  EXPECT_CONTAINS(message({tensor(DataType::kFLOAT, {2, Expr::symbol(1)})}), "axis 1");
  EXPECT_CONTAINS(message({tensor(DataType::kFLOAT, {})}), who + "input 0 is a scalar");
  EXPECT_CONTAINS(message({tensor(DataType::kFLOAT, {2, 3}), tensor(DataType::kFLOAT, {1, 3})}),
                  who + "input 1 has 1 as its first extent, and input 0 2");
  notes.can_clone = false;
  auto* plugin = new ExtRepeat(notes, 1);
  EXPECT_CONTAINS(thrown_error([&] { make_plugin_v2_operator(*plugin, 1); }),
                  "clone() returned null");
  plugin->destroy();
  const OperatorPtr op = adopt_plugin_v2(V2Plugin(new ExtRepeat(notes, 1)), 1);
  EXPECT_CONTAINS(
      thrown_error([&] {
        op->candidates(make_query({port(DataType::kFLOAT, {2, 3})}, {port(DataType::kFLOAT, {2})}));
      }),
      "clone() returned null");
}

}  // namespace
}  // namespace opwright
