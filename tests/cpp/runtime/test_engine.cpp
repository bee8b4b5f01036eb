#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "plan/trusted.h"
#include "runtime/fake_plan.h"

namespace opwright {
namespace {

/// z = copy of x, by a step that has the code.
Plan plan_with_code(const Blob& bytes, bool host = true) {
  FakePlan plan;
  const int x = plan.input("x", kFp32, {1}, {1}, {1});
  plan.step("step", "TestCode", {x}, {plan.output("z", kFp32, {1})}).code = {0};
  plan.plan().code = {{"kernel.so", "x86-64 avx2", bytes, host}};
  return plan.finish();
}

class EngineLoad : public testing::Test {
 protected:
  void SetUp() override {
    register_operator_kind("TestCode", [](const Attributes&, const OperatorLoadContext& context) {
      permitted = context.code[0].permitted;
      return std::make_shared<FakeOperator>("TestCode", FakeKind{[](const FakeRun&) {}});
    });
    permitted = false;
  }
  static bool permitted;
};
bool EngineLoad::permitted = false;

TEST_F(EngineLoad, HostCodeNeedsPermission) {
  const Plan plan = plan_with_code(Blob::copy("untrusted code", 14));
  for (const char* part : {"'kernel.so' (x86-64 avx2)", "engine_host_code_allowed",
                           "allow_host_code=True", "--allow-host-code"}) {
    EXPECT_ERROR(Engine::load(plan, {}), part);
  }
  EXPECT_FALSE(permitted);
  LoadOptions allowed;
  allowed.allow_host_code = true;
  Engine::load(plan, allowed);
  EXPECT_TRUE(permitted);
}

TEST_F(EngineLoad, CodeForAGpuNeedsPermission) {
  const Plan plan = plan_with_code(Blob::copy("a GPU's code", 12), false);
  for (const char* part :
       {"contains code for a GPU", "'kernel.so' (x86-64 avx2)", "engine_device_code_allowed",
        "allow_device_code=True", "setEngineDeviceCodeAllowed(true)", "--allow-device-code",
        "OPWRIGHT_ALLOW_DEVICE_CODE=1", "Permission for host code implies it"}) {
    EXPECT_ERROR(Engine::load(plan, {}), part);
  }
  EXPECT_FALSE(permitted);
  LoadOptions device, host;
  device.allow_device_code = host.allow_host_code = true;
  for (const LoadOptions& options : {device, host}) {
    permitted = false;
    Engine::load(plan, options);
    EXPECT_TRUE(permitted);
  }
  // The other way round it does not hold.
  EXPECT_ERROR(Engine::load(plan_with_code(Blob::copy("the host's code", 15)), device),
               "outside of any protection");
}

TEST_F(EngineLoad, OfMuchCodeTheMessageShowsSome) {
  Plan plan = plan_with_code(Blob::copy("a GPU's code", 12), false);
  plan.code.resize(1000, plan.code[0]);
  EXPECT_ERROR(Engine::load(plan, {}), "and 980 more");
}

TEST_F(EngineLoad, PlansOfThisProcessNeedNone) {
  for (const bool host : {true, false}) {
    permitted = false;
    trust_plan(plan_with_code(Blob::copy("compiled here", 13), host));
    Engine::load(plan_with_code(Blob::copy("compiled here", 13), host), {});
    EXPECT_TRUE(permitted);
    // The code alone is not what is trusted.
    Plan other = plan_with_code(Blob::copy("compiled here", 13), host);
    other.schedules[0].steps[0].attributes.push_back({"grid", int64_t{1} << 40});
    EXPECT_ERROR(Engine::load(other, {}), "permit it");
  }
}

TEST_F(EngineLoad, OtherWeightsKeepTheTrust) {
  const Plan known = plan_with_code(Blob::copy("a GPU's code, too", 17), false);
  Plan changed = known;
  changed.name = "with other weights";
  trust_as(known, changed);
  EXPECT_FALSE(is_trusted(changed));
  trust_plan(known);
  trust_as(known, changed);
  EXPECT_TRUE(is_trusted(changed));
}

TEST_F(EngineLoad, TheEnvironmentPermitsWhatItNames) {
  ASSERT_EQ(setenv(kAllowDeviceCode, "1", 1), 0);
  EXPECT_TRUE(is_permitted_by_environment(kAllowDeviceCode));
  EXPECT_FALSE(is_permitted_by_environment(kAllowHostCode));
  for (const char* value : {"", "0", "true", "11"}) {
    ASSERT_EQ(setenv(kAllowDeviceCode, value, 1), 0);
    EXPECT_FALSE(is_permitted_by_environment(kAllowDeviceCode)) << value;
  }
  unsetenv(kAllowDeviceCode);
  EXPECT_FALSE(is_permitted_by_environment(kAllowDeviceCode));
}

TEST_F(EngineLoad, OfPlansThatAreTrustedHashesAreKept) {
  const size_t before = trusted_plans();
  const auto code = [](int number) {
    const std::string text = "code " + std::to_string(number);
    return plan_with_code(Blob::copy(text.data(), text.size()));
  };
  for (int i = 0; i < 3; ++i) trust_plan(code(i % 2));
  EXPECT_EQ(trusted_plans(), before + 2);
  EXPECT_TRUE(is_trusted(code(0)));
  EXPECT_TRUE(is_trusted(code(1)));
  EXPECT_FALSE(is_trusted(code(2)));
  // Whatever is built, no more than that many.
  Plan plan = code(3);
  for (int i = 0; i < 17000; ++i) {
    plan.code[0].target = std::to_string(i);
    trust_plan(plan);
  }
  EXPECT_EQ(trusted_plans(), size_t{1} << 14U);
  EXPECT_TRUE(is_trusted(plan));
  EXPECT_FALSE(is_trusted(code(0)));
}

TEST_F(EngineLoad, ListsAllThatIsMissing) {
  FakePlan plan;
  const int x = plan.input("x", kFp32, {1}, {1}, {1});
  const int h = plan.arena("h", kFp32, {1}, 4);
  plan.step("one", "NoSuchKind", {x}, {h});
  plan.step("two", "AnotherKind", {h}, {plan.output("z", kFp32, {1})});
  const Plan unknown = plan.finish();
  for (const char* part : {"'one'", "NoSuchKind", "'two'", "AnotherKind"}) {
    EXPECT_ERROR(Engine::load(unknown, {}), part);
  }
  plan.plan().requirements = {{"PluginV3", "first_plugin", "1", "space"},
                              {"PluginV3", "second_plugin", "2", ""}};
  const Plan missing = plan.finish();
  for (const char* part : {"first_plugin", "space", "second_plugin"}) {
    EXPECT_ERROR(Engine::load(missing, {}), part);
  }
}

TEST_F(EngineLoad, RefusesOtherDevices) {
  Plan plan = FakePlan().finish();
  plan.architecture = "sparc";
  EXPECT_ERROR(Engine::load(plan, {}), "the engine 'fake' was built for sparc");
  plan.name.clear();
  EXPECT_EQ(error_of([&] { Engine::load(plan, {}); }).find("the engine was built for sparc"), 0u);
  plan.device_type = DeviceType::kGPU;
  EXPECT_ERROR(Engine::load(plan, {}), "is for a GPU, and the backend 'cpu' has none");
  plan.backend = "cuda";
  if (const std::string obstacle = get_backend("cuda").obstacle(); !obstacle.empty())
    EXPECT_ERROR(Engine::load(plan, {}), obstacle);
  plan.backend = "tpu";
  EXPECT_ERROR(Engine::load(plan, {}), "there is no backend 'tpu'; there are cpu, cuda");
}

TEST_F(EngineLoad, FilesAreMappedAndErrorsNameThem) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("opwright-engine-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = folder / "a.engine";
  FakePlan fake;
  std::vector<char> weights(100000, 'w');
  const int w = fake.weight("w", {DataType::kINT8, TensorFormat::kLINEAR}, {100000},
                            Blob::copy(weights.data(), weights.size()));
  fake.schedule().copies = {
      {w, fake.port("z", {DataType::kINT8, TensorFormat::kLINEAR}, {100000})}};
  const auto pieces = serialize(fake.finish());
  std::vector<std::span<const std::byte>> parts;
  for (const Blob& piece : pieces) parts.push_back(piece.bytes());
  write_file_atomically(path, parts);

  Context context(Engine::load_file(path, {}));
  std::vector<char> z(100000);
  context.set_output_address(0, z.data());
  context.enqueue();
  EXPECT_EQ(z, weights);

  EXPECT_ERROR(Engine::load_file((folder / "none.engine").string(), {}), "none.engine");
  std::filesystem::resize_file(path, 5000);
  EXPECT_ERROR(Engine::load_file(path, {}), "a.engine");
  EXPECT_ERROR(Engine::load_file(path, {}), "truncated");
  std::ofstream(path) << "not an engine";
  EXPECT_ERROR(Engine::load_file(path, {}), "truncated or no engine");
  std::filesystem::remove_all(folder);
}

TEST_F(EngineLoad, FindsPortsByName) {
  FakePlan plan;
  plan.input("a", kFp32, {1}, {1}, {1});
  const int b = plan.input("b", kFp32, {1}, {1}, {1});
  plan.schedule().copies = {{b, plan.port("c", kFp32, {1})}};
  const auto engine = Engine::load(plan.finish(), {});
  EXPECT_EQ(engine->input("b"), 1);
  EXPECT_EQ(engine->output("c"), 0);
  EXPECT_ERROR(engine->input("c"), "'c' is an output, not an input");
  EXPECT_ERROR(engine->output("b"), "'b' is an input, not an output");
  EXPECT_EQ(engine->find_port("d"), nullptr);
  EXPECT_ERROR(engine->port("d"), "no input or output 'd'; it has 'a', 'b', 'c'");
}

TEST(Devices, DefaultFollowsTheEnvironment) {
  unsetenv("OPWRIGHT_DEVICE");
  EXPECT_EQ(str(default_device()), "cpu");
  for (const char* right : {"cuda", "cuda:3", "cpu:0", "cpu"}) {
    setenv("OPWRIGHT_DEVICE", right, 1);
    EXPECT_EQ(str(default_device()), std::string(right, std::strcspn(right, ":")));
  }
  for (const char* wrong : {"tpu", "cuda:", "cuda1", "cuda:one", "cuda:-1", "cuda:1x", "cpu:1"}) {
    setenv("OPWRIGHT_DEVICE", wrong, 1);
    EXPECT_ERROR(default_device(), "expected cpu, cuda or cuda:1");
  }
  unsetenv("OPWRIGHT_DEVICE");
  EXPECT_ERROR(get_device(DeviceType::kDLA), "no backend");
}

}  // namespace
}  // namespace opwright
