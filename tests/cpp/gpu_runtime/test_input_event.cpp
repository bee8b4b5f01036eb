// The event that runs record once they have read the inputs.

#include "gpu_runtime/test_kernels.h"

namespace opwright {
namespace {

/// An event of the application's.
class UserEvent {
 public:
  UserEvent() {
    static auto* const create =
        symbol_of<int(void**, unsigned)>("OPWRIGHT_CUDA_DRIVER", "cuEventCreate");
    const DeviceScope scope(test_gpu());
    EXPECT_EQ(create(&event_, 2), 0);
  }
  ~UserEvent() {
    static auto* const destroy = symbol_of<int(void*)>("OPWRIGHT_CUDA_DRIVER", "cuEventDestroy_v2");
    const DeviceScope scope(test_gpu());
    destroy(event_);
  }
  UserEvent(const UserEvent&) = delete;
  UserEvent& operator=(const UserEvent&) = delete;
  void* get() const { return event_; }
  void wait() const {
    static auto* const wait = symbol_of<int(void*)>("OPWRIGHT_CUDA_DRIVER", "cuEventSynchronize");
    const DeviceScope scope(test_gpu());
    EXPECT_EQ(wait(event_), 0);
  }

 private:
  void* event_ = nullptr;
};

/// y = 2 * x, z = 4 * x: the second step reads no input.
class InputEvent : public testing::TestWithParam<bool> {
 protected:
  InputEvent() : plan_(test_gpu()), x_(8), y_(8), z_(8) {
    register_gpu_kinds();
    plan_.plan().graphs = GetParam();
  }
  std::unique_ptr<Context> context() {
    auto context = plan_.context();
    context->set_input_address(0, x_.data());
    context->set_output_address(0, y_.data());
    if (plan_.plan().outputs.size() > 1) context->set_output_address(1, z_.data());
    return context;
  }
  /// Writes to the input once the event says so; the results are those of before.
  void expect_inputs_read(Context& context) {
    context.set_input_consumed_event(event_.get());
    EXPECT_EQ(context.input_consumed_event(), event_.get());
    for (int run = 1; run < 8; ++run) {
      const auto value = static_cast<float>(run);
      x_.set(FloatVector(8, value));
      context.enqueue(stream_.queue());
      event_.wait();
      x_.set(FloatVector(8, -1));
      EXPECT_EQ(y_.get(stream_.queue()), FloatVector(8, 2 * value));
      EXPECT_EQ(z_.get(stream_.queue()), FloatVector(8, 4 * value));
    }
  }

  FakePlan plan_;
  DeviceArray<float> x_, y_, z_;
  TestStream stream_;
  UserEvent event_;
};

INSTANTIATE_TEST_SUITE_P(CudaGraphs, InputEvent, testing::Bool());

TEST_P(InputEvent, ComesAfterTheLastStepThatReadsThem) {
  const int x = plan_.input("x", kFp32, {8}, {8}, {8});
  const int y = plan_.output("y", kFp32, {8});
  plan_.step("first", "Gpu:twice", {x}, {y});
  plan_.step("second", "Gpu:twice", {y}, {plan_.output("z", kFp32, {8})});
  const auto context = this->context();
  expect_inputs_read(*context);
  reset_driver_calls();
  context->set_input_consumed_event(nullptr);
  EXPECT_EQ(context->input_consumed_event(), nullptr);
  context->enqueue(stream_.queue());
  const long without = driver_calls("cuEventRecord");
  context->set_input_consumed_event(event_.get());
  reset_driver_calls();
  context->enqueue(stream_.queue());
  EXPECT_EQ(driver_calls("cuEventRecord"), without + 1);
}

TEST_P(InputEvent, ComesBeforeStepsThatReadNone) {
  if (GetParam()) return;  // a graph is done as a whole
  const int x = plan_.input("x", kFp32, {8}, {8}, {8});
  const int y = plan_.output("y", kFp32, {8});
  plan_.step("first", "Gpu:twice", {x}, {y});
  plan_.step("second", "Gpu:twice", {y}, {plan_.output("z", kFp32, {8})});
  const auto context = this->context();
  context->set_input_consumed_event(event_.get());
  context->enqueue(stream_.queue());
  event_.wait();
  EXPECT_TRUE(is_busy(stream_.queue()));
}

TEST_P(InputEvent, ComesAfterCopiesOfInputs) {
  const int x = plan_.input("x", kFp32, {8}, {8}, {8});
  plan_.step("double", "Gpu:twice", {x}, {plan_.output("y", kFp32, {8})});
  plan_.schedule().copies = {{x, plan_.port("copy", kFp32, {8})}};
  const auto context = this->context();
  context->set_input_consumed_event(event_.get());
  for (int run = 1; run < 8; ++run) {
    x_.set(FloatVector(8, static_cast<float>(run)));
    context->enqueue(stream_.queue());
    event_.wait();
    x_.set(FloatVector(8, -1));
    EXPECT_EQ(z_.get(stream_.queue()), FloatVector(8, static_cast<float>(run)));
  }
}

TEST_P(InputEvent, ComesWhereNoStepReadsInputs) {
  plan_.input("x", kFp32, {8}, {8}, {8});
  const int value = plan_.values("value", kInt64, {7, 7, 7, 7, 7, 7, 7, 7});
  plan_.step("convert", "Gpu:to_float", {value}, {plan_.output("y", kFp32, {8})});
  const auto context = this->context();
  context->set_input_consumed_event(event_.get());
  reset_driver_calls();
  context->enqueue(stream_.queue());
  EXPECT_EQ(driver_calls("cuEventRecord"), 1);
}

TEST(InputEventOnTheCpu, IsAnError) {
  register_fake("Cpu:copy",
                {.run = [](const FakeRun& run) { *run.out<float>(0) = *run.in<float>(0); }});
  FakePlan plan;
  const int x = plan.input("x", kFp32, {1}, {1}, {1});
  plan.step("copy", "Cpu:copy", {x}, {plan.output("y", kFp32, {1})});
  const auto context = plan.context();
  int event = 0;
  EXPECT_ERROR(context->set_input_consumed_event(&event), "runs on the CPU");
  context->set_input_consumed_event(nullptr);
  EXPECT_EQ(context->input_consumed_event(), nullptr);
}

}  // namespace
}  // namespace opwright
