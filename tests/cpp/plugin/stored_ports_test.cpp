// What operators of plugins check of a plan, which comes from a file: PlannedOperator::check().

#include <functional>
#include <optional>

#include "network/operator_registry.h"
#include "plugin/compile_for_test.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/plugin_kinds.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;

/// A step as a plan stores it.
struct Step {
  std::vector<PortDesc> inputs = {port(DT::kFLOAT, {2, 3})}, outputs = {port(DT::kFLOAT, {2, 3})};
  int64_t tactic = 0;
  std::vector<PackedInput> packed = {};

  void check(const PlannedOperator& op) const {
    Candidate candidate;
    for (const PortDesc& input : inputs) candidate.inputs.push_back(input.type);
    for (const PortDesc& output : outputs) candidate.outputs.push_back(output.type);
    candidate.tactic = tactic;
    KernelArgs args = make_args(candidate, inputs, outputs);
    args.packed = packed;
    op.check(args);
  }
};

/// What the check says of a good step that was changed.
std::string error_with(const PlannedOperator& op, const std::function<void(Step&)>& change,
                       Step step = {}) {
  change(step);
  return thrown_error([&] { step.check(op); });
}

class Stored : public testing::TestWithParam<PluginKind> {
 protected:
  /// As an engine stores it, for FP32, with so many bytes of workspace.
  PlannedOperatorPtr load(int shape_inputs = 0) {
    if (!registered_) registered_.emplace(GetParam(), b_, registry_);
    const OperatorPtr op = make_plugin(GetParam(), b_, 1, shape_inputs);
    const Step step;
    std::vector<PortDesc> inputs = step.inputs;
    if (shape_inputs > 0) inputs.push_back(port(DT::kINT64, {2}));
    const Candidate candidate{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};
    const PlannedOperatorPtr planned = op->plan(make_args(candidate, inputs, step.outputs));
    kind_ = planned->kind();
    stored_ = planned->attributes();
    return load_stored();
  }
  PlannedOperatorPtr load_stored() {
    OperatorLoadContext context;
    context.layer = "test layer";
    context.plugins = &registry_;
    return load_operator(kind_, stored_, context);
  }

  Behavior b_;
  std::optional<RegisteredPlugin> registered_;
  PluginRegistry registry_{&PluginRegistry::global()};
  std::string kind_;
  Attributes stored_;
};

using enum PluginKind;
class StoredPlugin : public Stored {};
INSTANTIATE_TEST_SUITE_P(, StoredPlugin, testing::Values(kV3, kQuick, kV2), kind_of);
class StoredAsked : public Stored {};  // has a supportsFormatCombination() and a workspace
INSTANTIATE_TEST_SUITE_P(, StoredAsked, testing::Values(kV3, kV2), kind_of);
class StoredV3OrQuick : public Stored {};
INSTANTIATE_TEST_SUITE_P(, StoredV3OrQuick, testing::Values(kV3, kQuick), kind_of);
class StoredV3 : public Stored {};
INSTANTIATE_TEST_SUITE_P(, StoredV3, testing::Values(kV3), kind_of);
class StoredQuick : public Stored {};
INSTANTIATE_TEST_SUITE_P(, StoredQuick, testing::Values(kQuick), kind_of);

TEST_P(StoredPlugin, PortsAreThoseOfThePlugin) {
  const PlannedOperatorPtr op = load();
  Step{}.check(*op);
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.inputs.clear(); }),
                  "layer 'test layer': plugin '");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.inputs.push_back(s.inputs[0]); }),
                  "gives it 2 inputs, with types of 2, and it takes 1");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.inputs[0].present = false; }),
                  "input 0 is absent in the engine");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.outputs.clear(); }), "gives it 0 outputs");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.outputs.push_back(s.outputs[0]); }),
                  "gives it 2 outputs, with types of 2, and it has 1");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.outputs[0].present = false; }),
                  "output 0 is absent");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.tactic = 7; }), "stores the tactic 7");
}

TEST_P(StoredAsked, TypesAndFormatsAreAskedFor) {
  const PlannedOperatorPtr op = load();
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.outputs[0].type.dtype = DT::kHALF; }),
                  "output 0 is stored as FP16, which supportsFormatCombination() refuses");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.inputs[0].type.format = TF::kHWC; }),
                  "input 0 is stored as FP32:HWC, which supportsFormatCombination() refuses");
}

TEST_P(StoredQuick, TypesAndFormatsAreListed) {
  const PlannedOperatorPtr op = load();
  EXPECT_TRUE(op->can_infer());
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.outputs[0].type.dtype = DT::kHALF; }),
                  "the engine stores FP32 -> FP16, which is none of the combinations");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.inputs[0].type.format = TF::kHWC; }),
                  "which is none of the combinations");
}

TEST_P(StoredV3OrQuick, TacticsAreThoseForTheConfiguration) {
  b_.tactics = [](DT type) { return type == DT::kFLOAT ? std::vector{3, 5} : std::vector{9}; };
  const PlannedOperatorPtr op = load();
  for (const int64_t tactic : {3, 5}) {
    Step step;
    step.tactic = tactic;
    step.check(*op);
  }
  EXPECT_CONTAINS(
      error_with(*op, [](Step& s) { s.tactic = 0; }),
      "stores the tactic 0, and it has 3, 5; the engine was built with another version");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.tactic = (int64_t{1} << 32) + 3; }),
                  "stores the tactic 4294967299");
}

TEST_P(StoredAsked, TheWorkspaceIsAsLargeAsThePluginWants) {
  b_.workspace = 1000;
  const PlannedOperatorPtr op = load();
  Step{}.check(*op);
  b_.workspace = 1001;
  EXPECT_CONTAINS(error_with(*op, [](Step&) {}),
                  "it wants 1001 bytes of workspace, and the engine stores 1000");
}

TEST_P(StoredV3, AliasedOutputsHaveTheirInputsType) {
  b_.aliased = [](int32_t) { return 0; };
  b_.supports = [](auto...) { return true; };
  const PlannedOperatorPtr op = load();
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.outputs[0].type.dtype = DT::kHALF; }),
                  "output 0 is stored as FP16 but aliased to input 0, which is FP32");
}

TEST_P(StoredV3OrQuick, ShapeInputsCanBeReadOnTheHost) {
  const PlannedOperatorPtr op = load(1);
  Step good;
  good.inputs.push_back(port(DT::kINT64, {2}));
  good.check(*op);
  EXPECT_CONTAINS(error_with(
                      *op, [](Step& s) { s.inputs[1].type.dtype = DT::kFLOAT; }, good),
                  "input 1, whose elements determine shapes, is stored as FP32");
  EXPECT_CONTAINS(error_with(
                      *op, [](Step& s) { s.inputs[1].max = Shape{3}; }, good),
                  "must be a scalar or a vector of constant length");
  EXPECT_CONTAINS(error_with(
                      *op,
                      [](Step& s) {
                        s.inputs[1] = port(DT::kINT64, {2, 2});
                      },
                      good),
                  "must be a scalar or a vector of constant length");
}

TEST_P(StoredV3OrQuick, WithoutABuildPartThePortsAreKnown) {
  EXPECT_TRUE(load()->can_infer());
  b_.has_build = false;
  const PlannedOperatorPtr op = load_stored();
  EXPECT_FALSE(op->can_infer());
  Step{}.check(*op);
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.inputs.clear(); }), "gives it 0 inputs");
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.outputs.clear(); }), "it has at least one");
}

TEST_P(StoredPlugin, InfersAsInANetwork) {
  const PlannedOperatorPtr op = load();
  EXPECT_TRUE(op->can_infer());
  TestContext context({tensor(DT::kFLOAT, {2, 3})});
  EXPECT_EQ(constant_shape(op->infer(context)[0].dims), Shape({2, 3}));
}

TEST_P(StoredV3OrQuick, InfersSizes) {
  b_.num_outputs = 2;
  b_.types = [](DT* out, int32_t, DT const* in, int32_t) {
    out[0] = in[0];
    out[1] = DT::kINT32;
    return 0;
  };
  b_.supports = [](auto...) { return true; };
  b_.shapes = [](DimsExprs const* in, int32_t, DimsExprs const*, int32_t, DimsExprs* out, int32_t,
                 IExprBuilder& e) {
    const IDimensionExpr* size = e.declareSizeTensor(1, *in[0].d[0], *in[0].d[1]);
    out[0].nbDims = 1;
    out[0].d[0] = e.operation(DimensionOperation::kPROD, *size, *e.constant(2));
    out[1].nbDims = 0;
    return 0;
  };
  /// Sizes are at their upper bounds.
  struct Upper final : InferContext {
    Upper() { inputs = all; }
    Expr declare_size_tensor(int, const Expr&, const Expr& upper_bound) override {
      return upper_bound;
    }
    const TensorInfo x = tensor(DT::kFLOAT, {2, 3});
    const TensorInfo* const all[1] = {&x};
  } context;
  const PlannedOperatorPtr op = load();
  const std::vector<OutputInfo> outputs = op->infer(context);
  EXPECT_EQ(constant_shape(outputs[0].dims), Shape({6}));
}

TEST_P(StoredV3OrQuick, NumbersOfInputsAreBounded) {
  load();
  for (Attribute& attribute : stored_)
    if (attribute.name == "num_inputs" || attribute.name == "num_shape_inputs")
      attribute.value = int64_t{0x7fffffff};
  EXPECT_CONTAINS(thrown_error([&] { load_stored(); }),
                  "has 2147483647 inputs and 2147483647 shape inputs");
}

TEST_P(StoredQuick, FunctionsOfPythonMayLackAutotune) {
  b_.language = APILanguage::kPYTHON;
  const PlannedOperatorPtr op = load();
  const auto with = [](int64_t tactic, TF format) {
    return [tactic, format](Step& s) {
      s.inputs[0].type.format = s.outputs[0].type.format = format;
      s.tactic = tactic;
    };
  };
  for (const TF format : {TF::kLINEAR, TF::kHWC}) {
    Step step;
    with(9, format)(step);
    step.check(*op);
    EXPECT_CONTAINS(error_with(*op, with(-1, format)), "stores the tactic -1, and autotune gives");
    EXPECT_CONTAINS(error_with(*op, with((int64_t{1} << 32) + 9, format)), "the tactic 4294967305");
  }
  EXPECT_CONTAINS(error_with(*op, [](Step& s) { s.outputs[0].type.dtype = DT::kHALF; }),
                  "the engine stores FP32 -> FP16, which is none of the combinations");
  // One that lists layouts or tactics has what it lists.
  b_.tactics = [](DT) { return std::vector{4}; };
  EXPECT_CONTAINS(error_with(*op, with(9, TF::kLINEAR)), "stores the tactic 9, and it has 4");
  b_.combinations = {{{DT::kFLOAT, TF::kCHW4}, {DT::kFLOAT, TF::kCHW4}}};
  EXPECT_CONTAINS(error_with(*op, with(4, TF::kHWC)), "which is none of the combinations");
}

TEST_P(StoredQuick, NothingIsCompiledFromAFilesFields) {
  load();
  b_.aot = true;
  int launches = 0;
  b_.launch = [&](auto&&...) { return ++launches; };
  EXPECT_CONTAINS(thrown_error([&] { load_stored(); }), "nothing is compiled while it is loaded");
  EXPECT_EQ(launches, 0);
}

KernelCode kernel() {
  KernelCode code;
  code.name = "k";
  static const CodeObject object =
      compile_for_test("extern \"C\" void k(void**, int64_t, int64_t, int64_t) {}");
  code.object = object;
  return code;
}

class StoredKernel : public testing::Test {
 protected:
  PlannedOperatorPtr load(KernelCode code,
                          const std::function<void(KernelLaunch&)>& change = nullptr) {
    const PlannedOperatorPtr made = make_compiled_kernel(code);
    Attributes stored = made->attributes();
    if (change) change(std::get<KernelLaunch>(stored[0].value));
    validate(stored);
    const std::vector<LoadedCode> own = {{code.object, true}};
    OperatorLoadContext context;
    context.layer = "test layer";
    context.code = own;
    return load_compiled_kernel(stored, context);
  }
};

TEST_F(StoredKernel, CannotBeAskedForItsOutputs) {
  const PlannedOperatorPtr op = load(kernel());
  EXPECT_FALSE(op->can_infer());
  Step{}.check(*op);
  Step many;
  many.inputs.resize(3, many.inputs[0]);
  many.inputs[1].present = false;
  many.check(*op);
}

TEST_F(StoredKernel, TheLaunchFitsThePorts) {
  KernelCode code = kernel();
  code.grid[0] = Expr::symbol(1);
  Step{}.check(*load(code));
  EXPECT_CONTAINS(error_with(*load(code), [](Step& s) { s.inputs[0] = port(DT::kFLOAT, {2}); }),
                  "there is no symbol 1 among 1");
  code = kernel();
  code.shape_inputs = {1};
  const PlannedOperatorPtr op = load(code);
  Step good;
  good.inputs.push_back(port(DT::kINT32, {2}));
  good.check(*op);
  EXPECT_CONTAINS(error_with(
                      *op, [](Step& s) { s.inputs.pop_back(); }, good),
                  "is absent");
  EXPECT_CONTAINS(error_with(
                      *op, [](Step& s) { s.inputs[1].type.dtype = DT::kFLOAT; }, good),
                  "is a shape input of type FP32; expected INT32 or INT64");
  EXPECT_CONTAINS(error_with(
                      *op, [](Step& s) { s.inputs[1].max = Shape{9}; }, good),
                  "expected a constant shape");
  EXPECT_CONTAINS(error_with(
                      *op, [](Step& s) { s.packed.resize(1); }, good),
                  "rearranged");
}

TEST_F(StoredKernel, CodeIsForTheDeviceAndScratchForGpus) {
  KernelCode code = kernel();
  code.scratch = {Expr(64)};
  EXPECT_CONTAINS(error_with(*load(code), [](Step&) {}), "only kernels for GPUs get");
  code = kernel();
  code.object.host = false;
  code.object.target = "sm_90";
  EXPECT_CONTAINS(error_with(*load(code), [](Step&) {}), "it is code for a GPU");
}

TEST_F(StoredKernel, ArgumentsAreBounded) {
  const auto many = [](KernelLaunch& stored) { stored.arguments.resize(100000); };
  EXPECT_CONTAINS(thrown_error([&] { load(kernel(), many); }),
                  "more arguments than any kernel takes");
}

/// Each instruction doubles the one before, so that as a tree the last one is endless.
TEST_F(StoredKernel, LaunchesTakeTimeByTheirLength) {
  constexpr int kLength = 20000;
  const auto doubling = [](KernelLaunch& stored) {
    stored.program = {{ExprOp::kSymbol}};
    for (int i = 1; i < kLength; ++i)
      stored.program.push_back({i % 2 == 0 ? ExprOp::kMax : ExprOp::kMin, i - 1, i - 1});
    stored.grid = {kLength - 1, 0, 0};
  };
  const PlannedOperatorPtr op = load(kernel(), doubling);
  const Step step;
  step.check(*op);
  const Candidate candidate{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};
  const auto made = op->make_kernel(make_args(candidate, step.inputs, step.outputs));
  const Shape shape{2, 3};
  made->on_shape_change({&shape, 1}, {&shape, 1});
  const Shape empty{0, 3};
  EXPECT_CONTAINS(thrown_error([&] {
                    made->on_shape_change({&empty, 1}, {&shape, 1});
                  }),
                  "grid_x is 0");
}

}  // namespace
}  // namespace opwright
