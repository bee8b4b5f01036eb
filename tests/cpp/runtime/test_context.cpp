#include <gtest/gtest.h>

#include "allocations.h"
#include "runtime/fake_plan.h"

namespace opwright {
namespace {

void add(const FakeRun& run) {
  for (int64_t i = 0; i < run.output_shapes[0].numel(); ++i) {
    run.out<float>(0)[i] = run.in<float>(0)[i] + run.in<float>(1)[i];
  }
}

void copy(const FakeRun& run) {
  for (int64_t i = 0; i < run.output_shapes[0].numel(); ++i) {
    run.out<float>(0)[i] = run.in<float>(0)[i];
  }
}

/// z = (x + y) + w through the arena; x, y [n, 2], n in 1..4.
FakePlan sum_plan() {
  register_fake("TestAdd", {.run = add});
  FakePlan plan;
  const Expr n = plan.extent("batch", "x", 0);
  const int x = plan.input("x", kFp32, {n, 2}, {1, 2}, {4, 2});
  const int y = plan.input("y", kFp32, {n, 2}, {1, 2}, {4, 2});
  const float weights[8] = {10, 20, 30, 40, 50, 60, 70, 80};
  const int w = plan.weight("w", kFp32, {4, 2}, Blob::copy(weights, sizeof(weights)));
  const int h = plan.arena("h", kFp32, {n, 2}, 32);
  const int z = plan.output("z", kFp32, {n, 2});
  plan.step("first", "TestAdd", {x, y}, {h});
  plan.step("second", "TestAdd", {h, w}, {z});
  return plan;
}

TEST(ContextMemory, ScratchMemoryIsWithinTheLimitWhateverThePlanSays) {
  for (const size_t bytes : {size_t{1} << 30, ~size_t{0} - 10}) {
    register_fake("Wants much", {.run = [](const FakeRun&) {}, .workspace = bytes});
    FakePlan plan;
    const int x = plan.input("x", kFp32, {4}, {4}, {4});
    plan.step("greedy", "Wants much", {x}, {plan.output("y", kFp32, {4})});
    LoadOptions options;
    options.limits.memory = 1 << 20;
    const auto context = plan.context(options);
    std::vector<float> from(4), to(4);
    context->set_input_address(0, from.data());
    context->set_output_address(0, to.data());
    EXPECT_ERROR(context->enqueue(), "(memory)");
  }
}

TEST(Context, ComputesThroughArenaAndWeights) {
  const auto context = sum_plan().context();
  float x[] = {1, 2, 3, 4}, y[] = {100, 200, 300, 400}, z[4] = {};
  EXPECT_FALSE(context->all_shapes_set());
  context->set_input_shape(0, {2, 2});
  context->set_input_shape(1, {2, 2});
  EXPECT_TRUE(context->all_shapes_set());
  EXPECT_EQ(context->output_shape(0), Shape({2, 2}));
  context->set_input_address(0, x);
  context->set_input_address(1, y);
  context->set_output_address(0, z);
  context->enqueue();
  EXPECT_EQ(std::vector<float>(z, z + 4), (std::vector<float>{111, 222, 333, 444}));

  // New addresses alone change nothing but the addresses.
  float x2[] = {0, 0, 0, 0}, z2[4] = {};
  context->set_input_address(0, x2);
  context->set_output_address(0, z2);
  context->enqueue();
  EXPECT_EQ(std::vector<float>(z2, z2 + 4), (std::vector<float>{110, 220, 330, 440}));
  EXPECT_EQ(z[0], 111);
  EXPECT_EQ(fake_calls()["first"].shapes.size(), 1u);
  EXPECT_EQ(fake_calls()["first"].made, 1);
  EXPECT_EQ(fake_calls()["second"].inputs(), (std::vector<Shape>{{2, 2}, {4, 2}}));
}

TEST(Context, SteadyStateAllocatesNothing) {
  const auto context = sum_plan().context();
  float x[8] = {}, y[8] = {}, z[8] = {};
  for (int input : {0, 1}) context->set_input_shape(input, {4, 2});
  context->set_input_address(0, x);
  context->set_input_address(1, y);
  context->set_output_address(0, z);
  context->enqueue();
  const long before = allocation_count();
  for (int i = 0; i < 100; ++i) {
    context->set_input_shape(0, {4, 2});
    context->set_input_address(0, i % 2 ? x : y);
    context->enqueue();
  }
  EXPECT_EQ(allocation_count(), before);
}

TEST(Context, OnlyChangedShapesAreTold) {
  register_fake("TestCopy", {.run = copy});
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0), m = plan.extent("m", "y", 0);
  const int x = plan.input("x", kFp32, {n}, {0}, {4}), y = plan.input("y", kFp32, {m}, {0}, {4});
  plan.step("a", "TestCopy", {x}, {plan.output("p", kFp32, {n})});
  plan.step("b", "TestCopy", {y}, {plan.output("q", kFp32, {m})});
  const auto context = plan.context();
  float memory[4][4] = {};
  for (int i : {0, 1}) context->set_input_address(i, memory[i]);
  for (int i : {0, 1}) context->set_output_address(i, memory[2 + i]);
  context->set_input_shape(0, {3});
  context->set_input_shape(1, {3});
  context->enqueue();
  context->set_input_shape(0, {4});
  context->enqueue();
  EXPECT_EQ(fake_calls()["a"].shapes.size(), 2u);
  EXPECT_EQ(fake_calls()["a"].outputs(), (std::vector<Shape>{{4}}));
  EXPECT_EQ(fake_calls()["b"].shapes.size(), 1u);
}

TEST(Context, RefusesWhatDoesNotFitTheProfile) {
  const auto context = sum_plan().context();
  context->set_input_shape(0, {3, 2});
  EXPECT_ERROR(context->set_input_shape(0, Shape({5, 2})),
               "5x2 of input 'x' is outside of profile 0");
  EXPECT_ERROR(context->set_input_shape(0, Shape({0, 2})), "outside");
  EXPECT_ERROR(context->set_input_shape(0, Shape({2})), "rank");
  EXPECT_EQ(context->input_shape(0), Shape({3, 2}));
  EXPECT_ERROR(context->enqueue(), "shape of input 'y' is not set");
}

TEST(Context, InputsMustAgreeInASharedDimension) {
  const auto context = sum_plan().context();
  context->set_input_shape(0, {3, 2});
  context->set_input_shape(1, {2, 2});
  for (const char* part : {"'y' is 2", "'x' is 3", "'batch'"}) {
    EXPECT_ERROR(context->enqueue(), part);
    EXPECT_ERROR(context->output_shape(0), part);
  }
  context->set_input_shape(1, {3, 2});
  EXPECT_EQ(context->output_shape(0), Shape({3, 2}));
}

TEST(Context, NamesMissingAndMisalignedAddresses) {
  const auto context = sum_plan().context();
  for (int input : {0, 1}) context->set_input_shape(input, {1, 2});
  alignas(8) float data[4] = {};
  context->set_input_address(0, data);
  EXPECT_ERROR(context->enqueue(), "address of input 'y' is not set");
  context->set_input_address(1, data);
  EXPECT_ERROR(context->enqueue(), "address of output 'z' is not set");
  EXPECT_ERROR(context->set_input_address(0, reinterpret_cast<char*>(data) + 2), "aligned");
  float out[2];
  context->set_output_address(0, out);
  EXPECT_NO_THROW(context->enqueue());
  context->set_input_address(0, nullptr);
  EXPECT_ERROR(context->enqueue(), "address of input 'x' is not set");
}

TEST(Context, TensorsWithoutElementsHaveAddresses) {
  static std::vector<const void*> seen;
  seen.clear();
  register_fake("TestSee", {.run = [](const FakeRun& run) {
                  seen.assign({run.inputs[0], run.inputs[1], run.outputs[0], run.workspace});
                }});
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0);
  const int x = plan.input("x", kFp32, {n}, {0}, {4});
  const int w = plan.weight("w", kFp32, {0}, {});
  plan.step("see", "TestSee", {x, w}, {plan.output("z", kFp32, {n})});
  const auto context = plan.context();
  context->set_input_shape(0, {0});
  context->enqueue();
  ASSERT_EQ(seen.size(), 4u);
  for (const void* address : seen) EXPECT_NE(address, nullptr);
  // With elements, addresses are needed again.
  context->set_input_shape(0, {2});
  EXPECT_ERROR(context->enqueue(), "address of input 'x'");
}

TEST(Context, AbsentAndPackedInputsAreNull) {
  static std::vector<const void*> seen;
  register_fake("TestSee3",
                {.run = [](const FakeRun& run) { seen.assign(run.inputs, run.inputs + 3); }});
  FakePlan plan;
  const int x = plan.input("x", kFp32, {2}, {2}, {2});
  const int w = plan.weight("w", kFp32, {3}, {});
  PlanStep& step = plan.step("see", "TestSee3", {x, w, -1}, {plan.output("z", kFp32, {2})});
  step.packed.push_back({1, Blob::copy("packed", 6), "a layout"});
  const auto context = plan.context();
  float data[2] = {}, out[2];
  context->set_input_address(0, data);
  context->set_output_address(0, out);
  context->enqueue();
  EXPECT_EQ(seen, (std::vector<const void*>{data, nullptr, nullptr}));
  EXPECT_EQ(fake_calls()["see"].inputs()[1], Shape({3}));
}

TEST(Context, ValuesTensorsFollowTheShapes) {
  static std::vector<int64_t> seen;
  register_fake("TestValues", {.run = [](const FakeRun& run) {
                  seen.assign(run.in<int64_t>(0), run.in<int64_t>(0) + 2);
                  seen.push_back(run.in<int32_t>(1)[0]);
                }});
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0);
  plan.input("x", kFp32, {n}, {1}, {9});
  const int a = plan.values("a", kInt64, {n * 2, 5});
  const int b = plan.values("b", kInt32, {n + 1});
  plan.step("see", "TestValues", {a, b}, {plan.output("z", kFp32, {1})});
  const auto context = plan.context();
  float x[9] = {}, z[1];
  context->set_input_address(0, x);
  context->set_output_address(0, z);
  context->set_input_shape(0, {3});
  context->enqueue();
  EXPECT_EQ(seen, (std::vector<int64_t>{6, 5, 4}));
  context->set_input_shape(0, {9});
  context->enqueue();
  EXPECT_EQ(seen, (std::vector<int64_t>{18, 5, 10}));
  EXPECT_EQ(fake_calls()["see"].shapes.size(), 1u);
}

TEST(Context, ShapeInputsAreReadAtEachRun) {
  register_fake("TestFill", {.run = [](const FakeRun& run) {
                  for (int64_t i = 0; i < run.output_shapes[0].numel(); ++i)
                    run.out<float>(0)[i] = 7;
                }});
  FakePlan plan;
  const Expr rows = plan.symbol(Symbol::Kind::kInputValue, "rows", "k", 0);
  const Expr columns = plan.symbol(Symbol::Kind::kInputValue, "columns", "k", 1);
  const int k = plan.input("k", kInt32, {2}, {1, 1}, {3, 4}, true);
  plan.step("fill", "TestFill", {k}, {plan.output("z", kFp32, {rows, columns})});
  const auto context = plan.context();
  EXPECT_FALSE(context->all_shapes_set());
  EXPECT_EQ(context->output_shape(0), Shape({-1, -1}));
  EXPECT_ERROR(context->enqueue(), "address of shape input 'k'");
  int32_t values[] = {2, 3};
  float z[12] = {};
  context->set_input_address(0, values);
  context->set_output_address(0, z);
  EXPECT_EQ(context->output_shape(0), Shape({2, 3}));
  context->enqueue();
  EXPECT_EQ(z[5], 7);
  EXPECT_EQ(z[6], 0);
  values[1] = 4;
  context->enqueue();
  EXPECT_EQ(z[7], 7);
  EXPECT_EQ(context->output_shape(0), Shape({2, 4}));
  values[0] = 4;
  EXPECT_ERROR(context->enqueue(), "values 4x4 of shape input 'k' are outside");
  values[0] = 1;
  EXPECT_NO_THROW(context->enqueue());
  EXPECT_EQ(context->output_shape(0), Shape({1, 4}));
}

TEST(Context, OutputsWithoutAStepAreCopied) {
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0);
  const int x = plan.input("x", kFp32, {n}, {1}, {4});
  const float weights[] = {5, 6};
  const int w = plan.weight("w", kFp32, {2}, Blob::copy(weights, 8));
  const int v = plan.values("v", kInt64, {n, n * n});
  plan.schedule().copies = {{x, plan.port("same", kFp32, {n})},
                            {w, plan.port("constant", kFp32, {2})},
                            {v, plan.port("shape", kInt64, {2})}};
  const auto context = plan.context();
  float data[] = {1, 2, 3}, same[4] = {-1, -1, -1, -1}, constant[2];
  int64_t shape[2];
  context->set_input_address(0, data);
  context->set_output_address(0, same);
  context->set_output_address(1, constant);
  context->set_output_address(2, shape);
  context->set_input_shape(0, {3});
  context->enqueue();
  EXPECT_EQ(std::vector<float>(same, same + 4), (std::vector<float>{1, 2, 3, -1}));
  EXPECT_EQ(constant[1], 6);
  EXPECT_EQ(shape[0], 3);
  EXPECT_EQ(shape[1], 9);
}

TEST(Context, AliasedOutputsShareTheInputsMemory) {
  register_fake("TestInPlace", {.run = [](const FakeRun& run) {
                  ASSERT_EQ(run.inputs[0], run.outputs[0]);
                  run.out<float>(0)[0] += 1;
                }});
  FakePlan plan;
  const int x = plan.input("x", kFp32, {1}, {1}, {1});
  plan.step("step", "TestInPlace", {x}, {plan.output("z", kFp32, {1}, 0)});
  const auto context = plan.context();
  float data = 1, other = 5;
  context->set_input_address(0, &data);
  context->enqueue();
  EXPECT_EQ(data, 2);
  context->set_output_address(0, &other);
  context->enqueue();
  EXPECT_EQ(data, 3);
  EXPECT_EQ(other, 3);
  context->set_output_address(0, &data);
  context->enqueue();
  EXPECT_EQ(data, 4);
  context->set_input_address(0, &other);
  context->set_output_address(0, nullptr);
  context->enqueue();
  EXPECT_EQ(other, 4);
  EXPECT_EQ(data, 4);
}

TEST(Context, ErrorsNameTheLayerAndTheContextStaysUsable) {
  static int mode = 0;
  struct Custom {
    int number;
  };
  register_fake("TestThrow", {.run = [](const FakeRun& run) {
                  if (mode == 1) throw Error(ErrorCode::kFAILED_COMPUTATION, "it broke");
                  if (mode == 2) throw Custom{42};
                  run.out<float>(0)[0] = 9;
                }});
  FakePlan plan;
  const int x = plan.input("x", kFp32, {1}, {1}, {1});
  plan.step("my layer", "TestThrow", {x}, {plan.output("z", kFp32, {1})});
  const auto context = plan.context();
  float data = 1, z = 0;
  context->set_input_address(0, &data);
  context->set_output_address(0, &z);
  mode = 1;
  try {
    context->enqueue();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "layer 'my layer' (TestThrow): it broke");
    EXPECT_EQ(error.code(), ErrorCode::kFAILED_COMPUTATION);
  }
  mode = 2;
  try {
    context->enqueue();
    FAIL();
  } catch (const Custom& custom) {
    EXPECT_EQ(custom.number, 42);
  }
  mode = 0;
  context->enqueue();
  EXPECT_EQ(z, 9);
}

TEST(Context, AFailedShapeChangeIsToldAgain) {
  static bool fails = false;
  register_fake("TestShapeThrow",
                {.run = copy, .on_shape_change = [] { require(!fails, "no room"); }});
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0);
  const int x = plan.input("x", kFp32, {n}, {1}, {4});
  plan.step("step", "TestShapeThrow", {x}, {plan.output("z", kFp32, {n})});
  const auto context = plan.context();
  float data[4] = {1, 2, 3, 4}, z[4] = {};
  context->set_input_address(0, data);
  context->set_output_address(0, z);
  context->set_input_shape(0, {2});
  fails = true;
  EXPECT_ERROR(context->enqueue(), "layer 'step' (TestShapeThrow): no room");
  EXPECT_ERROR(context->enqueue(), "no room");
  fails = false;
  context->enqueue();
  EXPECT_EQ(z[1], 2);
  EXPECT_EQ(fake_calls()["step"].runs, 1);
}

class CountingDomain final : public ExecutionDomain {
 public:
  void enter(Queue) override {
    ++entered;
    ++depth;
  }
  void leave() noexcept override { --depth; }
  int entered = 0, depth = 0;
};

TEST(Context, ConsecutiveStepsEnterTheirDomainOnce) {
  static CountingDomain domain;
  static bool fails;
  domain = {};
  fails = false;
  register_fake("TestCopy", {.run = copy});
  register_fake("TestDomain", {.run =
                                   [](const FakeRun& run) {
                                     EXPECT_EQ(domain.depth, 1);
                                     require(!fails, "failed inside");
                                     copy(run);
                                   },
                               .domain = &domain});
  FakePlan plan;
  int tensor = plan.input("x", kFp32, {1}, {1}, {1});
  const char* kinds[] = {"TestCopy", "TestDomain", "TestDomain", "TestCopy", "TestDomain"};
  for (int i = 0; i < 5; ++i) {
    const std::string name = "t" + std::to_string(i);
    const int next = i == 4 ? plan.output("z", kFp32, {1}) : plan.arena(name, kFp32, {1}, 4);
    plan.step("step" + std::to_string(i), kinds[i], {tensor}, {next});
    tensor = next;
  }
  const auto context = plan.context();
  float x = 3, z = 0;
  context->set_input_address(0, &x);
  context->set_output_address(0, &z);
  context->enqueue();
  EXPECT_EQ(z, 3);
  EXPECT_EQ(domain.entered, 2);
  EXPECT_EQ(domain.depth, 0);
  fails = true;
  EXPECT_ERROR(context->enqueue(), "layer 'step1'");
  EXPECT_EQ(domain.depth, 0);
}

TEST(Context, IsLeftAloneWhileItRuns) {
  static Context* running;
  static std::function<void()> inside;
  register_fake("TestInside", {.run = [](const FakeRun& run) {
                  inside();
                  copy(run);
                }});
  FakePlan plan;
  const int x = plan.input("x", kFp32, {1}, {1}, {1});
  plan.step("step", "TestInside", {x}, {plan.output("z", kFp32, {1})});
  const auto context = plan.context();
  running = context.get();
  float data = 3, z = 0;
  alignas(64) static std::byte memory[256];
  const std::function<void()> forbidden[] = {
      [] { running->enqueue(); },
      [] { running->set_profile(0); },
      [] { running->set_input_shape(0, {1}); },
      [] { running->set_input_address(0, nullptr); },
      [] { running->set_output_address(0, nullptr); },
      [] { running->set_output_memory(0, nullptr); },
      [] { running->set_layer_time_callback(nullptr); },
      [] { running->set_memory(memory, sizeof memory); },
  };
  context->set_input_address(0, &data);
  context->set_output_address(0, &z);
  for (const std::function<void()>& call : forbidden) {
    z = 0;
    inside = [&] { EXPECT_ERROR(call(), "is running and cannot be"); };
    context->enqueue();
    EXPECT_EQ(z, 3);
    inside = call;
    EXPECT_ERROR(context->enqueue(), "is running and cannot be");
  }
  inside = [] {};
  context->enqueue();
  EXPECT_EQ(z, 3);
}

TEST(Context, ReportsLayerTimesInOrder) {
  const auto context = sum_plan().context();
  for (int input : {0, 1}) context->set_input_shape(input, {1, 2});
  float x[2] = {}, z[2];
  context->set_input_address(0, x);
  context->set_input_address(1, x);
  context->set_output_address(0, z);
  std::vector<std::string> names;
  context->set_layer_time_callback([&](const std::string& name, float milliseconds) {
    names.push_back(name);
    EXPECT_GE(milliseconds, 0);
    EXPECT_LT(milliseconds, 1000);
  });
  context->enqueue();
  EXPECT_EQ(names, (std::vector<std::string>{"first", "second"}));
  context->set_layer_time_callback(nullptr);
  context->enqueue();
  EXPECT_EQ(names.size(), 2u);
}

TEST(Context, ProfilesHaveTheirOwnRangesAndKernels) {
  FakePlan plan = sum_plan();
  plan.plan().schedules.push_back(plan.schedule());
  Schedule& second = plan.plan().schedules[1];
  for (auto& input : second.inputs) input.min = {4, 2}, input.opt = {8, 2}, input.max = {8, 2};
  second.arena_size = second.tensors[3].size = 64;
  // The weight has four rows, so the second profile adds h to itself.
  second.steps[1].inputs[1] = 3;
  const auto context = plan.context();
  float x[16], z[16] = {};
  for (int i = 0; i < 16; ++i) x[i] = static_cast<float>(i);
  context->set_input_address(0, x);
  context->set_input_address(1, x);
  context->set_output_address(0, z);
  context->set_profile(1);
  for (int input : {0, 1}) context->set_input_shape(input, {8, 2});
  context->enqueue();
  EXPECT_EQ(z[15], 60);
  context->set_profile(0);
  EXPECT_FALSE(context->all_shapes_set());
  EXPECT_ERROR(context->set_input_shape(0, Shape({8, 2})), "profile 0");
  for (int input : {0, 1}) context->set_input_shape(input, {1, 2});
  context->enqueue();
  EXPECT_EQ(z[0], 10);
  context->set_profile(1);
  for (int input : {0, 1}) context->set_input_shape(input, {4, 2});
  context->enqueue();
  EXPECT_EQ(z[7], 28);
  EXPECT_EQ(fake_calls()["first"].made, 2);
  EXPECT_ERROR(context->set_profile(2), "profile 2 does not exist");
}

TEST(Context, UsesTheCallersMemory) {
  static const void* workspace;
  FakePlan plan = sum_plan();
  register_fake("TestAdd", {.run =
                                [](const FakeRun& run) {
                                  workspace = run.workspace;
                                  add(run);
                                },
                            .workspace = 100});
  const auto context = plan.context();
  for (int input : {0, 1}) context->set_input_shape(input, {4, 2});
  float x[8] = {1}, z[8];
  context->set_input_address(0, x);
  context->set_input_address(1, x);
  context->set_output_address(0, z);
  alignas(64) static std::byte memory[256];
  EXPECT_ERROR(context->set_memory(memory, 32), "needs 64");
  EXPECT_ERROR(context->set_memory(memory + 1, 128), "not aligned");
  context->set_memory(memory, sizeof(memory));
  context->enqueue();
  EXPECT_EQ(z[0], 12);
  EXPECT_EQ(workspace, memory + 64);
  EXPECT_EQ(context->memory_size(), 0u);
  context->set_memory(memory, 64);  // no room for scratch memory
  context->enqueue();
  EXPECT_NE(workspace, memory + 64);
  EXPECT_GE(context->memory_size(), 100u);
}

}  // namespace
}  // namespace opwright
