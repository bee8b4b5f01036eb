#include <gtest/gtest.h>

#include "api/border.h"
#include "runtime/fake_plan.h"

namespace opwright {
namespace {

int64_t forced = -1;

/// Keeps the positive elements; `forced` replaces the count where it is not negative.
void keep_positive(const FakeRun& run) {
  int64_t kept = 0;
  for (int64_t i = 0; i < run.input_shapes[0].numel(); ++i) {
    if (run.in<float>(0)[i] > 0) run.out<float>(1)[kept++] = run.in<float>(0)[i];
  }
  run.out<int32_t>(0)[0] = static_cast<int32_t>(forced >= 0 ? forced : kept);
}

void twice(const FakeRun& run) {
  for (int64_t i = 0; i < run.input_shapes[0].numel(); ++i) {
    run.out<float>(0)[i] = 2 * run.in<float>(0)[i];
  }
}

/// kept = x[x > 0], z = 2 * kept; x [n], n in 0..8.
class Sizes : public testing::Test {
 protected:
  void SetUp() override {
    forced = -1;
    register_fake("TestKeep", {.run = keep_positive});
    register_fake("TestTwice", {.run = twice});
    const Expr n = plan.extent("n", "x", 0);
    const Expr count =
        plan.symbol(Symbol::Kind::kSizeTensor, "count", "count", 0, ceil_div(n, 2), n);
    const int x = plan.input("x", kFp32, {n}, {0}, {8});
    const int size = plan.arena("count", kInt32, {}, 4);
    const int kept = plan.arena("kept", kFp32, {count}, 32);
    const int values = plan.values("v", kInt64, {count});
    PlanStep& keep = plan.step("keep", "TestKeep", {x}, {size, kept});
    keep.size_symbols = {1, -1};
    plan.step("twice", "TestTwice", {kept}, {plan.output("z", kFp32, {count})});
    plan.schedule().copies = {{values, plan.port("shape", kInt64, {1})}};
    context = plan.context();
    context->set_input_address(0, data);
    context->set_output_address(0, z);
    context->set_output_address(1, &shape);
  }

  FakePlan plan;
  std::unique_ptr<Context> context;
  float data[8] = {1, -1, 2, -2, 3, -3, 4, -4}, z[8] = {};
  int64_t shape = 0;
};

TEST_F(Sizes, AreKnownAfterTheRun) {
  context->set_input_shape(0, {8});
  EXPECT_EQ(context->output_shape(0), Shape({-1}));
  EXPECT_EQ(context->max_output_shape(0), Shape({8}));
  context->enqueue();
  EXPECT_EQ(context->output_shape(0), Shape({4}));
  EXPECT_EQ(context->max_output_shape(0), Shape({8}));
  EXPECT_EQ(z[3], 8);
  EXPECT_EQ(z[4], 0);
  EXPECT_EQ(shape, 4);
  // The step that determines the size knows its bound, the one after it the size.
  EXPECT_EQ(fake_calls()["keep"].outputs(), (std::vector<Shape>{{}, {8}}));
  EXPECT_EQ(fake_calls()["twice"].inputs(), (std::vector<Shape>{{4}}));
}

TEST_F(Sizes, FollowTheData) {
  context->set_input_shape(0, {8});
  context->enqueue();
  context->enqueue();
  EXPECT_EQ(fake_calls()["twice"].shapes.size(), 1u);  // the same size again
  data[0] = -1;
  context->enqueue();
  EXPECT_EQ(context->output_shape(0), Shape({3}));
  EXPECT_EQ(shape, 3);
  EXPECT_EQ(z[0], 4);
  for (float& element : data) element = -1;
  context->enqueue();
  EXPECT_EQ(context->output_shape(0), Shape({0}));
  context->set_input_shape(0, {2});
  EXPECT_EQ(context->output_shape(0), Shape({-1}));
  data[1] = 5;
  context->enqueue();
  EXPECT_EQ(context->output_shape(0), Shape({1}));
  EXPECT_EQ(z[0], 10);
}

TEST_F(Sizes, OutOfBoundsAreRefusedByName) {
  context->set_input_shape(0, {3});
  for (const int64_t wrong : {int64_t{4}, int64_t{1} << 31}) {
    forced = wrong;
    EXPECT_ERROR(context->enqueue(), "layer 'keep' (TestKeep): the size tensor 'count'");
  }
  EXPECT_EQ(context->output_shape(0), Shape({-1}));
  EXPECT_EQ(fake_calls()["twice"].runs, 0);
  forced = -1;
  context->enqueue();
  EXPECT_EQ(context->output_shape(0), Shape({2}));
}

TEST(SizesOfTwoSteps, BoundsFollowTheSizesBefore) {
  forced = -1;
  register_fake("TestKeep", {.run = keep_positive});
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0);
  const Expr first = plan.symbol(Symbol::Kind::kSizeTensor, "first", "first", 0, n, n);
  const Expr second = plan.symbol(Symbol::Kind::kSizeTensor, "second", "second", 0, first, first);
  const int x = plan.input("x", kFp32, {n}, {0}, {8});
  const int sizes[] = {plan.arena("first", kInt32, {}, 4), plan.arena("second", kInt32, {}, 4)};
  const int kept = plan.arena("kept", kFp32, {first}, 32);
  plan.step("keep", "TestKeep", {x}, {sizes[0], kept}).size_symbols = {1, -1};
  plan.step("again", "TestKeep", {kept}, {sizes[1], plan.output("z", kFp32, {second})})
      .size_symbols = {2, -1};
  const auto context = plan.context();
  float data[] = {1, -1, 2, 3}, z[4];
  context->set_input_address(0, data);
  context->set_output_address(0, z);
  context->set_input_shape(0, {4});
  for (const int64_t count : {3, 2, 3}) {
    data[0] = count == 3 ? 1 : -1;
    context->enqueue();
    EXPECT_EQ(context->output_shape(0), Shape({count}));
    EXPECT_EQ(fake_calls()["again"].outputs(), (std::vector<Shape>{{}, {count}}));
  }
  EXPECT_EQ(context->max_output_shape(0), Shape({4}));
}

TEST(SizesThatOutgrow, AreRefused) {
  forced = -1;
  register_fake("TestKeep", {.run = keep_positive});
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0);
  const Expr count = plan.symbol(Symbol::Kind::kSizeTensor, "count", "count", 0, n, n);
  const int x = plan.input("x", kFp32, {n}, {0}, {8});
  const int size = plan.arena("count", kInt32, {}, 4);
  plan.step("keep", "TestKeep", {x}, {size, plan.output("rest", kFp32, {n + 2 - count})})
      .size_symbols = {1, -1};
  const auto context = plan.context();
  float data[] = {1, 2, -1}, rest[2];
  context->set_input_address(0, data);
  context->set_output_address(0, rest);
  context->set_input_shape(0, {3});
  EXPECT_ERROR(context->enqueue(), "layer 'keep' (TestKeep): output 1 has the shape 3 by the size");
  data[0] = -1, data[1] = -1, data[2] = -1;
  EXPECT_ERROR(context->enqueue(), "output 1 has the shape 5");
  forced = 3;
  context->enqueue();
  EXPECT_EQ(context->output_shape(0), Shape({2}));
}

class Memory final : public OutputMemory {
 public:
  void* reallocate(const OutputRequest& request) override {
    EXPECT_EQ(request.name, "z");
    asked.push_back(request.bytes);
    memory.resize(request.bytes);
    return is_empty ? nullptr : memory.data();
  }
  void notify_shape(const std::string&, const Shape& shape) override { shapes.push_back(shape); }
  bool is_empty = false;
  std::vector<size_t> asked;
  std::vector<char> memory;
  std::vector<Shape> shapes;
};

TEST_F(Sizes, OutputMemoryIsAskedForTheBoundAndToldTheShape) {
  Memory memory;
  context->set_output_memory(0, unowned(&memory));
  context->set_output_address(0, nullptr);
  context->set_input_shape(0, {8});
  context->enqueue();
  EXPECT_EQ(memory.asked, (std::vector<size_t>{32}));
  EXPECT_EQ(memory.shapes, (std::vector<Shape>{{4}}));
  EXPECT_EQ(reinterpret_cast<float*>(memory.memory.data())[3], 8);
  memory.is_empty = true;
  EXPECT_ERROR(context->enqueue(), "no memory for output 'z'");
}

}  // namespace
}  // namespace opwright
