// Loops on a GPU whose plans somebody has changed: no code runs that the engine was not permitted
// to run.

#include "compile/compile.h"
#include "control/loop.h"
#include "gpu_runtime/test_gpu.h"
#include "operators/elementwise.h"
#include "runtime/context.h"

namespace opwright {
namespace {

/// x, to which itself is added, or which it is multiplied with, three times.
Plan repeated(ElementWiseOperation operation) {
  auto body = std::make_shared<Network>();
  Tensor* state = body->add_input(state_input(0), DataType::kFLOAT, {4});
  Tensor* captured = body->add_input(capture_input(0), DataType::kFLOAT, {4});
  body->mark_output(*body->add<ElementWise>({operation}, {state, captured})->output(0));
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {4});
  Tensor* trips = network.add_values({3}, DataType::kINT64, true);
  Layer* loop = network.add_layer(std::make_shared<Loop>(LoopBody{body, false, 1, 1, 0}, false),
                                  std::vector<Tensor*>{trips, nullptr, x, x});
  network.mark_output(*loop->output(0));
  BuilderConfig config(DeviceId{"cuda", test_gpu().ordinal()});
  config.max_aux_streams = 0;
  config.timing = false;
  return compile(network, config);
}

AttributeValue& body_of(Plan& plan) {
  for (PlanStep& step : plan.schedules[0].steps)
    for (Attribute& attribute : step.attributes)
      if (attribute.name == "body") return attribute.value;
  throw std::logic_error("there is no step with a body");
}

std::string load_error(Plan plan) {
  LoadOptions options;
  options.allow_device_code = true;
  return error_of([&] {
    validate(plan);
    Engine::load(std::move(plan), options);
  });
}

TEST(LoopOnGpu, RunsOnTheQueueThatItIsGiven) {
  const TestStream stream;
  Context context(Engine::load(repeated(ElementWiseOperation::kSUM), {}));
  const DeviceArray<float> x(FloatVector{1, 2, 3, 4}), y(4);
  context.set_input_address(0, x.data());
  context.set_output_address(0, y.data());
  for (int run = 0; run < 4; ++run) {
    context.enqueue(stream.queue());
    EXPECT_EQ(y.get(stream.queue()), (FloatVector{4, 8, 12, 16}));
  }
}

TEST(LoopOnGpu, CodeOfABodyIsThatOfItsLayer) {
  Plan plan = repeated(ElementWiseOperation::kSUM), other = repeated(ElementWiseOperation::kPROD);
  EXPECT_EQ(load_error(plan), "no error");
  body_of(plan) = body_of(other);
  const std::string error = load_error(std::move(plan));
  EXPECT_NE(error.find("code that the layer does not have"), std::string::npos) << error;
}

}  // namespace
}  // namespace opwright
