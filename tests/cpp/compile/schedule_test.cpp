#include <cmath>

#include "add_profile.h"
#include "base/error.h"
#include "engine_run.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/reduce.h"
#include "test_operator.h"

namespace opwright {
namespace {

using Location = PlanTensor::Location;

class Scheduling : public testing::Test {
 protected:
  Tensor* apply(TestBehaviour behaviour, std::vector<Tensor*> inputs) {
    return network_.add_layer(TestOperator::add(std::move(behaviour)), inputs)->output(0);
  }
  /// Adds `amount` to its input in place.
  Tensor* add_in_place(Tensor* x, float amount) {
    TestBehaviour behaviour;
    behaviour.pure = false;
    behaviour.infer = [](InferContext& context) {
      OutputInfo output;
      output.dtype = context.inputs[0]->dtype;
      output.dims = context.inputs[0]->dims;
      output.aliased_input = 0;
      return std::vector<OutputInfo>{output};
    };
    behaviour.run = [amount](void const* const* inputs, void* const* outputs,
                             std::span<const Shape> shapes) {
      if (inputs[0] != outputs[0]) throw std::runtime_error("the output is not the input's memory");
      auto* data = static_cast<float*>(outputs[0]);
      for (int64_t i = 0; i < shapes[0].numel(); ++i) data[i] += amount;
    };
    return apply(std::move(behaviour), {x});
  }
  /// A plain operator with ports of this format that adds `amount`.
  Tensor* add_in_format(Tensor* x, float amount, TensorFormat format) {
    TestBehaviour behaviour;
    behaviour.candidates = [format](const CandidateQuery& query) {
      Candidate candidate = TestOperator::like(query);
      candidate.inputs[0].format = candidate.outputs[0].format = format;
      return std::vector<Candidate>{candidate};
    };
    behaviour.run = [amount](void const* const* inputs, void* const* outputs,
                             std::span<const Shape> shapes) {
      const auto* in = static_cast<const float*>(inputs[0]);
      auto* out = static_cast<float*>(outputs[0]);
      for (int64_t i = 0; i < shapes[0].numel(); ++i)
        out[i] = in[i] + amount * static_cast<float>(i);
    };
    return apply(std::move(behaviour), {x});
  }
  Tensor* unary(UnaryOperation op, Tensor* a) { return network_.add<Unary>({op}, {a})->output(0); }
  std::vector<std::vector<float>> run(const std::vector<Shape>& shapes,
                                      const std::vector<std::vector<float>>& inputs) {
    plan_ = compile(network_, quick_config());
    return run_plan(plan_, shapes, inputs);
  }
  Tensor* reshape(Tensor* x, std::vector<int64_t> dims) {
    ShuffleParams shuffle;
    shuffle.has_reshape = true;
    shuffle.reshape_dims = std::move(dims);
    return network_.add<Shuffle>(shuffle, {x})->output(0);
  }
  /// What add_in_format makes of a LINEAR tensor.
  static std::vector<float> ramp(std::vector<float> values, float amount) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += amount * static_cast<float>(i);
    return values;
  }
  static std::vector<float> plus(std::vector<float> values, float amount) {
    for (float& value : values) value += amount;
    return values;
  }
  Network network_;
  Plan plan_;
};

TEST_F(Scheduling, FormatsAreConvertedWhereNeighboursDiffer) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {1, 3, 2, 2});
  Tensor* y = add_in_format(x, 1, TensorFormat::kHWC);
  network_.mark_output(*add_in_format(y, 100, TensorFormat::kLINEAR));
  const auto data = random_floats(12, 1);
  const auto result = run({{1, 3, 2, 2}}, {data})[0];
  ASSERT_EQ(plan_.schedules[0].steps.size(), 4u);
  // In HWC, element (c, p) is number 3 p + c; in LINEAR number 4 c + p.
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < 4; ++p)
      EXPECT_FLOAT_EQ(result[4 * c + p],
                      data[4 * c + p] + static_cast<float>(3 * p + c) + 100.0f * (4 * c + p));
}

TEST_F(Scheduling, OneConversionServesAllReaders) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {1, 3, 2, 2});
  for (int i = 0; i < 3; ++i) network_.mark_output(*add_in_format(x, 1, TensorFormat::kHWC));
  run({{1, 3, 2, 2}}, {random_floats(12, 1)});
  // One conversion of the input, three layers, and three of the outputs.
  EXPECT_EQ(plan_.schedules[0].steps.size(), 7u);
}

TEST_F(Scheduling, InPlaceOperatorsShareMemoryWithTheirOperand) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {4, 8});
  TestBehaviour twice;
  twice.run = [](void const* const* inputs, void* const* outputs, std::span<const Shape> shapes) {
    for (int64_t i = 0; i < shapes[0].numel(); ++i)
      static_cast<float*>(outputs[0])[i] = 2 * static_cast<const float*>(inputs[0])[i];
  };
  Tensor* y = add_in_place(add_in_place(apply(twice, {x}), 1), 10);
  network_.mark_output(*apply(twice, {y}));
  const auto data = random_floats(32, 1);
  std::vector<float> expected;
  for (float value : data) expected.push_back(2 * (2 * value + 11));
  expect_near(run({{4, 8}}, {data})[0], expected);
  EXPECT_EQ(plan_.schedules[0].steps.size(), 4u);
  EXPECT_EQ(plan_.schedules[0].arena_size, 32u * sizeof(float));
}

TEST_F(Scheduling, AnOperandThatIsReadLaterIsCopiedBeforeItIsChanged) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {4, 8});
  TestBehaviour copy;
  copy.run = [](void const* const* inputs, void* const* outputs, std::span<const Shape> shapes) {
    std::copy_n(static_cast<const float*>(inputs[0]), shapes[0].numel(),
                static_cast<float*>(outputs[0]));
  };
  Tensor* y = apply(copy, {x});
  Tensor* changed = add_in_place(y, 1);
  TestBehaviour sum;
  sum.run = [](void const* const* inputs, void* const* outputs, std::span<const Shape> shapes) {
    for (int64_t i = 0; i < shapes[0].numel(); ++i)
      static_cast<float*>(outputs[0])[i] =
          static_cast<const float*>(inputs[0])[i] + static_cast<const float*>(inputs[1])[i];
  };
  network_.mark_output(*apply(sum, {changed, y}));
  const auto data = random_floats(32, 1);
  std::vector<float> expected;
  for (float value : data) expected.push_back(2 * value + 1);
  expect_near(run({{4, 8}}, {data})[0], expected);
}

TEST_F(Scheduling, AViewAndItsOperandKeepTheirElementsWhenTheOtherIsChanged) {
  TestBehaviour sum;
  sum.run = [](void const* const* inputs, void* const* outputs, std::span<const Shape> shapes) {
    for (int64_t i = 0; i < shapes[0].numel(); ++i)
      static_cast<float*>(outputs[0])[i] =
          static_cast<const float*>(inputs[0])[i] + static_cast<const float*>(inputs[1])[i];
  };
  sum.infer = [](InferContext&) {
    OutputInfo output;
    output.dims = {32};
    return std::vector<OutputInfo>{output};
  };
  ShuffleParams shuffle;
  shuffle.has_reshape = true;
  shuffle.reshape_dims = {32};
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {4, 8});
  for (bool changes_view : {false, true}) {
    Tensor* y = add_in_format(x, 0, TensorFormat::kLINEAR);
    Tensor* view = network_.add<Shuffle>(shuffle, {y})->output(0);
    Tensor* changed = add_in_place(changes_view ? view : y, 1);
    network_.mark_output(*apply(sum, {changed, changes_view ? y : view}));
  }
  const auto data = random_floats(32, 1);
  std::vector<float> expected;
  for (float value : data) expected.push_back(2 * value + 1);
  for (const auto& result : run({{4, 8}}, {data})) expect_near(result, expected);
}

TEST_F(Scheduling, TwoResultsDoNotShareOneNetworkInput) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {8});
  Tensor* y = add_in_place(x, 1);
  for (Tensor* each : {y, add_in_place(y, 2), add_in_place(x, 5)}) network_.mark_output(*each);
  const auto data = random_floats(8, 1);
  const auto kept = data;
  const auto outputs = run({{8}}, {data});
  expect_near(outputs[0], plus(kept, 1));
  expect_near(outputs[1], plus(kept, 3));
  expect_near(outputs[2], plus(kept, 5));
  EXPECT_EQ(data, kept);
  for (const PlanPort& port : plan_.outputs) EXPECT_EQ(port.aliased_input, -1);
}

TEST_F(Scheduling, InPlaceOperatorsWorkInTheMemoryOfANetworkOutput) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {8});
  network_.mark_output(*add_in_place(add_in_format(x, 0, TensorFormat::kLINEAR), 1));
  const auto data = random_floats(8, 1);
  expect_near(run({{8}}, {data})[0], plus(data, 1));
  EXPECT_EQ(plan_.schedules[0].arena_size, 0u);
  EXPECT_TRUE(plan_.schedules[0].copies.empty());
}

TEST_F(Scheduling, ConstantsAreNotChangedInPlace) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {8});
  const auto data = random_floats(8, 1), constant = random_floats(8, 2);
  Tensor* c = network_.add_constant(DataType::kFLOAT, {8}, blob_of(constant));
  network_.mark_output(*add_in_place(c, 1));
  TestBehaviour copy;
  copy.run = [](void const* const* inputs, void* const* outputs, std::span<const Shape>) {
    std::copy_n(static_cast<const float*>(inputs[0]), 8, static_cast<float*>(outputs[0]));
  };
  network_.mark_output(*apply(copy, {x}));
  plan_ = compile(network_, quick_config());
  for (int i = 0; i < 2; ++i) {
    const auto outputs = run_plan(plan_, {{8}}, {data});
    expect_near(outputs[0], plus(constant, 1));
    expect_near(outputs[1], data);
  }
}

TEST_F(Scheduling, ANetworkInputIsChangedOnlyWhenTheUserGetsItBack) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {8});
  Tensor* y = add_in_place(add_in_place(x, 1), 2);
  network_.mark_output(*y);
  plan_ = compile(network_, quick_config());
  EXPECT_EQ(plan_.outputs[0].aliased_input, 0);
  Context context(Engine::load(plan_, {}));
  auto data = random_floats(8, 1);
  const auto expected = plus(data, 3);
  context.set_input_address(0, data.data());
  context.set_output_address(0, data.data());
  context.enqueue();
  expect_near(data, expected);
}

TEST_F(Scheduling, ANetworkInputIsCopiedWhenTheResultIsReadOnlyByLayers) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {8});
  TestBehaviour copy;
  copy.run = [](void const* const* inputs, void* const* outputs, std::span<const Shape>) {
    std::copy_n(static_cast<const float*>(inputs[0]), 8, static_cast<float*>(outputs[0]));
  };
  network_.mark_output(*apply(copy, {add_in_place(x, 1)}));
  const auto data = random_floats(8, 1);
  const auto kept = data;
  expect_near(run({{8}}, {data})[0], plus(data, 1));
  EXPECT_EQ(data, kept);
  EXPECT_EQ(plan_.outputs[0].aliased_input, -1);
}

TEST_F(Scheduling, OutputsMayBeInputsConstantsValuesAndEachOther) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {2, 3});
  const auto data = random_floats(6, 1), constant = random_floats(4, 2);
  auto identity = [&](Tensor* t) { return network_.add<Identity>({}, {t})->output(0); };
  network_.mark_output(*identity(x));
  Tensor* c = network_.add_constant(DataType::kFLOAT, {4}, blob_of(constant));
  network_.mark_output(*c);
  Tensor* y = add_in_format(x, 1, TensorFormat::kLINEAR);
  network_.mark_output(*y);
  network_.mark_output(*identity(y));
  const auto outputs = run({{2, 3}}, {data});
  std::vector<float> expected = data;
  for (int i = 0; i < 6; ++i) expected[i] += static_cast<float>(i);
  expect_near(outputs[0], data);
  expect_near(outputs[1], constant);
  expect_near(outputs[2], expected);
  expect_near(outputs[3], expected);
}

TEST_F(Scheduling, ReshapesBetweenLayersTakeNoMemoryOfTheirOwn) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {16, 32});
  Tensor* y = add_in_format(x, 1, TensorFormat::kLINEAR);
  ShuffleParams shuffle;
  shuffle.has_reshape = true;
  shuffle.reshape_dims = {8, 64};
  Tensor* z = network_.add<Shuffle>(shuffle, {y})->output(0);
  network_.mark_output(*add_in_format(z, 1, TensorFormat::kLINEAR));
  const auto data = random_floats(512, 1);
  std::vector<float> expected = data;
  for (int i = 0; i < 512; ++i) expected[i] += 2.0f * static_cast<float>(i);
  expect_near(run({{16, 32}}, {data})[0], expected);
  EXPECT_EQ(plan_.schedules[0].arena_size, 512u * sizeof(float));
}

TEST_F(Scheduling, AnOutputThatIsAViewIsWrittenByTheLayerThatMakesItsOperand) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {-1, 32});
  network_.mark_output(*reshape(add_in_format(x, 1, TensorFormat::kLINEAR), {-1}));
  BuilderConfig config = quick_config();
  add_profile(config).set_shape("x", {1, 32}, {4, 32}, {16, 32});
  plan_ = compile(network_, config);
  EXPECT_EQ(plan_.schedules[0].arena_size, 0u);
  EXPECT_TRUE(plan_.schedules[0].copies.empty());
  for (const int64_t rows : {16, 3}) {
    const auto data = random_floats(32 * rows, 1);
    expect_near(run_plan(plan_, {{rows, 32}}, {data})[0], ramp(data, 1));
  }
}

TEST_F(Scheduling, LayersReadAnOutputInItsViewsAndItsOperand) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {16, 32});
  Tensor* y = add_in_format(x, 1, TensorFormat::kLINEAR);
  Tensor* output = reshape(y, {8, 64});
  for (Tensor* each : {output, add_in_format(y, 1, TensorFormat::kLINEAR),
                       add_in_format(reshape(output, {4, 128}), 2, TensorFormat::kLINEAR)})
    network_.mark_output(*each);
  const auto data = random_floats(512, 1);
  const auto results = run({{16, 32}}, {data});
  for (int i = 0; i < 3; ++i) expect_near(results[i], ramp(data, static_cast<float>(i + 1)));
  EXPECT_EQ(plan_.schedules[0].arena_size, 0u);
}

TEST_F(Scheduling, TwoOutputsOfOneTensorHaveTheirOwnMemory) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {16, 32});
  Tensor* y = add_in_format(x, 1, TensorFormat::kLINEAR);
  for (Tensor* each : {reshape(y, {512}), reshape(y, {8, 64}), y}) network_.mark_output(*each);
  const auto data = random_floats(512, 1);
  for (const auto& result : run({{16, 32}}, {data})) expect_near(result, ramp(data, 1));
  EXPECT_EQ(plan_.schedules[0].arena_size, 0u);
}

TEST_F(Scheduling, AViewOfANetworkInputIsReadThere) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {-1, 32});
  Tensor* view = reshape(x, {-1, 16});
  network_.mark_output(*add_in_format(view, 1, TensorFormat::kLINEAR));
  network_.mark_output(*reshape(x, {-1}));
  BuilderConfig config = quick_config();
  add_profile(config).set_shape("x", {1, 32}, {4, 32}, {16, 32});
  plan_ = compile(network_, config);
  EXPECT_EQ(plan_.schedules[0].arena_size, 0u);
  for (const int64_t rows : {16, 3}) {
    const auto data = random_floats(32 * rows, 1);
    const auto results = run_plan(plan_, {{rows, 32}}, {data});
    expect_near(results[0], ramp(data, 1));
    expect_near(results[1], data);
  }
}

TEST_F(Scheduling, OutputsAndInputsKeepTheirElementsWhenAViewOfThemIsChanged) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {16, 32});
  Tensor* y = add_in_format(x, 1, TensorFormat::kLINEAR);
  for (Tensor* each :
       {reshape(y, {512}), add_in_place(y, 10), add_in_place(reshape(x, {8, 64}), 5)})
    network_.mark_output(*each);
  auto data = random_floats(512, 1);
  const auto kept = data;
  const auto results = run({{16, 32}}, {data});
  expect_near(results[0], ramp(kept, 1));
  expect_near(results[1], plus(ramp(kept, 1), 10));
  expect_near(results[2], plus(kept, 5));
  EXPECT_EQ(data, kept);
}

TEST_F(Scheduling, ElementWiseResultsTakeThePlaceOfOperandsThatDie) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {16, 32});
  Tensor* y = add_in_format(x, 0, TensorFormat::kLINEAR);
  y = unary(UnaryOperation::kABS, y);
  y = add_in_format(y, 0, TensorFormat::kLINEAR);
  y = unary(UnaryOperation::kSQRT, y);
  network_.mark_output(*add_in_format(y, 0, TensorFormat::kLINEAR));
  const auto data = random_floats(512, 1);
  std::vector<float> expected;
  for (float value : data) expected.push_back(std::sqrt(std::abs(value)));
  expect_near(run({{16, 32}}, {data})[0], expected);
  EXPECT_EQ(plan_.schedules[0].arena_size, 2u * 512u * sizeof(float));
}

/// Of the step's inputs: whether each lies at its place in the output.
std::vector<bool> in_place(const Plan& plan, const PlanStep& step) {
  const auto& tensors = plan.schedules[0].tensors;
  const PlanTensor& whole = tensors[step.outputs[0]];
  std::vector<bool> result;
  uint64_t offset = 0;
  for (const int32_t input : step.inputs) {
    const PlanTensor& part = tensors[input];
    result.push_back(part.location == Location::kArena && whole.location == Location::kArena &&
                     part.offset == whole.offset + offset);
    offset += part.size;
  }
  return result;
}

std::vector<const PlanStep*> concatenations(const Plan& plan) {
  std::vector<const PlanStep*> steps;
  for (const PlanStep& step : plan.schedules[0].steps)
    if (step.kind == Concatenation::kKind) steps.push_back(&step);
  return steps;
}

TEST_F(Scheduling, OperandsOfAConcatenationAreWrittenInTheirPlaces) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {1, 16, 2, 2});
  const auto step = [&](float amount) { return add_in_format(x, amount, TensorFormat::kLINEAR); };
  Tensor *a = step(1), *b = step(2), *c = step(3);
  Tensor* inner = network_.add<Concatenation>({1}, {a, b})->output(0);
  Tensor* outer = network_.add<Concatenation>({1}, {inner, c})->output(0);
  network_.mark_output(*add_in_format(outer, 0, TensorFormat::kLINEAR));
  const auto data = random_floats(64, 1);
  std::vector<float> expected;
  for (const float amount : {1.0f, 2.0f, 3.0f})
    for (int i = 0; i < 64; ++i) expected.push_back(data[i] + amount * static_cast<float>(i));
  expect_near(run({{1, 16, 2, 2}}, {data})[0], expected);
  const auto steps = concatenations(plan_);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(in_place(plan_, *steps[0]), (std::vector<bool>{true, true}));
  EXPECT_EQ(in_place(plan_, *steps[1]), (std::vector<bool>{true, true}));
  EXPECT_EQ(plan_.schedules[0].arena_size, 3u * 64u * sizeof(float));
}

TEST_F(Scheduling, OperandsAreWrittenInTheirPlacesWhereTheProfileFixesTheirShapes) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {-1, 16});
  Tensor* a = add_in_format(x, 1, TensorFormat::kLINEAR);
  Tensor* b = add_in_format(x, 2, TensorFormat::kLINEAR);
  Tensor* joined = network_.add<Concatenation>({1}, {a, b})->output(0);
  network_.mark_output(*add_in_format(joined, 0, TensorFormat::kLINEAR));
  const auto data = random_floats(32, 1);
  for (const int64_t most : {1, 2}) {
    BuilderConfig config = quick_config();
    add_profile(config).set_shape("x", {1, 16}, {1, 16}, {most, 16});
    const Plan plan = compile(network_, config);
    EXPECT_EQ(in_place(plan, *concatenations(plan).at(0)), std::vector<bool>(2, most == 1));
    std::vector<float> expected;
    for (int64_t row = 0; row < most; ++row)
      for (const float amount : {1.0f, 2.0f})
        for (int64_t i = 16 * row; i < 16 * row + 16; ++i)
          expected.push_back(data[i] + amount * static_cast<float>(i));
    const std::vector<float> in(data.begin(), data.begin() + 16 * most);
    expect_near(run_plan(plan, {{most, 16}}, {in})[0], expected);
  }
}

TEST_F(Scheduling, OperandsThatSomebodyElseNeedsAreCopied) {
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {1, 16, 2, 2});
  const auto step = [&](float amount) { return add_in_format(x, amount, TensorFormat::kLINEAR); };
  Tensor *a = step(1), *b = step(2), *c = step(3);
  // The network's input, one that is there twice, and one that is read once more.
  Tensor* joined = network_.add<Concatenation>({1}, {x, a, b, a, c})->output(0);
  network_.mark_output(*add_in_format(joined, 0, TensorFormat::kLINEAR));
  network_.mark_output(*add_in_format(b, 1, TensorFormat::kLINEAR));
  const auto data = random_floats(64, 1);
  std::vector<float> expected;
  for (const float amount : {0.0f, 1.0f, 2.0f, 1.0f, 3.0f})
    for (int i = 0; i < 64; ++i) expected.push_back(data[i] + amount * static_cast<float>(i));
  const auto results = run({{1, 16, 2, 2}}, {data});
  expect_near(results[0], expected);
  for (int i = 0; i < 64; ++i) EXPECT_FLOAT_EQ(results[1][i], data[i] + 3 * static_cast<float>(i));
  const auto places = in_place(plan_, *concatenations(plan_).at(0));
  EXPECT_FALSE(places[0]);
  EXPECT_TRUE(places[1]);
  EXPECT_FALSE(places[2]);
  EXPECT_FALSE(places[3]);
  EXPECT_TRUE(places[4]);
}

TEST_F(Scheduling, OperandsStayApartWhereTheirPlacesWouldTakeMoreMemory) {
  // A large tensor is joined with a small one that was made long before: its place would have to be
  // there while something else is at its largest.
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {1, 16});
  Tensor* early = add_in_format(x, 1, TensorFormat::kLINEAR);
  Tensor* wide = x;
  for (int i = 0; i < 5; ++i) wide = network_.add<Concatenation>({1}, {wide, wide})->output(0);
  wide = add_in_format(wide, 0, TensorFormat::kLINEAR);
  Tensor* narrow = network_.add<Reduce>({ReduceOperation::kMAX, 0b10, true}, {wide})->output(0);
  std::vector<Tensor*> many{early};
  for (int i = 0; i < 16; ++i) many.push_back(narrow);
  Tensor* joined = network_.add<Concatenation>({1}, many)->output(0);
  network_.mark_output(*add_in_format(joined, 0, TensorFormat::kLINEAR));
  const auto data = random_floats(16, 1);
  const auto result = run({{1, 16}}, {data})[0];
  for (int i = 0; i < 16; ++i) EXPECT_FLOAT_EQ(result[i], data[i] + static_cast<float>(i));
  EXPECT_EQ(plan_.schedules[0].arena_size, (2u * 32u * 16u + 16u) * sizeof(float));
}

TEST_F(Scheduling, SizeTensorsDecideShapesWhileTheEngineRuns) {
  // Keeps the positive elements; the second output says how many there are.
  Tensor* x = network_.add_input("x", DataType::kFLOAT, {-1});
  TestBehaviour filter;
  filter.infer = [](InferContext& context) {
    const Expr extent = context.inputs[0]->dims[0];
    OutputInfo kept, count;
    kept.dtype = DataType::kFLOAT;
    count.dtype = DataType::kINT64;
    kept.dims = {context.declare_size_tensor(1, floor_div(extent, 2), extent)};
    return std::vector<OutputInfo>{kept, count};
  };
  filter.run = [](void const* const* inputs, void* const* outputs, std::span<const Shape> shapes) {
    int64_t count = 0;
    for (int64_t i = 0; i < shapes[0][0]; ++i)
      if (const float value = static_cast<const float*>(inputs[0])[i]; value > 0)
        static_cast<float*>(outputs[0])[count++] = value;
    *static_cast<int64_t*>(outputs[1]) = count;
  };
  Tensor* kept = apply(filter, {x});
  network_.mark_output(*unary(UnaryOperation::kNEG, kept));
  BuilderConfig config = quick_config();
  add_profile(config).set_shape("x", {1}, {10}, {20});
  Context context(Engine::load(compile(network_, config), {}));
  const auto data = random_floats(12, 3);
  std::vector<float> expected;
  for (float value : data)
    if (value > 0) expected.push_back(-value);
  std::vector<float> result(20);
  context.set_input_shape(0, {12});
  context.set_input_address(0, data.data());
  context.set_output_address(0, result.data());
  context.enqueue();
  ASSERT_EQ(context.output_shape(0), Shape({static_cast<int64_t>(expected.size())}));
  result.resize(expected.size());
  expect_near(result, expected);
}

}  // namespace
}  // namespace opwright
