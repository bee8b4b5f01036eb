// Loops as layers, and plans of them as somebody could write them on purpose.

#include "control/loop.h"

#include <functional>

#include "add_profile.h"
#include "compile/engine_run.h"
#include "control/chosen_branch.h"
#include "control/conditional.h"
#include "control/known_elements.h"
#include "error_of.h"
#include "loggers.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

/// Adds the captured tensor to the state; `part` is what an iteration stacks.
LoopBody adding(const Shape& shape, bool stacks) {
  auto network = std::make_shared<Network>();
  Tensor* state = network->add_input(state_input(0), DataType::kFLOAT, shape);
  Tensor* captured = network->add_input(capture_input(0), DataType::kFLOAT, shape);
  for (Tensor* tensor : {state, captured})
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] < 0) tensor->set_dimension_name(i, str("d", i));
  Tensor* sum =
      network->add<ElementWise>({ElementWiseOperation::kSUM}, {state, captured})->output(0);
  network->mark_output(*sum);
  if (stacks)
    network->mark_output(
        *network->add<ElementWise>({ElementWiseOperation::kPROD}, {sum, captured})->output(0));
  return {network, false, 1, 1, stacks ? 1 : 0};
}

Plan looping(bool stacks, int64_t trips = 3, const Shape& shape = {2, 4}) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, shape);
  Tensor* limit = network.add_values({trips}, DataType::kINT64, true);
  Layer* loop = network.add_layer(std::make_shared<Loop>(adding(shape, stacks), false),
                                  std::vector<Tensor*>{limit, nullptr, x, x});
  for (Tensor* output : loop->outputs()) network.mark_output(*output);
  BuilderConfig config{DeviceId{"cpu"}};
  config.timing = false;
  Shape least = shape, most = shape;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0) least[i] = 1, most[i] = 5;
  add_profile(config).set_shape("x", least, most, most);
  return compile(network, config);
}

PlanStep& body_step(Plan& plan) {
  for (PlanStep& step : plan.schedules[0].steps)
    if (step.kind == Loop::kKind || step.kind == Conditional::kKind) return step;
  throw std::logic_error("there is no step with a body");
}

AttributeValue& attribute(Plan& plan, std::string_view name) {
  for (Attribute& a : body_step(plan).attributes)
    if (a.name == name) return a.value;
  throw std::logic_error("there is no such attribute");
}

std::string load_error(Plan plan, const std::function<void(Plan&)>& change) {
  change(plan);
  return error_of([&] {
    validate(plan);
    Engine::load(std::move(plan), {});
  });
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "the error was: " << (text)

TEST(Loop, RunsAndIsStored) {
  std::vector<Blob> pieces = serialize(looping(true));
  std::string file;
  for (const Blob& piece : pieces)
    file.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  const std::vector<float> x = random_floats(8, 1);
  const auto y = run_plan(deserialize(Blob::copy(file.data(), file.size())), {{2, 4}}, {x});
  ASSERT_EQ(y[1].size(), 24u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(y[0][i], 4 * x[i], 1e-5f);
    for (size_t t = 0; t < 3; ++t)
      EXPECT_NEAR(y[1][t * 8 + i], static_cast<float>(t + 2) * x[i] * x[i], 1e-5f);
  }
}

TEST(Loop, StacksAsMuchAsThereIsRoomFor) {
  for (const int64_t trips : {0, 2, 3, 5}) {
    Network network;
    Tensor* x = network.add_input("x", DataType::kFLOAT, {2, 4});
    Tensor* limit = network.add_values({trips}, DataType::kINT64, true);
    LoopBody body = adding({2, 4}, true);
    body.lengths = {Expr(3)};
    Layer* loop = network.add_layer(std::make_shared<Loop>(std::move(body), false),
                                    std::vector<Tensor*>{limit, nullptr, x, x});
    for (Tensor* output : loop->outputs()) network.mark_output(*output);
    BuilderConfig config{DeviceId{"cpu"}};
    config.timing = false;
    Plan plan = compile(network, config);
    const std::vector<float> given = random_floats(8, 3);
    const auto y = run_plan(plan, {{2, 4}}, {given});
    ASSERT_EQ(y[1].size(), 24u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(y[0][i], static_cast<float>(trips + 1) * given[i], 1e-5f);
      for (int64_t t = 0; t < 3; ++t)
        EXPECT_NEAR(y[1][static_cast<size_t>(t) * 8 + i],
                    t < trips ? static_cast<float>(t + 2) * given[i] * given[i] : 0, 1e-5f);
    }
    EXPECT_CONTAINS(
        load_error(std::move(plan), [](Plan& p) { attribute(p, "counts") = int64_t{1}; }),
        "another number of them");
  }
}

TEST(Loop, FollowsShapes) {
  for (const int64_t rows : {1, 3, 5}) {
    const std::vector<float> x = random_floats(rows * 4, 2);
    const auto y = run_plan(looping(false, 6, {-1, 4}), {{rows, 4}}, {x});
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[0][i], 7 * x[i], 1e-5f);
  }
}

TEST(Loop, WhatABodyWarnsOfGoesToTheEnginesLogger) {
  Plan plan = looping(false);
  Plan body = deserialize(std::get<Blob>(attribute(plan, "body")));
  body.device_identity = "another machine";
  std::string file;
  for (const Blob& piece : serialize(body))
    file.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  attribute(plan, "body") = Blob::copy(file.data(), file.size());
  CollectingLogger logger;
  LoadOptions options;
  options.log = Log(&logger);
  Engine::load(std::move(plan), options);
  EXPECT_CONTAINS(logger.warnings, "was tuned on another machine");
}

TEST(Loop, StatesKeepTheirShapes) {
  auto body = std::make_shared<Network>();
  Tensor* state = body->add_input(state_input(0), DataType::kFLOAT, {2});
  body->mark_output(*body->add<Concatenation>({0}, {state, state})->output(0));
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {2});
  Tensor* limit = network.add_values({2}, DataType::kINT64, true);
  Layer* loop = network.add_layer(std::make_shared<Loop>(LoopBody{body, false, 1, 0, 0}, false),
                                  std::vector<Tensor*>{limit, nullptr, x});
  EXPECT_CONTAINS(error_of([&] { loop->infer(); }), "expected the same");
}

TEST(HostileLoop, CountsThatDoNotFitAreRefused) {
  for (const char* name : {"states", "captures", "stacked"})
    for (const int64_t count : {int64_t{-1}, int64_t{2}, int64_t{1} << 40})
      EXPECT_NE(load_error(looping(true), [&](Plan& p) { attribute(p, name) = count; }), "no error")
          << name << " " << count;
  EXPECT_NE(load_error(looping(true), [](Plan& p) { attribute(p, "counts") = int64_t{1}; }),
            "no error");
  EXPECT_NE(load_error(looping(true), [](Plan& p) { attribute(p, "is_computed") = int64_t{1}; }),
            "no error");
}

TEST(HostileLoop, BodiesAreVerified) {
  const Blob body = std::get<Blob>(attribute(*std::make_unique<Plan>(looping(true)), "body"));
  for (const size_t size : {size_t{0}, size_t{20}, body.size() / 2, body.size() - 1})
    EXPECT_NE(load_error(looping(true),
                         [&](Plan& p) { attribute(p, "body") = Blob::copy(body.data(), size); }),
              "no error");
  for (size_t at = 0; at < body.size(); at += 997)
    EXPECT_NE(load_error(looping(true),
                         [&](Plan& p) {
                           attribute(p, "body") = Blob::make(body.size(), [&](void* to) {
                             std::memcpy(to, body.data(), body.size());
                             static_cast<unsigned char*>(to)[at] ^= 0x40;
                           });
                         }),
              "no error")
        << at;
}

/// A loop with the body of another one.
std::string run_with_body_of(Plan other, Plan plan) {
  attribute(plan, "body") = std::get<Blob>(attribute(other, "body"));
  return error_of([&] {
    validate(plan);
    run_plan(std::move(plan), {{2, 4}}, {random_floats(8, 1)});
  });
}

TEST(HostileLoop, BodiesOfOtherShapesAreRefused) {
  EXPECT_NE(run_with_body_of(looping(true, 3, {2, 5}), looping(true)), "no error");
  EXPECT_NE(run_with_body_of(looping(true, 3, {4}), looping(true)), "no error");
  EXPECT_NE(run_with_body_of(looping(false), looping(true)), "no error");
}

TEST(HostileLoop, MoreIterationsThanThereIsRoomForAreRefused) {
  Plan plan = looping(true);
  for (PlanTensor& tensor : plan.schedules[0].tensors) {
    if (tensor.location == PlanTensor::Location::kWeight && tensor.data.size() == 8) {
      const int64_t many = 1000;
      tensor.data = Blob::copy(&many, sizeof many);
    } else if (tensor.location == PlanTensor::Location::kValues) {
      for (const int32_t value : tensor.values) plan.expressions[value].value = 1000;
    }
  }
  EXPECT_CONTAINS(error_of([&] {
                    run_plan(plan, {{2, 4}}, {random_floats(8, 1)});
                  }),
                  "has room for");
}

TEST(HostileLoop, BodiesAreNotNestedWithoutEnd) {
  const std::function<LoopBody(int)> nested = [&](int depth) -> LoopBody {
    if (depth == 0) return adding({2}, false);
    auto network = std::make_shared<Network>();
    Tensor* state = network->add_input(state_input(0), DataType::kFLOAT, {2});
    Tensor* captured = network->add_input(capture_input(0), DataType::kFLOAT, {2});
    Tensor* limit = network->add_values({1}, DataType::kINT64, true);
    Layer* loop = network->add_layer(std::make_shared<Loop>(nested(depth - 1), false),
                                     std::vector<Tensor*>{limit, nullptr, state, captured});
    network->mark_output(*loop->output(0));
    return {network, false, 1, 1, 0};
  };
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {2});
  Tensor* limit = network.add_values({1}, DataType::kINT64, true);
  Layer* loop = network.add_layer(std::make_shared<Loop>(nested(17), false),
                                  std::vector<Tensor*>{limit, nullptr, x, x});
  network.mark_output(*loop->output(0));
  BuilderConfig config{DeviceId{"cpu"}};
  config.timing = false;
  EXPECT_CONTAINS(error_of([&] { compile(network, config); }), "nested in more than 16 loops");
}

/// x twice behind itself where the condition holds, else x.
Plan choosing(int64_t columns = 4) {
  std::array<std::shared_ptr<const Network>, 2> bodies;
  for (size_t i = 0; i < 2; ++i) {
    auto body = std::make_shared<Network>();
    Tensor* x = body->add_input(capture_input(0), DataType::kFLOAT, {2, columns});
    const std::vector<Tensor*> parts(2 - i, x);
    body->mark_output(*body->add<Concatenation>({0}, parts)->output(0));
    bodies[i] = body;
  }
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {2, columns});
  Tensor* zero = network.add_constant(DataType::kFLOAT, {},
                                      Blob::make(4, [](void* to) { std::memset(to, 0, 4); }));
  Tensor* sum = network.add<Reduce>({ReduceOperation::kSUM, 3, false}, {x})->output(0);
  Tensor* more = network.add<ElementWise>({ElementWiseOperation::kGREATER}, {sum, zero})->output(0);
  Layer* layer = network.add_layer(
      std::make_shared<Conditional>(bodies, 1, std::vector<std::pair<int, int>>{{0, 0}}),
      std::vector<Tensor*>{more, x});
  network.mark_output(*network.add<Unary>({UnaryOperation::kNEG}, {layer->output(0)})->output(0));
  BuilderConfig config{DeviceId{"cpu"}};
  config.timing = false;
  return compile(network, config);
}

TEST(Conditional, RunsOneBranch) {
  for (const float sign : {1.0f, -1.0f}) {
    const std::vector<float> x(8, sign);
    Context context(Engine::load(choosing(), {}));
    std::vector<float> y(16);
    context.set_input_address(0, x.data());
    context.set_output_address(0, y.data());
    context.enqueue();
    EXPECT_EQ(context.output_shape(0), Shape({sign > 0 ? 4 : 2, 4}));
    EXPECT_EQ(y[7], -sign);
    EXPECT_EQ(y[15], sign > 0 ? -1.0f : 0.0f);
  }
}

TEST(HostileConditional, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(load_error(choosing(), [](Plan&) {}), "no error");
  const std::vector<std::pair<const char*, AttributeValue>> changes = {
      {"captures", int64_t{-1}},   {"captures", int64_t{0}},   {"captures", int64_t{2}},
      {"size_axes", Ints{2}},      {"size_axes", Ints{-1}},    {"size_axes", Ints{}},
      {"size_results", Ints{1}},   {"size_results", Ints{-1}}, {"then_body", Blob()},
      {"size_results", Ints{0, 0}}};
  for (const auto& [name, value] : changes)
    EXPECT_NE(load_error(choosing(), [&, n = name, &v = value](Plan& p) { attribute(p, n) = v; }),
              "no error")
        << name;
  // A branch that makes more than there is room for.
  Plan plan = choosing(), other = choosing(5);
  attribute(plan, "then_body") = attribute(other, "then_body");
  EXPECT_NE(error_of([&] {
              validate(plan);
              run_plan(plan, {{2, 4}}, {std::vector<float>(8, 1.0f)});
            }),
            "no error");
}

TEST(HostileChosenBranch, ResultsHaveTheShapesOfTheirOutputs) {
  Network network;
  Tensor* condition = network.add_input("condition", DataType::kBOOL, {});
  Tensor* x = network.add_input("x", DataType::kFLOAT, {2, 4});
  Layer* layer = network.add_layer(std::make_shared<ChosenBranch>(true, "it was not built"),
                                   std::vector<Tensor*>{condition, x});
  network.mark_output(*layer->output(0));
  BuilderConfig config{DeviceId{"cpu"}};
  config.timing = false;
  const Plan plan = compile(network, config);
  EXPECT_EQ(load_error(plan, [](Plan&) {}), "no error");
  // An output that is larger than what would be copied to it.
  EXPECT_NE(load_error(plan,
                       [](Plan& p) {
                         p.outputs[0].dims = {p.outputs[0].dims[1], p.outputs[0].dims[1]};
                         for (PlanTensor& tensor : p.schedules[0].tensors)
                           if (tensor.location == PlanTensor::Location::kOutput)
                             tensor.dims = p.outputs[0].dims, tensor.size = 64;
                       }),
            "no error");
}

TEST(KnownElements, FollowFromConstants) {
  Network network;
  const float two = 2, three = 3;
  Tensor* a = network.add_constant(DataType::kFLOAT, {}, Blob::copy(&two, sizeof two));
  Tensor* b = network.add_constant(DataType::kFLOAT, {}, Blob::copy(&three, sizeof three));
  Tensor* x = network.add_input("x", DataType::kFLOAT, {});
  Tensor* power = network.add<ElementWise>({ElementWiseOperation::kPOW}, {a, b})->output(0);
  Tensor* more = network.add<ElementWise>({ElementWiseOperation::kSUM}, {power, x})->output(0);
  KnownElements known;
  const std::optional<Blob> elements = known.of(*power);
  ASSERT_TRUE(elements);
  EXPECT_EQ(*elements->as<float>(), 8);
  EXPECT_FALSE(known.of(*more));
  EXPECT_FALSE(known.of(*x));
}

}  // namespace
}  // namespace opwright
