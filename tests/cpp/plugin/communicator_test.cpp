// Plugins of C++ that ask for the communicator of their execution context.

#include "opwright/communicator.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "backend/communicator.h"
#include "plugin/engine_for_test.h"
#include "plugin/plugin_kinds.h"

namespace opwright {
namespace {

/// A plugin that writes its rank beside the number of ranks, and fails where it is told none.
struct Asking {
  Behavior b;
  std::optional<PluginCommunicator> got;
  std::string name;
  bool insists = true;

  explicit Asking(bool communicates) {
    b.communicates = communicates;
    b.enqueue = [this](auto...) {
      PluginCommunicator found{};
      got.reset();
      if (getCommunicator(*TestPlugin::last_context, found)) {
        got = found;
        name = found.name;
      }
      return got || !insists ? 0 : -1;
    };
  }
  Plan build() { return opwright::build(make_plugin(PluginKind::kV3, b), {2}); }
};

std::shared_ptr<Communicator> alone(const char* name) {
  return Communicator::join(str(name, ::getpid()), 0, 1, 1, DeviceId{"cpu"});
}

TEST(PluginsOfRanks, GetWhatTheContextHasNow) {
  Asking plugin(true);
  const auto creator = std::make_unique<TestCreator>(plugin.b);
  PluginRegistry registry(&PluginRegistry::global());
  registry.registerCreator(*creator, "");
  const Plan plan = plugin.build();
  LoadOptions options;
  options.plugins = &registry;
  Context context(Engine::load(plan, options));
  float input[] = {1, 2}, output[2];
  context.set_input_shape(0, {1, 2});
  context.set_input_address(0, input);
  context.set_output_address(0, output);

  const std::string error = thrown_error([&] { context.enqueue(); });
  EXPECT_CONTAINS(error, "enqueue() returned -1");
  EXPECT_CONTAINS(error, "asks for the communicator, and the execution context has none");
  EXPECT_CONTAINS(error, "set_communicator");
  EXPECT_EQ(error.find("ICommunicatingPlugin"), std::string::npos) << error;

  const auto first = alone("first-"), second = alone("second-");
  for (const auto& communicator : {first, second}) {
    context.set_communicator(communicator.get());
    context.enqueue();
    ASSERT_TRUE(plugin.got.has_value());
    EXPECT_EQ(plugin.got->rank, 0);
    EXPECT_EQ(plugin.got->nbRanks, 1);
    EXPECT_EQ(plugin.got->communicator, nullptr);
    EXPECT_EQ(plugin.name, communicator->name());
  }
  context.set_communicator(nullptr);
  plugin.insists = false;
  context.enqueue();
  EXPECT_FALSE(plugin.got.has_value());
}

TEST(PluginsOfRanks, HaveNoPeerMemoryOnTheCpu) {
  Asking plugin(true);
  PluginPeerMemory memory{};
  bool is_told = false, is_without_size = true;
  plugin.b.enqueue = [&](auto...) {
    void* some[1] = {&memory};
    memory = {1, some, some, some, some};
    is_told = getPeerMemory(*TestPlugin::last_context, "memory", 8, memory);
    PluginPeerMemory other{};
    is_without_size = getPeerMemory(*TestPlugin::last_context, "memory", 0, other);
    return -1;
  };
  const auto creator = std::make_unique<TestCreator>(plugin.b);
  PluginRegistry registry(&PluginRegistry::global());
  registry.registerCreator(*creator, "");
  LoadOptions options;
  options.plugins = &registry;
  const Plan plan = plugin.build();
  Context context(Engine::load(plan, options));
  float input[] = {1, 2}, output[2];
  context.set_input_shape(0, {1, 2});
  context.set_input_address(0, input);
  context.set_output_address(0, output);
  const auto communicator = alone("peers-");
  context.set_communicator(communicator.get());
  EXPECT_CONTAINS(thrown_error([&] { context.enqueue(); }), "the size is 0; expected bytes");
  EXPECT_TRUE(is_told);
  EXPECT_FALSE(is_without_size);
  EXPECT_EQ(memory.size, 8);
  EXPECT_EQ(memory.buffers, nullptr);
  EXPECT_EQ(memory.table, nullptr);
  EXPECT_EQ(memory.counters, nullptr);
  EXPECT_EQ(memory.stop, nullptr);
  // Only a run has memory.
  EXPECT_FALSE(getPeerMemory(*TestPlugin::last_context, "memory", 8, memory));
}

TEST(PluginsOfRanks, AreNotRunByABuild) {
  Asking plugin(true);
  bool ran = false;
  plugin.b.enqueue = [&](auto...) {
    ran = true;
    return 0;
  };
  plugin.b.tactics = [](DataType) { return std::vector<int32_t>{3, 4}; };
  const Plan plan = plugin.build();
  EXPECT_FALSE(ran);
  EXPECT_EQ(plan.schedules[0].steps[0].candidate.tactic, 3);
}

TEST(PluginsOfRanks, SayThatTheyCommunicate) {
  Asking plugin(false);
  const std::string error = thrown_error([&] { plugin.build(); });
  EXPECT_CONTAINS(error, "ICommunicatingPlugin");
}

TEST(PluginsOfRanks, GetNothingFromOtherContexts) {
  class Other final : public IPluginResourceContext {
    IGpuAllocator* getGpuAllocator() const noexcept override { return nullptr; }
    IErrorRecorder* getErrorRecorder() const noexcept override { return nullptr; }
  };
  PluginCommunicator found{};
  EXPECT_FALSE(getCommunicator(Other(), found));
  PluginPeerMemory memory{};
  EXPECT_FALSE(getPeerMemory(Other(), "memory", 8, memory));
}

}  // namespace
}  // namespace opwright
