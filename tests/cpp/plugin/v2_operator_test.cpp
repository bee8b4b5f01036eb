#include "plugin/abi/v2_model.h"

#include <stdexcept>

#include "backend/backend.h"
#include "network/operator_registry.h"
#include "plugin/lookup.h"
#include "plugin/model/plugin_operator.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/registry.h"
#include "plugin/test_language.h"
#include "plugin/test_plugins.h"
#include "plugin/v2_test_plugin.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;
using Calls = std::vector<std::string>;

OperatorPtr make(V2Behavior& b, int inputs = 1) {
  return adopt_plugin_v2(V2Plugin(new V2TestPlugin(b, 7)), inputs);
}

TEST(V2Infer, ShapesAreExpressionsOverTheInputs) {
  V2Behavior b;
  b.num_outputs = 2;
  b.dimensions = [](int32_t output, DimsExprs const* in, IExprBuilder& builder) {
    EXPECT_FALSE(in[0].d[0]->isConstant());
    EXPECT_EQ(in[0].d[1]->getConstantValue(), 3);
    if (output == 1) return in[1];
    DimsExprs out = in[0];
    out.d[0] = builder.operation(DimensionOperation::kPROD, *in[0].d[0], *builder.constant(2));
    return out;
  };
  b.output_type = [](int32_t output, DT const* in) { return output == 0 ? in[1] : DT::kINT32; };
  TestContext context({tensor(DT::kFLOAT, {Expr::symbol(0), 3}), tensor(DT::kHALF, {5})});
  const std::vector<OutputInfo> outputs = make(b, 2)->infer(context);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].dtype, DT::kHALF);
  const int64_t symbols[] = {7};
  EXPECT_EQ(outputs[0].dims[0].evaluate(symbols), 14);
  EXPECT_EQ(outputs[0].dims[1].constant(), 3);
  EXPECT_EQ(outputs[1].dtype, DT::kINT32);
  EXPECT_EQ(constant_shape(outputs[1].dims), Shape({5}));
  EXPECT_EQ(outputs[0].aliased_input, -1);
}

TEST(V2Infer, NamesWhatIsWrong) {
  V2Behavior b;
  TestContext context({tensor(DT::kFLOAT, {4, 5})});
  const auto error_with = [&](auto dimensions) {
    b.dimensions = [dimensions](int32_t, DimsExprs const* in, IExprBuilder& builder) {
      DimsExprs out = in[0];
      dimensions(out, builder);
      return out;
    };
    const std::string message = thrown_error([&] { make(b)->infer(context); });
    EXPECT_CONTAINS(message,
                    "layer 'test layer': plugin 'v2_test_plugin' (version 1, namespace ''): "
                    "getOutputDimensions(0)");
    return message;
  };
  EXPECT_CONTAINS(error_with([](DimsExprs& out, auto&) { out.nbDims = 9; }), "a rank of 9");
  EXPECT_CONTAINS(error_with([](DimsExprs& out, auto&) { out.nbDims = -1; }), "a rank of -1");
  EXPECT_CONTAINS(error_with([](DimsExprs& out, auto&) { out.d[1] = nullptr; }),
                  "for extent 1 no expression of this call's expression builder");
  EXPECT_CONTAINS(
      error_with([](DimsExprs& out, IExprBuilder& builder) { out.d[0] = builder.constant(-2); }),
      "for extent 0 the negative value -2");
  EXPECT_CONTAINS(error_with([](DimsExprs& out, IExprBuilder& builder) {
                    const IDimensionExpr& big = *builder.constant(int64_t{1} << 40);
                    out.d[0] = builder.operation(DimensionOperation::kPROD, big, big);
                  }),
                  "64 bits");
  EXPECT_CONTAINS(error_with([](DimsExprs& out, IExprBuilder& builder) {
                    out.d[0] =
                        builder.declareSizeTensor(0, *builder.constant(1), *builder.constant(2));
                  }),
                  "V2 plugins cannot have size tensors");

  b.dimensions = V2Behavior().dimensions;
  b.output_type = [](auto...) { return static_cast<DT>(40); };
  EXPECT_CONTAINS(thrown_error([&] { make(b)->infer(context); }),
                  "getOutputDataType(0) returned the unknown type 40");
  b.num_outputs = 0;
  EXPECT_CONTAINS(thrown_error([&] { make(b)->infer(context); }), "getNbOutputs() returned 0");
  EXPECT_CONTAINS(thrown_error([&] { make(b, 2)->infer(context); }), "was added with 2 inputs");
  EXPECT_EQ(b.live, 0);
}

TEST(V2Plugin, OtherGenerationsAreRefusedByName) {
  V2Behavior b;
  const std::pair<PluginVersion, const char*> generations[] = {
      {PluginVersion::kV2, "it implements IPluginV2;"},
      {static_cast<PluginVersion>(9), "it implements an unknown interface;"}};
  for (const auto& [generation, message] : generations) {
    b.generation = generation;
    const std::string adopted = thrown_error([&] { make(b); });
    EXPECT_CONTAINS(adopted, message);
    EXPECT_CONTAINS(adopted, "IPluginV2DynamicExt are supported");
    auto* plugin = new V2TestPlugin(b, 0);
    EXPECT_CONTAINS(thrown_error([&] { make_plugin_v2_operator(*plugin, 1); }), message);
    plugin->destroy();
  }
  b.generation = PluginVersion::kV2_DYNAMICEXT;
  b.can_clone = false;
  auto* plugin = new V2TestPlugin(b, 0);
  EXPECT_CONTAINS(thrown_error([&] { make_plugin_v2_operator(*plugin, 1); }),
                  "plugin 'v2_test_plugin' (version 1, namespace ''): clone() returned null");
  plugin->destroy();
  EXPECT_EQ(b.live, 0);
}

TEST(V2Candidates, AsksPortByPortWithTheTypesAccepted) {
  V2Behavior b;
  b.supports = [](int32_t pos, PluginTensorDesc const* p, int32_t n, int32_t m) {
    EXPECT_EQ(n, 2);
    EXPECT_EQ(m, 1);
    EXPECT_EQ(p[pos].dims.d[0], -1);
    if (pos > 0) {
      EXPECT_EQ(p[0].type, DT::kHALF);
      EXPECT_EQ(p[0].format, TF::kLINEAR);
    }
    return p[pos].format == TF::kLINEAR && p[pos].type == (pos == 0 ? DT::kHALF : DT::kFLOAT);
  };
  std::vector<PortDesc> in = {port(DT::kFLOAT, {2, 3}), port(DT::kFLOAT, {2, 3})}, out = {in[0]};
  for (std::vector<PortDesc>* ports : {&in, &out})
    for (PortDesc& each : *ports) each.max = {4, 3};
  CandidateQuery query = make_query(in, out);
  query.fp16 = true;
  const auto candidates = make(b, 2)->candidates(query);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].inputs[0], (PortType{DT::kHALF, TF::kLINEAR}));
  EXPECT_EQ(candidates[0].inputs[1], (PortType{DT::kFLOAT, TF::kLINEAR}));
  EXPECT_EQ(candidates[0].tactic, 0);
}

TEST(V2Candidates, FormatsLimitAndRefusal) {
  V2Behavior b;
  b.supports = [](int32_t pos, PluginTensorDesc const* p, auto...) {
    return p[pos].format == TF::kHWC8 && p[pos].type == DT::kHALF;
  };
  const std::vector<PortDesc> image = {port(DT::kHALF, {1, 8, 4, 4})};
  const auto candidates = make(b)->candidates(make_query(image, image));
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].outputs[0].format, TF::kHWC8);

  b.supports = [](auto...) { return true; };
  CandidateQuery query = make_query(image, image);
  query.bf16 = true;
  const auto all = make(b)->candidates(query);
  EXPECT_EQ(all.size(), size_t{IPluginV2DynamicExt::kFORMAT_COMBINATION_LIMIT});
  EXPECT_EQ(all[0].inputs[0].format, TF::kLINEAR);

  b.supports = [](auto...) { return false; };
  EXPECT_CONTAINS(thrown_error([&] { make(b)->candidates(make_query(image, image)); }),
                  "layer 'test layer': plugin 'v2_test_plugin' (version 1, namespace ''): "
                  "supportsFormatCombination() accepts no combination of types and formats; the "
                  "network's types are FP16 -> FP16");
  EXPECT_EQ(b.live, 0);
}

TEST(V2TimingKey, EveryInstanceIsTimed) {
  V2Behavior b;
  EXPECT_FALSE(make(b)->timing_key().has_value());
}

struct OneV2Kernel {
  OneV2Kernel() { ports[0].max = {8, 3}; }
  V2Behavior b;
  std::vector<PortDesc> ports = {port(DT::kFLOAT, {4, 3})};
  Candidate candidate{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};
  KernelArgs args() { return make_args(candidate, ports, ports); }
};

TEST(V2Kernel, IsConfiguredForTheProfileAndThenForEachShape) {
  OneV2Kernel r;
  r.b.workspace = 128;
  std::vector<Dims> shapes;
  r.b.configure = [&](DynamicPluginTensorDesc const* in, DynamicPluginTensorDesc const* out) {
    shapes.push_back(in[0].desc.dims);
    EXPECT_EQ(out[0].desc.dims.d[0], in[0].desc.dims.d[0]);
    EXPECT_EQ(in[0].min.d[0], 4);
    EXPECT_EQ(in[0].opt.d[0], 4);
    EXPECT_EQ(in[0].max.d[0], 8);
  };
  r.b.asked_workspace = [](PluginTensorDesc const* in, PluginTensorDesc const* out) {
    EXPECT_EQ(in[0].dims.d[0], 8);
    EXPECT_EQ(out[0].dims.d[0], 8);
  };
  PluginTensorDesc const* seen = nullptr;
  int input = 0, output = 0, scratch = 0;
  r.b.enqueue = [&](PluginTensorDesc const* in, PluginTensorDesc const* out,
                    void const* const* inputs, void* const* outputs, void* workspace) {
    EXPECT_EQ(in[0].dims.d[0], 5);
    EXPECT_EQ(out[0].dims.d[0], 5);
    EXPECT_EQ(in[0].type, DT::kFLOAT);
    EXPECT_EQ(in[0].scale, -1.0f);
    EXPECT_EQ(inputs[0], &input);
    EXPECT_EQ(outputs[0], &output);
    EXPECT_EQ(workspace, &scratch);
    EXPECT_TRUE(seen == nullptr || seen == in) << "descriptors are made once";
    seen = in;
    return 0;
  };
  const auto kernel = make_kernel(*make(r.b), r.args());
  EXPECT_EQ(kernel->workspace_size(), 128u);
  ASSERT_EQ(shapes.size(), 1u);
  EXPECT_EQ(shapes[0].d[0], -1);
  const Shape shape[] = {{5, 3}};
  kernel->on_shape_change(shape, shape);
  ASSERT_EQ(shapes.size(), 2u);
  EXPECT_EQ(shapes[1].d[0], 5);
  void const* const inputs[] = {&input};
  void* const outputs[] = {&output};
  for (int i = 0; i < 2; ++i) kernel->enqueue(inputs, outputs, &scratch, nullptr);
  EXPECT_EQ(shapes.size(), 2u);
}

TEST(V2Kernel, StatusesAreErrors) {
  OneV2Kernel r;
  r.b.initialize_status = 4;
  EXPECT_CONTAINS(thrown_error([&] { make_kernel(*make(r.b), r.args()); }),
                  "layer 'test layer': plugin 'v2_test_plugin' (version 1, namespace ''): "
                  "initialize() returned 4 instead of 0");
  EXPECT_EQ(r.b.live, 0);
  r.b.initialize_status = 0;
  const auto kernel = make_kernel(*make(r.b), r.args());
  r.b.enqueue = [](auto...) { return 3; };
  EXPECT_CONTAINS(thrown_error([&] { kernel->enqueue(nullptr, nullptr, nullptr, nullptr); }),
                  "enqueue() returned 3 instead of 0");
  r.b.enqueue = [](auto...) { return 0; };
  kernel->enqueue(nullptr, nullptr, nullptr, nullptr);
}

TEST(V2Kernel, WorkspaceMustBeThere) {
  OneV2Kernel r;
  KernelArgs args = r.args();
  args.device = &get_device(DeviceType::kCPU);
  for (const size_t bytes : {size_t{1} << 60U, ~size_t{0}}) {
    r.b.workspace = bytes;
    EXPECT_CONTAINS(thrown_error([&] { make_kernel(*make(r.b), args); }),
                    str("getWorkspaceSize() returned ", bytes, " bytes, which the device cannot"));
  }
  EXPECT_EQ(r.b.live, 0);
}

TEST(V2Kernel, ExceptionsOfCallbacksAreThrown) {
  OneV2Kernel r;
  const auto raise = [] {
    leave_exception(std::make_exception_ptr(std::out_of_range("from the callback")));
  };
  const OperatorPtr op = make(r.b);
  const auto kernel = make_kernel(*op, r.args());
  const Shape shape[] = {{5, 3}};
  r.b.configure = [&](auto...) { raise(); };
  EXPECT_THROW(kernel->on_shape_change(shape, shape), std::out_of_range);
  EXPECT_THROW(make_kernel(*op, r.args()), std::out_of_range);
  r.b.configure = [](auto...) {};
  r.b.attach = [&](auto...) { raise(); };
  EXPECT_THROW(make_kernel(*op, r.args()), std::out_of_range);
  r.b.asked_workspace = [&](auto...) { raise(); };
  EXPECT_THROW(make_kernel(*op, r.args()), std::out_of_range);
  r.b.supports = [&](auto...) {
    raise();
    return true;
  };
  EXPECT_THROW(op->candidates(make_query(r.ports, r.ports)), std::out_of_range);
  kernel->on_shape_change(shape, shape);
  EXPECT_EQ(r.b.live, 3);  // of the network, of the plan, of the context
}

TEST(V2Kernel, ContextsOfferMemory) {
  OneV2Kernel r;
  bool has_memory = false;
  r.b.attach = [&](IGpuAllocator* allocator) {
    void* memory = allocator->allocate(1000, 64, 0);
    has_memory = memory != nullptr;
    std::memset(memory, 1, 1000);
    EXPECT_TRUE(allocator->deallocate(memory));
    EXPECT_EQ(allocator->allocate(size_t{1} << 60U, 64, 0), nullptr);
  };
  KernelArgs args = r.args();
  args.device = &get_device(DeviceType::kCPU);
  make_kernel(*make(r.b), args);
  EXPECT_TRUE(has_memory);
}

TEST(V2Kernel, EntersTheDomainOfItsLanguage) {
  static struct Domain final : ExecutionDomain {
    void enter(Queue) override {}
    void leave() noexcept override {}
  } domain;
  TestLanguage python;
  python.domain = &domain;
  OneV2Kernel r;
  r.b.generation = PluginVersion::kV2_DYNAMICEXT_PYTHON;
  EXPECT_EQ(make_kernel(*make(r.b), r.args())->domain(), &domain);
  r.b.generation = PluginVersion::kV2_DYNAMICEXT;
  EXPECT_EQ(make_kernel(*make(r.b), r.args())->domain(), nullptr);
}

TEST(V2Storage, KeepsTheBytesOfTheChosenConfiguration) {
  OneV2Kernel r;
  r.b.workspace = 4096;
  r.candidate.inputs[0].dtype = r.candidate.outputs[0].dtype = DT::kHALF;
  r.ports = with_types(r.ports, r.candidate.inputs);
  auto* plugin = new V2TestPlugin(r.b, 7);
  plugin->setPluginNamespace("ns");
  const PlannedOperatorPtr chosen = adopt_plugin_v2(V2Plugin(plugin), 1)->plan(r.args());
  const Attributes stored = chosen->attributes();
  ASSERT_EQ(chosen->requirements().size(), 1u);
  EXPECT_EQ(chosen->requirements()[0],
            (PluginRequirement{"PluginV2", "v2_test_plugin", "1", "ns"}));

  V2TestCreator creator(r.b);
  PluginRegistry registry;
  OperatorLoadContext context;
  context.layer = "test layer";
  context.plugins = &registry;
  EXPECT_CONTAINS(thrown_error([&] { load_plugin_v2(stored, context); }),
                  "plugin 'v2_test_plugin' (version 1, namespace 'ns'): no creator is registered");
  ASSERT_TRUE(registry.registerCreator(creator, "ns"));
  const PlannedPlugin loaded(load_plugin_v2(stored, context), context.layer);
  EXPECT_EQ(creator.stored, (std::vector<int32_t>{7, static_cast<int32_t>(DT::kHALF)}));
  EXPECT_EQ(loaded.make_kernel(r.args())->workspace_size(), 4096u);
  EXPECT_EQ(loaded.requirements()[0].plugin_namespace, "ns");

  creator.refuse = true;
  EXPECT_CONTAINS(thrown_error([&] { load_plugin_v2(stored, context); }),
                  "could not make it from the 8 bytes that the engine stores");
  creator.refuse = false;
  r.b.initialize_status = -1;
  EXPECT_CONTAINS(thrown_error([&] { load_plugin_v2(stored, context); }),
                  "initialize() returned -1 instead of 0");
  r.b.generation = PluginVersion::kV2;
  EXPECT_CONTAINS(thrown_error([&] { load_plugin_v2(stored, context); }), "IPluginV2");
}

TEST(V2Storage, RefusesForeignAttributesAndCreators) {
  OneV2Kernel r;
  OperatorLoadContext context;
  context.layer = "test layer";
  thrown_error([&] { load_plugin_v2({}, context); });
  Behavior v3;
  v3.name = r.b.type;
  TestCreator creator(v3);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, ""));
  context.plugins = &registry;
  EXPECT_CONTAINS(
      thrown_error([&] { load_plugin_v2(make(r.b)->plan(r.args())->attributes(), context); }),
      "does not implement IPluginCreator");
}

TEST(V2Nodes, AttributesBecomeFields) {
  V2Behavior b;
  V2TestCreator creator(b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, "ns"));
  const int64_t tag = 9;
  PluginNode node;
  node.layer = "node";
  node.name = b.type;
  node.plugin_namespace = "ns";
  node.num_inputs = 1;
  node.attributes = {{"tag", PluginFieldType::kINT64, 1, Blob::copy(&tag, sizeof(tag))},
                     {"mode", PluginFieldType::kCHAR, 4, Blob::copy("wrap", 4)}};
  const OperatorPtr op = make_plugin_for_node(node, &registry, {});
  ASSERT_NE(plugin_v2_of(*op), nullptr);
  EXPECT_STREQ(plugin_v2_of(*op)->getPluginNamespace(), "ns");
  EXPECT_EQ(creator.given, "tag;");  // what it declares
  OneV2Kernel r;
  const PluginRequirement requirement = op->plan(r.args())->requirements().at(0);
  EXPECT_TRUE(is_available(requirement, &registry));
  PluginRegistry empty;
  EXPECT_FALSE(is_available(requirement, &empty));
  creator.refuse = true;
  EXPECT_CONTAINS(thrown_error([&] { make_plugin_for_node(node, &registry, {}); }),
                  "refused the attributes (tag, mode); it declares: tag: INT32");
}

}  // namespace
}  // namespace opwright
