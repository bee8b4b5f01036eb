// Plans as somebody could write them on purpose, made of real ones: each is refused before a kernel
// is made, or stopped by an Error when it runs.

#include <algorithm>
#include <functional>

#include "add_profile.h"
#include "engine_run.h"
#include "error_of.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

using Location = PlanTensor::Location;
using Change = std::function<void(Plan&)>;

/// What loading says after only the plan's checks, as for a file.
std::string load_error(Plan plan, const Change& change, LoadOptions options = {}) {
  change(plan);
  return error_of([&] {
    validate(plan);
    Engine::load(std::move(plan), options);
  });
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "the error was: " << (text)

/// Extents of -1 are 2 in the profile, and 3 in another one: what all profiles fix is a constant.
Plan plan_of(const std::function<Tensor*(Network&, Tensor*)>& make, const Shape& shape = {2, 8},
             DataType dtype = DataType::kFLOAT) {
  Network network;
  Tensor* x = network.add_input("x", dtype, shape);
  Tensor* y = make(network, x);
  y->set_name("y");
  network.mark_output(*y);
  BuilderConfig config = quick_config();
  config.timing = false;
  const bool is_open = std::ranges::find(shape, -1) != shape.end();
  for (const int64_t open : {2, 3}) {
    if (open == 3 && !is_open) break;
    Shape fixed = shape;
    for (int64_t& extent : fixed) extent = extent < 0 ? open : extent;
    add_profile(config).set_shape("x", fixed, fixed, fixed);
  }
  return compile(network, config);
}

/// x -> Softmax -> TopK of 3 (values) -> Softmax -> y
Plan chain() {
  return plan_of([](Network& network, Tensor* x) {
    Tensor* s = network.add<Softmax>({.axes = 0b10}, {x})->output(0);
    const int32_t k = 3;
    Tensor* count = network.add_constant(DataType::kINT32, {}, Blob::copy(&k, sizeof k));
    Tensor* top =
        network.add<TopK>({TopKOperation::kMAX, 3, 0b10, DataType::kINT32}, {s, count})->output(0);
    return network.add<Softmax>({.axes = 0b10}, {top})->output(0);
  });
}

PlanStep& step_of(Plan& plan, std::string_view kind, int which = 0) {
  for (PlanStep& step : plan.schedules[0].steps)
    if (step.kind == kind && which-- == 0) return step;
  throw std::logic_error("there is no such step");
}

TEST(HostilePlan, AnUnchangedOneRuns) {
  const std::vector<float> y = run_plan(chain(), {{2, 8}}, {random_floats(16, 1)})[0];
  EXPECT_EQ(y.size(), 6u);
}

TEST(HostilePlan, MemoryWhoseSizesWrapAroundIsRefused) {
  for (const uint64_t size : {uint64_t{0} - 64, uint64_t{0} - 1, uint64_t{1} << 63}) {
    EXPECT_CONTAINS(load_error(chain(), [&](Plan& p) { p.schedules[0].arena_size = size; }),
                    "are possible");
    EXPECT_CONTAINS(load_error(chain(), [&](Plan& p) { p.schedules[0].workspace_size = size; }),
                    "are possible");
  }
}

TEST(HostilePlan, MoreMemoryThanTheLimitIsRefusedByName) {
  LoadOptions options;
  options.limits.memory = 1 << 20;
  const std::string error = load_error(
      chain(), [](Plan& p) { p.schedules[0].arena_size = 2 << 20; }, options);
  EXPECT_CONTAINS(error, "(memory)");
  EXPECT_CONTAINS(error, "profile 0 needs");
  options = {};
  options.limits.steps = 2;
  EXPECT_CONTAINS(load_error(
                      chain(), [](Plan&) {}, options),
                  "(steps)");
  options = {};
  options.limits.expressions = 1;
  EXPECT_CONTAINS(load_error(
                      chain(), [](Plan&) {}, options),
                  "(expressions)");
}

TEST(HostilePlan, OutputsBeyondTheLimitAreRefusedWhenTheShapesAreKnown) {
  LoadOptions options;
  options.limits.memory = 4096;
  Context context(Engine::load(
      plan_of([](Network& network,
                 Tensor* x) { return network.add<Softmax>({.axes = 0b10}, {x})->output(0); },
              {64, 64}),
      options));
  std::vector<float> x(4096), y(4096);
  context.set_input_address(0, x.data());
  context.set_output_address(0, y.data());
  EXPECT_CONTAINS(error_of([&] { context.enqueue(); }), "with output 'y'");
}

TEST(HostilePlan, ShapesThatTheOperatorDoesNotMakeAreRefused) {
  EXPECT_CONTAINS(load_error(chain(),
                             [](Plan& p) {
                               PlanStep& top = step_of(p, TopK::kKind);
                               std::vector<int32_t>& dims =
                                   p.schedules[0].tensors[top.outputs[0]].dims;
                               dims = {dims[0], dims[0]};
                             }),
                  "output 0 has the shape");
}

TEST(HostilePlan, InputsThatDecideShapesAreKnownBeforeTheRun) {
  const std::string error = load_error(chain(), [](Plan& p) {
    // k from what the first step computes.
    PlanStep& top = step_of(p, TopK::kKind);
    PlanTensor& k = p.schedules[0].tensors[top.inputs[1]];
    k.location = Location::kArena;
    k.size = 64;
    k.offset = p.schedules[0].arena_size;
    k.data = Blob();
    p.schedules[0].arena_size += 64;
    PlanStep& softmax = step_of(p, Softmax::kKind);
    softmax.outputs.push_back(top.inputs[1]);
    softmax.candidate.outputs.push_back(k.type);
  });
  EXPECT_NE(error, "no error");
  const auto elements = [](size_t count) {
    return load_error(chain(), [&](Plan& p) {
      PlanTensor& k = p.schedules[0].tensors[step_of(p, TopK::kKind).inputs[1]];
      const std::vector<int32_t> many(count, 3);
      p.expressions.push_back({.op = ExprOp::kConstant, .value = static_cast<int64_t>(count)});
      k.dims = {static_cast<int32_t>(p.expressions.size()) - 1};
      k.data = Blob::copy(many.data(), many.size() * 4);
      k.size = k.data.size();
    });
  };
  EXPECT_CONTAINS(elements(1000), "decides shapes");
}

TEST(HostilePlan, TypesAndPresenceOfPortsAreTheOperators) {
  // A floating tensor as integers.
  const auto retype = [](DataType dtype) {
    return [dtype](Plan& p) {
      PlanStep& softmax = step_of(p, Softmax::kKind);
      PlanTensor& output = p.schedules[0].tensors[softmax.outputs[0]];
      PlanStep& top = step_of(p, TopK::kKind);
      output.type.dtype = softmax.candidate.outputs[0].dtype = top.candidate.inputs[0].dtype =
          dtype;
    };
  };
  EXPECT_CONTAINS(load_error(chain(), retype(DataType::kINT32)), "has the type INT32");
  EXPECT_NE(load_error(chain(), retype(DataType::kHALF)), "no error");
  EXPECT_NE(load_error(chain(), retype(DataType::kE8M0)), "no error");
  EXPECT_NE(load_error(chain(), [](Plan& p) { step_of(p, Softmax::kKind).inputs[0] = -1; }),
            "no error");
  EXPECT_NE(load_error(chain(),
                       [](Plan& p) {
                         PlanStep& softmax = step_of(p, Softmax::kKind);
                         softmax.inputs.clear(), softmax.candidate.inputs.clear();
                       }),
            "no error");
}

TEST(HostilePlan, TensorsThatAreStillNeededAreNotOverwritten) {
  // Both results of TopK in one place.
  EXPECT_CONTAINS(load_error(chain(),
                             [](Plan& p) {
                               auto& tensors = p.schedules[0].tensors;
                               const PlanStep& top = step_of(p, TopK::kKind);
                               tensors[top.outputs[1]].offset = tensors[top.outputs[0]].offset;
                             }),
                  "which is still needed");
  // An operator that does not work in place, over its own operand.
  EXPECT_CONTAINS(load_error(chain(),
                             [](Plan& p) {
                               auto& tensors = p.schedules[0].tensors;
                               const PlanStep& top = step_of(p, TopK::kKind);
                               tensors[top.outputs[0]].offset = tensors[top.inputs[0]].offset;
                             }),
                  "which is still needed");
}

/// x -> two Softmax -> Concatenation -> Softmax -> y
Plan joined(const Shape& shape = {2, 16}) {
  return plan_of(
      [](Network& network, Tensor* x) {
        Tensor* a = network.add<Softmax>({.axes = 0b10}, {x})->output(0);
        Tensor* b = network.add<Softmax>({.axes = 0b01}, {x})->output(0);
        Tensor* c = network.add<Concatenation>({0}, {a, b})->output(0);
        return network.add<Softmax>({.axes = 0b10}, {c})->output(0);
      },
      shape);
}

TEST(HostilePlan, OnlyOperandsInTheirPlacesAreJoinedThere) {
  const std::vector<float> y = run_plan(joined(), {{2, 16}}, {random_floats(32, 1)})[0];
  EXPECT_EQ(y.size(), 64u);
  const auto error_with = [](const auto& change) {
    return load_error(joined(), [&](Plan& p) {
      PlanStep& step = step_of(p, Concatenation::kKind);
      auto& tensors = p.schedules[0].tensors;
      const uint64_t whole = tensors[step.outputs[0]].offset;
      ASSERT_EQ(tensors[step.inputs[0]].offset, whole);
      ASSERT_EQ(tensors[step.inputs[1]].offset, whole + 128);
      change(p, step, tensors);
    });
  };
  EXPECT_CONTAINS(
      error_with([](Plan&, PlanStep& step, auto&) { std::swap(step.inputs[0], step.inputs[1]); }),
      "which is still needed");
  EXPECT_CONTAINS(error_with([](Plan& p, PlanStep& step, auto& tensors) {
                    p.schedules[0].arena_size += 64;
                    tensors[step.inputs[1]].offset += 64;
                  }),
                  "which is still needed");
}

TEST(HostilePlan, OperandsWhoseShapesChangeAreNotJoinedInTheirPlaces) {
  const auto unchanged = [](Plan&) {};
  EXPECT_EQ(load_error(joined({-1, 16}), unchanged), "no error");
  EXPECT_CONTAINS(load_error(joined({-1, 16}),
                             [](Plan& p) {
                               p.schedules[0].inputs[0].min = {1, 16};
                             }),
                  "which is still needed");
}

TEST(HostilePlan, TheUsersInputsAreNotWritten) {
  EXPECT_CONTAINS(load_error(chain(),
                             [](Plan& p) {
                               PlanStep& softmax = step_of(p, Softmax::kKind);
                               PlanStep& top = step_of(p, TopK::kKind);
                               softmax.outputs[0] = top.inputs[0] = softmax.inputs[0];
                             }),
                  "aliased to no output");
}

TEST(HostilePlan, OperatorsAreCheckedBeforeAKernelIsMade) {
  const Plan pooled = plan_of(
      [](Network& network, Tensor* x) {
        PoolingParams params;
        params.window = params.stride = {2, 2};
        return network.add<Pooling>(params, {x})->output(0);
      },
      {1, 4, 8, 8});
  const auto with = [&](const char* name, AttributeValue value) {
    return load_error(pooled, [&](Plan& p) {
      for (Attribute& attribute : step_of(p, Pooling::kKind).attributes)
        if (attribute.name == name) attribute.value = value;
    });
  };
  EXPECT_NE(with("window_size_nd", Ints{int64_t{1} << 62, 2}), "no error");
  EXPECT_NE(with("stride_nd", Ints{0, 0}), "no error");
  EXPECT_NE(with("stride_nd", Ints{2}), "no error");
  EXPECT_NE(with("stride_nd", Ints{int64_t{-1} << 63, 2}), "no error");
}

/// x [n], n from 1 to 100, to y [n].
Plan dynamic_softmax() {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {-1});
  x->set_dimension_name(0, "n");
  Tensor* y = network.add<Softmax>({.axes = 0b1}, {x})->output(0);
  y->set_name("y");
  network.mark_output(*y);
  BuilderConfig config = quick_config();
  config.timing = false;
  OptimizationProfile profile;
  profile.set_shape("x", {1}, {50}, {100});
  add_profile(config, profile);
  return compile(network, config);
}

/// The expression n * (101 - n) of the extent n of x: as large as n at the profile's ends, and
/// larger in between.
int32_t add_hill(Plan& plan) {
  const int32_t n = plan.inputs[0].dims[0];
  const auto add = [&](ExprInstruction instruction) {
    plan.expressions.push_back(instruction);
    return static_cast<int32_t>(plan.expressions.size()) - 1;
  };
  const int32_t most = add({.op = ExprOp::kConstant, .value = 101});
  const int32_t rest = add({.op = ExprOp::kSub, .a = most, .b = n});
  return add({.op = ExprOp::kProd, .a = rest, .b = n});
}

TEST(HostilePlan, AnExtentThatIsLargerBetweenTheEndsStaysWithinItsMemory) {
  // The file describes the output's extent as n * (101 - n).
  Plan plan = dynamic_softmax();
  Schedule& schedule = plan.schedules[0];
  PlanStep& softmax = step_of(plan, Softmax::kKind);
  const int32_t product = add_hill(plan);
  plan.outputs[0].dims = {product};
  schedule.tensors[softmax.outputs[0]].dims = {product};
  const std::string error = error_of([&] {
    validate(plan);
    run_plan(plan, {{50}}, {random_floats(50, 1)});
  });
  EXPECT_CONTAINS(error, "has the shape");
}

TEST(HostilePlan, CopiesStayWithinTheTensorsThatTheyAreOf) {
  // y is a copy of a tensor in the arena. The file says that both have n * (101 - n)
  // elements.
  Plan plan = dynamic_softmax();
  Schedule& schedule = plan.schedules[0];
  const int32_t product = add_hill(plan);
  PlanStep& softmax = step_of(plan, Softmax::kKind);
  PlanTensor copied = schedule.tensors[softmax.outputs[0]];
  schedule.tensors[softmax.outputs[0]].location = Location::kArena;
  schedule.tensors[softmax.outputs[0]].size = schedule.arena_size = 400;
  // A reshape of 100 elements at the profile's ends, whose result is copied.
  copied.location = Location::kArena;
  copied.offset = 448;
  copied.size = 10000;
  copied.dims = plan.outputs[0].dims = {product};
  schedule.arena_size = 448 + 10048;
  schedule.tensors.push_back(copied);
  PlanStep reshape;
  reshape.name = "reshape";
  reshape.kind = Reshape::kKind;
  reshape.inputs = {softmax.outputs[0]};
  reshape.outputs = {static_cast<int32_t>(schedule.tensors.size()) - 1};
  reshape.candidate = {{copied.type}, {copied.type}, 0, ""};
  schedule.copies = {{reshape.outputs[0], 0}};
  schedule.steps.push_back(reshape);
  const std::string error = error_of([&] {
    validate(plan);
    run_plan(plan, {{50}}, {random_floats(50, 1)});
  });
  EXPECT_NE(error, "no error");
}

/// x [n], n from 1 to 100, and w [100] to y [n] and z [100].
Plan two_softmax() {
  Network network;
  for (const auto& [name, extent] : {std::pair("x", -1), std::pair("w", 100)}) {
    Tensor* in = network.add_input(name, DataType::kFLOAT, {extent});
    network.mark_output(*network.add<Softmax>({.axes = 0b1}, {in})->output(0));
  }
  BuilderConfig config = quick_config();
  config.timing = false;
  add_profile(config).set_shape("x", {1}, {50}, {100});
  return compile(network, config);
}

TEST(HostilePlan, ViewsStayWithinThePortsInWhoseMemoryTheyLie) {
  // The step that wrote z writes y: its 100 elements fit where n is 100. Or its 100 operands are
  // those of x.
  for (const bool is_output : {true, false}) {
    Plan plan = two_softmax();
    Schedule& schedule = plan.schedules[0];
    PlanStep& of_w = schedule.steps[1];
    ASSERT_EQ(schedule.tensors[of_w.outputs[0]].index, 1);
    if (is_output) {
      // Output 1 becomes a copy of w.
      schedule.tensors[of_w.outputs[0]].index = 0;
      schedule.copies.push_back({of_w.inputs[0], 1});
      schedule.steps.erase(schedule.steps.begin());
    } else {
      schedule.tensors[of_w.inputs[0]].index = 0;
    }
    validate(plan);
    Context context(Engine::load(plan, {}));
    std::vector<float> x(100, 1), w(100, 1), y(100, -1), z(100, -1);
    context.set_input_address(0, x.data());
    context.set_input_address(1, w.data());
    context.set_output_address(0, y.data());
    context.set_output_address(1, z.data());
    context.set_input_shape(0, {100});
    context.enqueue();
    std::fill(y.begin(), y.end(), -1.0f);
    context.set_input_shape(0, {10});
    EXPECT_CONTAINS(error_of([&] { context.enqueue(); }), "in whose memory it lies");
    EXPECT_EQ(y, std::vector<float>(100, -1));
  }
}

TEST(HostilePlan, AnExtentThatIsLargerBetweenTheEndsStaysWithinAPort) {
  Plan plan = dynamic_softmax();
  Schedule& schedule = plan.schedules[0];
  PlanTensor view = schedule.tensors[step_of(plan, Softmax::kKind).outputs[0]];
  view.dims = {add_hill(plan)};
  schedule.tensors.push_back(view);
  PlanStep reshape;
  reshape.name = "reshape";
  reshape.kind = Reshape::kKind;
  reshape.inputs = step_of(plan, Softmax::kKind).outputs;
  reshape.outputs = {static_cast<int32_t>(schedule.tensors.size()) - 1};
  reshape.candidate = {{view.type}, {view.type}, 0, ""};
  schedule.steps.push_back(reshape);
  EXPECT_NE(error_of([&] {
              validate(plan);
              run_plan(plan, {{50}}, {random_floats(50, 1)});
            }),
            "no error");
}

TEST(HostilePlan, LayersDoNotOverwriteTheirOperandsInAnOutput) {
  EXPECT_CONTAINS(load_error(chain(),
                             [](Plan& p) {
                               PlanTensor& top =
                                   p.schedules[0].tensors[step_of(p, TopK::kKind).outputs[0]];
                               top.location = Location::kOutput;
                               top.index = 0;
                             }),
                  "over its own operand in the memory of a network input or output");
}

TEST(HostilePlan, ARunEndsAtTheDeadline) {
  LoadOptions options;
  options.limits.run_seconds = 1e-9;
  Context context(Engine::load(chain(), options));
  std::vector<float> x(16), y(6);
  context.set_input_address(0, x.data());
  context.set_output_address(0, y.data());
  EXPECT_CONTAINS(error_of([&] { context.enqueue(); }), "(run_seconds)");
}

TEST(HostilePlan, ChecksTakeTimeInTheOrderOfThePlan) {
  // 100,000 size symbols took minutes when each was settled by an evaluation of its own.
  Plan plan = chain();
  for (int i = 0; i < 100000; ++i) {
    Symbol symbol;
    symbol.kind = Symbol::Kind::kSizeTensor;
    symbol.name = symbol.tensor = str("s", i);
    plan.symbols.push_back(symbol);
    plan.expressions.push_back({.op = ExprOp::kConstant, .value = i});
    const auto bound = static_cast<int32_t>(plan.expressions.size()) - 1;
    plan.size_bounds.emplace_back(bound, bound);
    plan.expressions.push_back({.op = ExprOp::kSymbol, .value = i});
  }
  validate(plan);
  const std::string error = load_error(plan, [](Plan&) {});
  EXPECT_EQ(error, "no error");
}

}  // namespace
}  // namespace opwright
