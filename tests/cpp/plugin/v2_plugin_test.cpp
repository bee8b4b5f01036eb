// What only V2 plugins have.

#include <stdexcept>

#include "backend/backend.h"
#include "plugin/plugin_kinds.h"
#include "plugin/registry/callback.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;

OperatorPtr make_v2(Behavior& b) { return make_plugin(PluginKind::kV2, b); }

TEST(V2Plugin, OtherGenerationsAreRefusedByName) {
  Behavior b;
  const std::pair<PluginVersion, const char*> generations[] = {
      {PluginVersion::kV2, "it implements IPluginV2;"},
      {static_cast<PluginVersion>(9), "it implements an unknown interface;"}};
  for (const auto& [generation, message] : generations) {
    b.generation = generation;
    const std::string adopted = thrown_error([&] { make_v2(b); });
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
                  "plugin 'test_plugin' (version 1, namespace ''): clone() returned null");
  plugin->destroy();
  EXPECT_EQ(b.live, 0);
}

TEST(V2TimingKey, EveryInstanceIsTimed) {
  Behavior b;
  EXPECT_FALSE(make_v2(b)->timing_key().has_value());
}

struct OneV2Kernel {
  OneV2Kernel() { ports[0].max = {8, 3}; }
  Behavior b;
  std::vector<PortDesc> ports = {port(DT::kFLOAT, {4, 3})};
  Candidate candidate{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};
  KernelArgs args() { return make_args(candidate, ports, ports); }
};

TEST(V2Kernel, IsConfiguredForTheProfileAndThenForEachShape) {
  OneV2Kernel r;
  r.b.workspace = 128;
  std::vector<Dims> shapes;
  r.b.configure = [&](DynamicPluginTensorDesc const* in, auto, DynamicPluginTensorDesc const* out,
                      auto) {
    shapes.push_back(in[0].desc.dims);
    EXPECT_EQ(out[0].desc.dims.d[0], in[0].desc.dims.d[0]);
    EXPECT_EQ(in[0].min.d[0], 4);
    EXPECT_EQ(in[0].opt.d[0], 4);
    EXPECT_EQ(in[0].max.d[0], 8);
    return 0;
  };
  r.b.asked_workspace = [](PluginTensorDesc const* in, PluginTensorDesc const* out) {
    EXPECT_EQ(in[0].dims.d[0], 8);
    EXPECT_EQ(out[0].dims.d[0], 8);
  };
  r.b.enqueue = [](PluginTensorDesc const* in, PluginTensorDesc const* out, auto...) {
    EXPECT_EQ(in[0].dims.d[0], 5);
    EXPECT_EQ(out[0].dims.d[0], 5);
    return 0;
  };
  const auto kernel = make_kernel(*make_v2(r.b), r.args());
  EXPECT_EQ(kernel->workspace_size(), 128u);
  ASSERT_EQ(shapes.size(), 1u);
  EXPECT_EQ(shapes[0].d[0], -1);
  const Shape shape[] = {{5, 3}};
  kernel->on_shape_change(shape, shape);
  ASSERT_EQ(shapes.size(), 2u);
  EXPECT_EQ(shapes[1].d[0], 5);
  for (int i = 0; i < 2; ++i) kernel->enqueue(nullptr, nullptr, nullptr, nullptr);
  EXPECT_EQ(shapes.size(), 2u);
}

TEST(V2Kernel, ExceptionsOfCallbacksAreThrown) {
  OneV2Kernel r;
  const auto raise = [] {
    leave_exception(std::make_exception_ptr(std::out_of_range("from the callback")));
  };
  const OperatorPtr op = make_v2(r.b);
  const auto kernel = make_kernel(*op, r.args());
  const Shape shape[] = {{5, 3}};
  r.b.configure = [&](auto...) {
    raise();
    return 0;
  };
  EXPECT_THROW(kernel->on_shape_change(shape, shape), std::out_of_range);
  EXPECT_THROW(make_kernel(*op, r.args()), std::out_of_range);
  r.b.configure = [](auto...) { return 0; };
  r.b.attach_v2 = [&](auto...) { raise(); };
  EXPECT_THROW(make_kernel(*op, r.args()), std::out_of_range);
  r.b.asked_workspace = [&](auto...) { raise(); };
  EXPECT_THROW(make_kernel(*op, r.args()), std::out_of_range);
  kernel->on_shape_change(shape, shape);
  EXPECT_EQ(r.b.live, 3);  // of the network, of the plan, of the context
}

TEST(V2Kernel, ContextsOfferMemory) {
  OneV2Kernel r;
  bool has_memory = false;
  r.b.attach_v2 = [&](IGpuAllocator* allocator) {
    void* memory = allocator->allocate(1000, 64, 0);
    has_memory = memory != nullptr;
    std::memset(memory, 1, 1000);
    EXPECT_TRUE(allocator->deallocate(memory));
    EXPECT_EQ(allocator->allocate(size_t{1} << 60U, 64, 0), nullptr);
  };
  KernelArgs args = r.args();
  args.device = &get_device(DeviceType::kCPU);
  make_kernel(*make_v2(r.b), args);
  EXPECT_TRUE(has_memory);
}

TEST(V2Storage, NamesWhyItCannotBeMadeAgain) {
  OneV2Kernel r;
  const Attributes stored = make_v2(r.b)->plan(r.args())->attributes();
  V2TestCreator creator(r.b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, ""));
  OperatorLoadContext context;
  context.layer = "test layer";
  context.plugins = &registry;
  const auto error = [&] { return thrown_error([&] { load_plugin_v2(stored, context); }); };
  r.b.can_make = false;
  EXPECT_CONTAINS(error(), "could not make it from the 8 bytes that the engine stores");
  r.b.can_make = true;
  r.b.initialize_status = -1;
  EXPECT_CONTAINS(error(), "initialize() returned -1 instead of 0");
  r.b.generation = PluginVersion::kV2;
  EXPECT_CONTAINS(error(), "IPluginV2");
}

TEST(V2Storage, RefusesForeignCreators) {
  OneV2Kernel r;
  OperatorLoadContext context;
  context.layer = "test layer";
  TestCreator creator(r.b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, ""));
  context.plugins = &registry;
  EXPECT_CONTAINS(
      thrown_error([&] { load_plugin_v2(make_v2(r.b)->plan(r.args())->attributes(), context); }),
      "does not implement IPluginCreator");
}

TEST(V2Nodes, AttributesBecomeFields) {
  Behavior b;
  V2TestCreator creator(b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, "ns"));
  const int64_t tag = 9;
  PluginNode node;
  node.layer = "node";
  node.name = b.name;
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
  b.can_make = false;
  EXPECT_CONTAINS(thrown_error([&] { make_plugin_for_node(node, &registry, {}); }),
                  "refused the attributes (tag, mode); it declares: tag: INT32");
}

}  // namespace
}  // namespace opwright
