// What only V3 plugins of the One family have.

#include "plugin/plugin_kinds.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;

TEST(V3TimingKey, FollowsTheCacheId) {
  Behavior b;
  const std::string first = *make_plugin(PluginKind::kV3, b)->timing_key();
  b.timing_cache_id = "other";
  EXPECT_NE(*make_plugin(PluginKind::kV3, b)->timing_key(), first);
  b.timing_cache_id = "";
  EXPECT_EQ(*make_plugin(PluginKind::kV3, b)->timing_key(), first);
  b.plugin_namespace = "ns";
  EXPECT_NE(*make_plugin(PluginKind::kV3, b)->timing_key(), first);
  b.timing_cache_id = nullptr;
  EXPECT_FALSE(make_plugin(PluginKind::kV3, b)->timing_key().has_value());
}

struct OneV3Kernel {
  Behavior b;
  std::vector<PortDesc> ports = {port(DT::kFLOAT, {3})};
  Candidate candidate{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};
  KernelArgs args() { return make_args(candidate, ports, ports); }
};

TEST(V3Kernel, ContextsHaveTheirOwnClones) {
  OneV3Kernel r;
  {
    const OperatorPtr op = make_plugin(PluginKind::kV3, r.b);
    EXPECT_EQ(r.b.live, 1);
    const PlannedOperatorPtr planned = op->plan(r.args());
    const auto first = planned->make_kernel(r.args());
    const auto second = planned->make_kernel(r.args());
    EXPECT_EQ(r.b.live, 4);
    EXPECT_NE(TestPlugin::last_context, nullptr);
    EXPECT_NE(TestPlugin::last_context->getGpuAllocator(), nullptr);
    r.b.attach_returns_itself = true;
    const auto third = planned->make_kernel(r.args());
    EXPECT_EQ(r.b.live, 5);
  }
  EXPECT_EQ(r.b.live, 0);
}

TEST(V3Kernel, IsAttachedAsOneOfItsFamily) {
  OneV3Kernel r;
  Behavior quick;
  r.b.attach = [&] { return new QuickTestPlugin(quick); };
  EXPECT_CONTAINS(thrown_error([&] { make_kernel(*make_plugin(PluginKind::kV3, r.b), r.args()); }),
                  "what attachToContext() returned cannot be used: it is of the Quick family");
  EXPECT_EQ(r.b.live, 0);
}

TEST(V3Plugin, MetadataIsInThePlan) {
  OnePlugin one(PluginKind::kV3);
  one.b.metadata = "made of stars";
  one.b.enqueue = copy_input;
  one.build();
  EXPECT_EQ(one.plan.schedules[0].steps[0].metadata, "made of stars");
}

}  // namespace
}  // namespace opwright
