// What plugins of several kinds share. Each test runs once for each kind that it concerns.

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "backend/backend.h"
#include "network/operator_registry.h"
#include "plugin/plugin_kinds.h"
#include "plugin/registry/callback.h"
#include "plugin/test_language.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;
using Descs = DynamicPluginTensorDesc const*;
using enum PluginKind;

/// Outputs of one type.
auto all_of_type(DT type) {
  return [type](DT* out, int32_t n, auto...) {
    std::fill_n(out, n, type);
    return 0;
  };
}

int64_t elements(const PluginTensorDesc& desc) { return Shape(desc.dims).numel(); }

/// Output 0 gets the first input, doubled.
int32_t twice(PluginTensorDesc const* in, PluginTensorDesc const*, void const* const* inputs,
              void* const* outputs, void*, int32_t) {
  for (int64_t i = 0; i < elements(in[0]); ++i)
    static_cast<float*>(outputs[0])[i] = 2 * static_cast<float const*>(inputs[0])[i];
  return 0;
}

void raise() { leave_exception(std::make_exception_ptr(std::out_of_range("from the callback"))); }

class PluginTest : public testing::TestWithParam<PluginKind> {
 protected:
  PluginTest() { b.plugin_namespace = "test"; }
  bool is(PluginKind kind) const { return GetParam() == kind; }
  OperatorPtr make(int inputs = 1, int shape_inputs = 0) {
    return make_plugin(GetParam(), b, inputs, shape_inputs);
  }
  KernelArgs args() { return make_args(candidate, ports, ports); }
  std::string infer_error(int inputs = 1) {
    std::vector<TensorInfo> tensors(static_cast<size_t>(inputs), tensor(DT::kFLOAT, {4, 5}));
    TestContext context(std::move(tensors));
    return thrown_error([&] { make(inputs)->infer(context); });
  }
  /// The beginning of messages.
  std::string who() const {
    return is(kFunction) ? "plugin 'test::test_plugin'"
                         : "plugin 'test_plugin' (version 1, namespace 'test')";
  }

  Behavior b;
  std::vector<PortDesc> ports = {port(DT::kFLOAT, {3})};
  Candidate candidate{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};
};

class AnyPlugin : public PluginTest {};
INSTANTIATE_TEST_SUITE_P(, AnyPlugin, testing::Values(kFunction, kV3, kQuick, kV2), kind_of);
/// Objects of a class, which have clones and answer with a status.
class ClassPlugin : public PluginTest {};
INSTANTIATE_TEST_SUITE_P(, ClassPlugin, testing::Values(kV3, kQuick, kV2), kind_of);
/// Those with tactics, aliases, shape inputs and size tensors.
class NewPlugin : public PluginTest {};
INSTANTIATE_TEST_SUITE_P(, NewPlugin, testing::Values(kFunction, kV3, kQuick), kind_of);
class V3Plugins : public PluginTest {};
INSTANTIATE_TEST_SUITE_P(, V3Plugins, testing::Values(kV3, kQuick), kind_of);
/// Those with a supportsFormatCombination().
class AskedPlugin : public PluginTest {};
INSTANTIATE_TEST_SUITE_P(, AskedPlugin, testing::Values(kV3, kV2), kind_of);

TEST_P(AnyPlugin, ShapesAreExpressionsOverTheInputs) {
  b.num_outputs = 2;
  b.types = [](DT* out, int32_t, DT const* in, int32_t n) {
    EXPECT_EQ(n, 2);
    out[0] = in[1];
    out[1] = DT::kINT32;
    return 0;
  };
  b.shapes = [](DimsExprs const* in, int32_t n, DimsExprs const*, int32_t s, DimsExprs* out,
                int32_t m, IExprBuilder& builder) {
    EXPECT_EQ(n, 2);
    EXPECT_EQ(s, 0);
    EXPECT_EQ(m, 2);
    EXPECT_TRUE(in[0].d[1]->isConstant());
    EXPECT_EQ(in[0].d[1]->getConstantValue(), 3);
    EXPECT_FALSE(in[0].d[0]->isConstant());
    EXPECT_EQ(in[0].d[0]->getConstantValue(), std::numeric_limits<int64_t>::min());
    out[0].nbDims = 2;
    out[0].d[0] = builder.operation(DimensionOperation::kPROD, *in[0].d[0], *builder.constant(2));
    out[0].d[1] =
        builder.operation(DimensionOperation::kCEIL_DIV, *in[0].d[1], *builder.constant(2));
    out[1].nbDims = 0;
    return 0;
  };
  TestContext context({tensor(DT::kFLOAT, {Expr::symbol(0), 3}), tensor(DT::kHALF, {5})});
  const std::vector<OutputInfo> outputs = make(2)->infer(context);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].dtype, DT::kHALF);
  ASSERT_EQ(outputs[0].dims.size(), 2u);
  const int64_t symbols[] = {7};
  EXPECT_EQ(outputs[0].dims[0].evaluate(symbols), 14);
  EXPECT_EQ(outputs[0].dims[1].constant(), 2);
  EXPECT_EQ(outputs[1].dtype, DT::kINT32);
  EXPECT_TRUE(outputs[1].dims.empty());
  EXPECT_EQ(outputs[0].aliased_input, -1);
  if (is(kQuick)) {
    EXPECT_EQ(b.ranks, (std::vector<int32_t>{2, 1}));
  }
}

TEST_P(ClassPlugin, ExpressionsHaveAllOperations) {
  b.shapes = [](auto, auto, auto, auto, DimsExprs* out, int32_t, IExprBuilder& e) {
    using Op = DimensionOperation;
    const Op ops[] = {Op::kSUM, Op::kPROD, Op::kMAX,       Op::kMIN,
                      Op::kSUB, Op::kLESS, Op::kFLOOR_DIV, Op::kCEIL_DIV};
    out[0].nbDims = 8;
    for (int i = 0; i < 8; ++i) out[0].d[i] = e.operation(ops[i], *e.constant(7), *e.constant(2));
    EXPECT_EQ(e.operation(static_cast<Op>(99), *e.constant(1), *e.constant(1)), nullptr);
    return 0;
  };
  TestContext context({tensor(DT::kFLOAT, {1})});
  EXPECT_EQ(constant_shape(make()->infer(context)[0].dims), Shape({9, 14, 7, 2, 5, 0, 3, 4}));
}

TEST_P(NewPlugin, ShapeInputsGiveTheirValues) {
  b.shapes = [](auto, int32_t n, DimsExprs const* values, int32_t s, DimsExprs* out, auto, auto&) {
    EXPECT_EQ(n, 1);
    EXPECT_EQ(s, 1);
    out[0] = values[0];
    return 0;
  };
  const OperatorPtr op = make(1, 1);
  EXPECT_FALSE(op->is_shape_input(0));
  EXPECT_TRUE(op->is_shape_input(1));
  TensorInfo size = tensor(DT::kINT64, {2});
  size.values = std::make_shared<std::vector<Expr>>(std::vector<Expr>{4, Expr::symbol(3)});
  TestContext context({tensor(DT::kFLOAT, {1}), size});
  EXPECT_EQ(op->infer(context)[0].dims, (SymShape{4, Expr::symbol(3)}));
}

TEST_P(V3Plugins, ShapeInputsMustBeKnown) {
  TestContext context({tensor(DT::kFLOAT, {1}), tensor(DT::kINT64, {2})});
  EXPECT_CONTAINS(thrown_error([&] { make(1, 1)->infer(context); }),
                  "shape input 0 must be a shape tensor");
}

TEST_P(NewPlugin, SizeTensorsAreDeclared) {
  b.num_outputs = 2;
  b.types = all_of_type(DT::kINT32);
  b.shapes = [](DimsExprs const* in, auto, auto, auto, DimsExprs* out, auto, IExprBuilder& e) {
    const IDimensionExpr* upper = e.operation(DimensionOperation::kPROD, *in[0].d[0], *in[0].d[1]);
    const IDimensionExpr* opt = e.operation(DimensionOperation::kFLOOR_DIV, *upper, *e.constant(2));
    const IDimensionExpr* size = e.declareSizeTensor(1, *opt, *upper);
    EXPECT_TRUE(size->isSizeTensor());
    EXPECT_FALSE(upper->isSizeTensor());
    out[0].nbDims = 2;
    out[0].d[0] = size;
    out[0].d[1] = e.constant(2);
    out[1].nbDims = 0;
    return 0;
  };
  TestContext context({tensor(DT::kFLOAT, {4, Expr::symbol(0)})});
  const auto outputs = make()->infer(context);
  ASSERT_EQ(context.declared.size(), 1u);
  EXPECT_EQ(context.declared[0].output, 1);
  const int64_t symbols[] = {5};
  EXPECT_EQ(context.declared[0].opt.evaluate(symbols), 10);
  EXPECT_EQ(context.declared[0].upper_bound.evaluate(symbols), 20);
  EXPECT_EQ(outputs[0].dims, (SymShape{Expr::symbol(100), 2}));
}

TEST_P(ClassPlugin, WrongShapesAreNamed) {
  const std::string method = is(kV2) ? "getOutputDimensions(0)" : "getOutputShapes()";
  using Change = std::function<void(DimsExprs const*, DimsExprs*, IExprBuilder&)>;
  const auto expect = [&](const Change& change, const std::string& message) {
    b.shapes = [change](DimsExprs const* in, auto, auto, auto, DimsExprs* out, auto,
                        IExprBuilder& e) {
      out[0] = in[0];
      change(in, out, e);
      return 0;
    };
    const std::string error = infer_error();
    EXPECT_CONTAINS(error, "layer 'test layer': " + who() + ": " + method);
    EXPECT_CONTAINS(error, message);
  };
  expect([](auto, DimsExprs* out, auto&) { out[0].nbDims = 9; }, "a rank of 9");
  expect([](auto, DimsExprs* out, auto&) { out[0].nbDims = -1; },
         is(kV2) ? "a rank of -1" : "set no shape for output 0");
  expect([](auto, DimsExprs* out, auto&) { out[0].d[1] = nullptr; },
         "for extent 1 no expression of this call's expression builder");
  expect([](auto, DimsExprs* out, IExprBuilder& e) { out[0].d[0] = e.constant(-2); },
         "for extent 0 the negative value -2");
  expect(
      [](auto, DimsExprs* out, IExprBuilder& e) {
        const IDimensionExpr& big = *e.constant(int64_t{1} << 40);
        out[0].d[0] = e.operation(DimensionOperation::kPROD, big, big);
      },
      "64 bits");
  expect(
      [](DimsExprs const* in, DimsExprs* out, IExprBuilder& e) {
        out[0].d[0] = e.operation(DimensionOperation::kFLOOR_DIV, *in[0].d[0], *e.constant(0));
      },
      method + ": ");
  expect(
      [](auto, DimsExprs* out, IExprBuilder& e) {
        out[0].d[0] = e.declareSizeTensor(4, *e.constant(1), *e.constant(2));
      },
      is(kV2) ? "V2 plugins cannot have size tensors" : "called for output 4");
}

TEST_P(ClassPlugin, WrongTypesAndNumbersAreNamed) {
  b.types = all_of_type(static_cast<DT>(40));
  const std::string message = infer_error();
  EXPECT_CONTAINS(message, is(kV2) ? "getOutputDataType(0)" : "getOutputDataTypes()");
  EXPECT_CONTAINS(message, "the unknown type 40");
  if (!is(kV2)) {
    b.types = [](auto...) { return 0; };
    EXPECT_CONTAINS(infer_error(), "set no type for output 0");
    b.types = [](auto...) { return 5; };
    EXPECT_CONTAINS(infer_error(), "getOutputDataTypes() returned 5");
    b.types = Behavior().types;
    b.shapes = [](auto&&...) { return -3; };
    EXPECT_CONTAINS(infer_error(), "getOutputShapes() returned -3");
  }
  b.num_outputs = 0;
  EXPECT_CONTAINS(infer_error(), "getNbOutputs() returned 0");
  b.num_outputs = 1;
  TestContext one({tensor(DT::kFLOAT, {4})});
  EXPECT_CONTAINS(thrown_error([&] { make(2)->infer(one); }), "was added with 2 inputs");
  EXPECT_EQ(b.live, 0);
}

TEST_P(NewPlugin, OutputsAreAliased) {
  b.num_outputs = 2;
  b.aliased = [](int32_t output) { return output == 0 ? 1 : -1; };
  TestContext context({tensor(DT::kFLOAT, {4}), tensor(DT::kFLOAT, {4})});
  const auto outputs = make(2)->infer(context);
  EXPECT_EQ(outputs[0].aliased_input, 1);
  EXPECT_EQ(outputs[1].aliased_input, -1);
  b.aliased = [](int32_t) { return 1; };
  EXPECT_CONTAINS(infer_error(2), is(kFunction) ? "outputs 0 and 1 are both aliased to input 1"
                                                : "input 1 is aliased to two");
  if (is(kFunction)) return;
  b.aliased = [](int32_t) { return 2; };
  EXPECT_CONTAINS(infer_error(2), "getAliasedInput(0) returned 2");
}

TEST_P(V3Plugins, NeedTheirParts) {
  const auto error_without = [&](bool& part) {
    part = false;
    const std::string message = thrown_error([&] { make(); });
    part = true;
    return message;
  };
  EXPECT_CONTAINS(error_without(b.has_core), "no core part");
  EXPECT_CONTAINS(error_without(b.has_runtime), "no runtime part");
  EXPECT_CONTAINS(error_without(b.has_build), "no build part");
  EXPECT_CONTAINS(error_without(b.can_clone), "clone() returned null");
  EXPECT_EQ(b.live, 0);
}

TEST_P(AnyPlugin, CandidatesHaveTypesThatTheNetworkAllows) {
  const std::vector<PortDesc> each = {port(DT::kFLOAT, {2, 3})};
  CandidateQuery query = make_query(each, each);
  const OperatorPtr op = make();
  const auto types = [&] {
    std::vector<DT> all;
    for (const Candidate& c : op->candidates(query)) {
      EXPECT_EQ(c.inputs, c.outputs);
      EXPECT_EQ(c.inputs[0].format, TF::kLINEAR);
      EXPECT_EQ(c.tactic, 0);
      all.push_back(c.inputs[0].dtype);
    }
    return all;
  };
  EXPECT_EQ(types(), std::vector{DT::kFLOAT});
  query.fp16 = query.bf16 = true;
  EXPECT_EQ(types(), (std::vector{DT::kFLOAT, DT::kHALF, DT::kBF16}));
  query.strongly_typed = true;
  EXPECT_EQ(types(), std::vector{DT::kFLOAT});
}

TEST_P(AskedPlugin, IsAskedPortByPortInTensorRTsOrder) {
  int calls_at_output = 0;
  b.supports = [&](int32_t pos, Descs p, int32_t n, int32_t m) {
    EXPECT_EQ(n, 2);
    EXPECT_EQ(m, 1);
    EXPECT_EQ(p[pos].desc.dims.d[0], -1);
    if (pos == 2) {
      ++calls_at_output;
      // The plugin accepted both inputs before.
      EXPECT_EQ(p[0].desc.type, DT::kHALF);
      EXPECT_EQ(p[0].desc.format, TF::kLINEAR);
      EXPECT_EQ(p[1].desc.type, DT::kFLOAT);
    }
    return p[pos].desc.format == TF::kLINEAR &&
           p[pos].desc.type == (pos == 0 ? DT::kHALF : DT::kFLOAT);
  };
  std::vector<PortDesc> in = {port(DT::kFLOAT, {2, 3}), port(DT::kFLOAT, {2, 3})}, out = {in[0]};
  for (std::vector<PortDesc>* side : {&in, &out})
    for (PortDesc& each : *side) each.max = {4, 3};
  CandidateQuery query = make_query(in, out);
  query.fp16 = true;
  const auto candidates = make(2)->candidates(query);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].inputs[0], (PortType{DT::kHALF, TF::kLINEAR}));
  EXPECT_EQ(candidates[0].inputs[1], (PortType{DT::kFLOAT, TF::kLINEAR}));
  EXPECT_GT(calls_at_output, 0);
}

TEST_P(AnyPlugin, VectorizedFormats) {
  b.supports = [](int32_t pos, Descs p, auto...) {
    return p[pos].desc.format == TF::kCHW32 && p[pos].desc.type == DT::kINT8;
  };
  const std::vector<PortDesc> image = {port(DT::kINT8, {1, 64, 4, 4})};
  const auto candidates = make()->candidates(make_query(image, image));
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].outputs[0].format, TF::kCHW32);
  // A matrix cannot have the format.
  const std::vector<PortDesc> matrix = {port(DT::kINT8, {4, 4})};
  const std::string message = thrown_error([&] { make()->candidates(make_query(matrix, matrix)); });
  EXPECT_CONTAINS(message, who());
  if (is(kFunction)) return;
  EXPECT_CONTAINS(message, is(kQuick) ? "lists no combination of types and formats"
                                      : "supportsFormatCombination() accepts no combination of "
                                        "types and formats");
  EXPECT_CONTAINS(message, "the network's types are INT8 -> INT8");
}

TEST_P(AskedPlugin, FormatLimitHoldsAndBeginsWithLinear) {
  b.supports = [](auto...) { return true; };
  const size_t limit = is(kV3) ? 3 : size_t{IPluginV2DynamicExt::kFORMAT_COMBINATION_LIMIT};
  b.format_limit = 3;
  const std::vector<PortDesc> image = {port(DT::kFLOAT, {1, 8, 4, 4})};
  CandidateQuery query = make_query(image, image);
  query.fp16 = query.bf16 = is(kV2);
  const auto candidates = make()->candidates(query);
  ASSERT_EQ(candidates.size(), limit);
  EXPECT_EQ(candidates[0].inputs[0].format, TF::kLINEAR);
  EXPECT_EQ(candidates[0].outputs[0].format, TF::kLINEAR);
  for (size_t i = 0; i < limit; ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_FALSE(candidates[i] == candidates[k]);
}

TEST_P(NewPlugin, AliasedPortsHaveOneType) {
  b.supports = [](int32_t pos, Descs p, auto...) { return p[pos].desc.format == TF::kLINEAR; };
  b.aliased = [](int32_t) { return 0; };
  std::vector<PortDesc> out = ports;
  out[0].aliased_input = 0;
  CandidateQuery query = make_query(ports, out);
  query.fp16 = true;
  const std::vector<Candidate> candidates = make()->candidates(query);
  EXPECT_EQ(candidates.size(), 2u);
  for (const Candidate& c : candidates) EXPECT_EQ(c.inputs[0], c.outputs[0]);
}

TEST_P(NewPlugin, TacticsBelongToTheCombination) {
  b.tactics = [](DT type) {
    return type == DT::kFLOAT ? std::vector<int32_t>{1, 2} : std::vector<int32_t>{2};
  };
  b.configure = [](Descs in, int32_t n, Descs out, int32_t m) {
    EXPECT_EQ(n, 1);
    EXPECT_EQ(m, 1);
    EXPECT_EQ(in[0].desc.type, out[0].desc.type);
    EXPECT_EQ(in[0].desc.dims.d[0], -1);  // dynamic
    EXPECT_EQ(in[0].desc.dims.d[1], 3);
    EXPECT_EQ(in[0].min.d[0], 1);
    EXPECT_EQ(in[0].opt.d[0], 4);
    EXPECT_EQ(in[0].max.d[0], 8);
    return 0;
  };
  std::vector<PortDesc> dynamic = {port(DT::kFLOAT, {4, 3})};
  dynamic[0].min = {1, 3};
  dynamic[0].max = {8, 3};
  CandidateQuery query = make_query(dynamic, dynamic);
  query.fp16 = true;
  const auto candidates = make()->candidates(query);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[0].tactic, 1);
  EXPECT_EQ(candidates[1].tactic, 2);
  EXPECT_EQ(candidates[2].tactic, 2);
  EXPECT_EQ(candidates[2].inputs[0].dtype, DT::kHALF);
}

TEST_P(AnyPlugin, KernelGetsWhatItRunsOn) {
  b.workspace = 128;
  if (!is(kV2)) candidate.tactic = 2;
  PluginTensorDesc const* seen = nullptr;
  int input = 0, output = 0, scratch = 0;
  b.enqueue = [&](PluginTensorDesc const* in, PluginTensorDesc const* out,
                  void const* const* inputs, void* const* outputs, void* workspace,
                  int32_t tactic) {
    EXPECT_EQ(tactic, candidate.tactic);
    EXPECT_EQ(in[0].dims.d[0], 3);
    EXPECT_EQ(out[0].dims.nbDims, 1);
    EXPECT_EQ(out[0].dims.d[0], 3);
    EXPECT_EQ(in[0].type, DT::kFLOAT);
    EXPECT_EQ(in[0].scale, -1.0f);
    EXPECT_EQ(inputs[0], &input);
    EXPECT_EQ(outputs[0], &output);
    if (!is(kQuick)) {
      EXPECT_EQ(workspace, &scratch);
    }
    EXPECT_TRUE(seen == nullptr || seen == in) << "descriptors are made once";
    seen = in;
    return 0;
  };
  ports[0].max = {8};
  const OperatorPtr op = make();
  const auto kernel = make_kernel(*op, args());
  EXPECT_EQ(kernel->workspace_size(), is(kV3) || is(kV2) ? 128u : 0u);
  EXPECT_EQ(kernel->domain(), nullptr);
  const Shape shape{3};
  kernel->on_shape_change({&shape, 1}, {&shape, 1});
  void const* inputs[] = {&input};
  void* outputs[] = {&output};
  for (int i = 0; i < 2; ++i) kernel->enqueue(inputs, outputs, &scratch, nullptr);
  EXPECT_NE(seen, nullptr);
}

TEST_P(AnyPlugin, KernelThatFailedCanRunAgain) {
  const OperatorPtr op = make();
  const auto kernel = make_kernel(*op, args());
  b.enqueue = [](auto...) { return 7; };
  const std::string message =
      thrown_error([&] { kernel->enqueue(nullptr, nullptr, nullptr, nullptr); });
  EXPECT_CONTAINS(message, "enqueue() returned 7");
  if (!is(kFunction)) {
    EXPECT_CONTAINS(message, "layer 'test layer': " + who());
  }
  b.enqueue = [](auto...) { return 0; };
  kernel->enqueue(nullptr, nullptr, nullptr, nullptr);
}

TEST_P(ClassPlugin, ExceptionsOfCallbacksAreThrown) {
  const OperatorPtr op = make();
  const auto kernel = make_kernel(*op, args());
  const int live = b.live;
  b.enqueue = [](auto...) {
    raise();
    return -1;
  };
  EXPECT_THROW(kernel->enqueue(nullptr, nullptr, nullptr, nullptr), std::out_of_range);
  b.enqueue = [](auto...) { return 0; };
  kernel->enqueue(nullptr, nullptr, nullptr, nullptr);
  // Methods without a status, too.
  b.supports = [](auto...) {
    raise();
    return false;
  };
  EXPECT_THROW(op->candidates(make_query(ports, ports)), std::out_of_range);
  b.supports = Behavior().supports;
  b.configure = [](auto...) {
    raise();
    return 0;
  };
  EXPECT_THROW(op->plan(args()), std::out_of_range);
  EXPECT_EQ(b.live, live);
}

TEST_P(ClassPlugin, KernelEntersTheDomainOfItsLanguage) {
  static struct Domain final : ExecutionDomain {
    void enter(Queue) override {}
    void leave() noexcept override {}
  } domain;
  TestLanguage python;
  python.domain = &domain;
  b.language = APILanguage::kPYTHON;
  b.generation = PluginVersion::kV2_DYNAMICEXT_PYTHON;
  EXPECT_EQ(make_kernel(*make(), args())->domain(), &domain);
  b.language = APILanguage::kCPP;
  b.generation = PluginVersion::kV2_DYNAMICEXT;
  EXPECT_EQ(make_kernel(*make(), args())->domain(), nullptr);
}

TEST_P(AskedPlugin, WorkspaceMustBeThere) {
  KernelArgs with_device = args();
  with_device.device = &get_device(DeviceType::kCPU);
  for (const size_t bytes : {size_t{1} << 60U, ~size_t{0}}) {
    b.workspace = bytes;
    EXPECT_CONTAINS(thrown_error([&] { make_kernel(*make(), with_device); }),
                    str("getWorkspaceSize() returned ", bytes, " bytes, which the device cannot"));
  }
  EXPECT_EQ(b.live, 0);
}

TEST_P(AnyPlugin, IsStoredAndMadeAgain) {
  if (is(kV3) || is(kV2)) b.workspace = 4096;
  candidate.inputs[0].dtype = candidate.outputs[0].dtype = DT::kHALF;
  ports = with_types(ports, candidate.inputs);
  const PlannedOperatorPtr chosen = make()->plan(args());
  const std::string kind(chosen->kind());
  EXPECT_EQ(kind, is(kFunction) ? "FunctionPlugin" : is(kV2) ? "PluginV2" : "PluginV3");
  const Attributes stored = chosen->attributes();
  ASSERT_EQ(chosen->requirements().size(), 1u);
  EXPECT_EQ(chosen->requirements()[0], (PluginRequirement{kind, "test_plugin", "1", "test"}));

  PluginRegistry empty;
  OperatorLoadContext context;
  context.layer = "test layer";
  context.plugins = &empty;
  const auto error = [&] { return thrown_error([&] { load_operator(kind, stored, context); }); };
  EXPECT_CONTAINS(error(), is(kFunction) ? "is not registered" : "no creator is registered");
  EXPECT_CONTAINS(error(), who());
  PluginRegistry registry;
  RegisteredPlugin registered(GetParam(), b, registry);
  context.plugins = &registry;
  b.has_build = false;  // The plugin that runs needs no build part.
  const PlannedOperatorPtr loaded = load_operator(kind, stored, context);
  EXPECT_EQ(loaded->make_kernel(args())->workspace_size(), b.workspace);
  EXPECT_EQ(loaded->requirements(), chosen->requirements());
  // Each stores the type that configurePlugin() told: FP16 is DataType 1.
  if (is(kV3)) {
    EXPECT_EQ(registered.v3.given, "configured_type=1,;");
    EXPECT_EQ(registered.v3.last_phase, TensorRTPhase::kRUNTIME);
    EXPECT_EQ(registered.v3.layer, "test layer");
  } else if (is(kQuick)) {
    EXPECT_EQ(registered.quick.given, "test::test_plugin");
    EXPECT_EQ(registered.quick.last_phase, TensorRTPhase::kRUNTIME);
    EXPECT_EQ(registered.quick.last_request, QuickPluginCreationRequest::kSTRICT_JIT);
    EXPECT_EQ(registered.quick.last_type, 1);
  } else if (is(kV2)) {
    EXPECT_EQ(registered.v2.stored, (std::vector<int32_t>{7, 1}));
  }
  if (is(kFunction)) return;
  b.can_make = false;
  EXPECT_CONTAINS(error(), "could not make it");
}

TEST_P(AnyPlugin, ForeignAttributesAreRefused) {
  const PlannedOperatorPtr planned = make()->plan(args());
  const std::string kind(planned->kind());
  PluginRegistry registry;
  RegisteredPlugin registered(GetParam(), b, registry);
  OperatorLoadContext context;
  context.layer = "test layer";
  context.plugins = &registry;
  thrown_error([&] { load_operator(kind, {}, context); });
  Attributes stored = planned->attributes();
  const std::string changed = is(kV2) ? "serialized" : "fields";
  for (Attribute& attribute : stored)
    if (attribute.name == changed) attribute.value = Ints{1};
  EXPECT_CONTAINS(thrown_error([&] { load_operator(kind, stored, context); }),
                  "'" + changed + "' must be ");
}

TEST_P(AnyPlugin, EmptyTensorsHaveAddresses) {
  OnePlugin one(GetParam());
  int empty_runs = 0;
  one.b.enqueue = [&](PluginTensorDesc const* in, PluginTensorDesc const* out,
                      void const* const* inputs, void* const* outputs, void* workspace,
                      int32_t tactic) {
    EXPECT_NE(inputs[0], nullptr);
    EXPECT_NE(outputs[0], nullptr);
    if (in[0].dims.d[0] == 0) {
      ++empty_runs;
      EXPECT_EQ(out[0].dims.d[0], 0);
      EXPECT_EQ(out[0].dims.d[1], 3);
    }
    return twice(in, out, inputs, outputs, workspace, tactic);
  };
  one.build();
  EXPECT_EQ(one.run(2)[0], std::vector<float>(6, 4.0f));
  EXPECT_EQ(empty_runs, 0);
  EXPECT_TRUE(one.run(0)[0].empty());
  EXPECT_EQ(empty_runs, 1);
}

TEST_P(NewPlugin, AliasedInputIsUpdatedInPlace) {
  OnePlugin one(GetParam());
  one.b.aliased = [](int32_t) { return 0; };
  one.b.enqueue = [](PluginTensorDesc const* in, auto, void const* const* inputs,
                     void* const* outputs, auto...) {
    EXPECT_EQ(inputs[0], outputs[0]);
    for (int64_t i = 0; i < elements(in[0]); ++i) static_cast<float*>(outputs[0])[i] += 5;
    return 0;
  };
  one.build();
  Context context(one.engine);
  std::vector<float> memory(6, 1.0f);
  context.set_input_shape(0, {2, 3});
  context.set_input_address(0, memory.data());
  context.set_output_address(0, memory.data());
  context.enqueue();
  EXPECT_EQ(memory, std::vector<float>(6, 6.0f));
}

TEST_P(NewPlugin, SizeTensorsGiveTheExtent) {
  OnePlugin one(GetParam());
  one.b.num_outputs = 2;
  one.b.types = [](DT* out, auto...) {
    out[0] = DT::kFLOAT;
    out[1] = DT::kINT32;
    return 0;
  };
  one.b.shapes = [](DimsExprs const* in, auto, auto, auto, DimsExprs* out, auto, IExprBuilder& e) {
    const IDimensionExpr* upper = e.operation(DimensionOperation::kPROD, *in[0].d[0], *in[0].d[1]);
    out[0].nbDims = 1;
    out[0].d[0] = e.declareSizeTensor(1, *upper, *upper);
    out[1].nbDims = 0;
    return 0;
  };
  one.b.supports = [](int32_t pos, Descs p, auto...) { return p[pos].desc.format == TF::kLINEAR; };
  one.b.enqueue = [](PluginTensorDesc const* in, auto, auto, void* const* outputs, auto...) {
    const auto count = static_cast<int32_t>(in[0].dims.d[0]);
    for (int32_t i = 0; i < count; ++i) static_cast<float*>(outputs[0])[i] = 9;
    *static_cast<int32_t*>(outputs[1]) = count;
    return 0;
  };
  one.build();
  EXPECT_EQ(one.run(4)[0], std::vector<float>(4, 9.0f));
  EXPECT_EQ(one.run(1)[0], std::vector<float>(1, 9.0f));
}

struct Fault {
  int kinds;
  const char* method;
  std::function<void(Behavior&)> cause;
  const char* rule;
};

const std::vector<Fault>& faults() {
  constexpr int kOne = static_cast<int>(kV3), kBoth = kOne | static_cast<int>(kQuick),
                kTwo = static_cast<int>(kV2), kAsked = kOne | kTwo, kClasses = kBoth | kTwo;
  static const std::vector<Fault> faults = {
      {kBoth, "getCapabilityInterface", [](Behavior& b) { b.has_core = false; }, "no core part"},
      {kBoth, "getCapabilityInterface", [](Behavior& b) { b.has_build = false; }, "no build part"},
      {kBoth, "getCapabilityInterface", [](Behavior& b) { b.has_runtime = false; },
       "no runtime part"},
      {kClasses, "clone", [](Behavior& b) { b.can_clone = false; }, "returned null"},
      {kClasses, "getNbOutputs", [](Behavior& b) { b.num_outputs = 0; }, "there must be an output"},
      {kBoth, "getOutputDataTypes", [](Behavior& b) { b.types = [](auto...) { return 3; }; },
       "returned 3 instead of 0"},
      {kBoth, "getOutputDataTypes", [](Behavior& b) { b.types = [](auto...) { return 0; }; },
       "set no type for output 0"},
      {kBoth, "getOutputShapes", [](Behavior& b) { b.shapes = [](auto&&...) { return 4; }; },
       "returned 4 instead of 0"},
      {kBoth, "getOutputShapes",
       [](Behavior& b) {
         b.shapes = [](auto, auto, auto, auto, DimsExprs* out, auto, IExprBuilder& e) {
           out[0].nbDims = 1;
           out[0].d[0] = e.operation(DimensionOperation::kPROD, *e.constant(int64_t{1} << 62),
                                     *e.constant(4));
           return 0;
         };
       },
       "not fit 64 bits"},
      {kAsked, "supportsFormatCombination",
       [](Behavior& b) { b.supports = [](auto...) { return false; }; }, "accepts no combination"},
      {kBoth, "configurePlugin", [](Behavior& b) { b.configure = [](auto...) { return 5; }; },
       "returned 5 instead of 0"},
      {kBoth, "getValidTactics",
       [](Behavior& b) {
         b.tactics = [](DT) { return std::vector<int32_t>{1}; };
         b.tactics_status = 6;
       },
       "returned 6 instead of 0"},
      {kBoth, "getValidTactics",
       [](Behavior& b) { b.tactics = [](DT) { return std::vector<int32_t>{0}; }; },
       "tactic 0, but tactics must be positive"},
      {kBoth, "getValidTactics",
       [](Behavior& b) { b.tactics = [](DT) { return std::vector<int32_t>(2, 2); }; },
       "tactic 2 twice"},
      {kAsked, "getWorkspaceSize", [](Behavior& b) { b.workspace = size_t{1} << 60; },
       "which the device cannot provide"},
      {kBoth, "getAliasedInput", [](Behavior& b) { b.aliased = [](int32_t) { return 7; }; },
       "there are 1 inputs"},
      {kBoth, "getFieldsToSerialize", [](Behavior& b) { b.fields_are_null = true; },
       "returned null"},
      {kOne, "attachToContext", [](Behavior& b) { b.attach_returns_null = true; }, "returned null"},
      {kBoth, "setTactic", [](Behavior& b) { b.set_tactic_status = 8; }, "returned 8 instead of 0"},
      {kTwo, "initialize", [](Behavior& b) { b.initialize_status = 4; }, "returned 4 instead of 0"},
      {kOne, "onShapeChange", [](Behavior& b) { b.shape_change = [](auto...) { return 9; }; },
       "returned 9 instead of 0"},
      {kClasses, "enqueue", [](Behavior& b) { b.enqueue = [](auto...) { return 10; }; },
       "returned 10 instead of 0"},
  };
  return faults;
}

TEST_P(ClassPlugin, FaultsAreOneErrorEach) {
  OnePlugin healthy(GetParam());
  healthy.b.enqueue = twice;
  healthy.build();
  for (const Fault& fault : faults()) {
    if ((fault.kinds & static_cast<int>(GetParam())) == 0) continue;
    SCOPED_TRACE(std::string(fault.method) + ": " + fault.rule);
    OnePlugin one(GetParam());
    one.b.enqueue = twice;
    fault.cause(one.b);
    const std::string message = thrown_error([&] { one.build(); });
    EXPECT_CONTAINS(message, fault.method);
    EXPECT_CONTAINS(message, fault.rule);
    if (one.b.has_core) {
      EXPECT_CONTAINS(message, "plugin 'test_plugin'");
    }
    EXPECT_EQ(healthy.run(2)[0], std::vector<float>(6, 4.0f));
    EXPECT_EQ(one.b.live, 0) << "a plugin leaked";
  }
}

TEST_P(AnyPlugin, OtherContextsOfTheEngineGoOn) {
  OnePlugin one(GetParam());
  bool fails = false;
  one.b.enqueue = [&](auto... args) { return fails ? 3 : twice(args...); };
  one.build();
  fails = true;
  EXPECT_CONTAINS(thrown_error([&] { one.run(2); }), "enqueue() returned 3");
  fails = false;
  EXPECT_EQ(one.run(2)[0], std::vector<float>(6, 4.0f));
}

TEST_P(AnyPlugin, ManyCyclesLeaveNothing) {
  OnePlugin one(GetParam());
  one.b.enqueue = twice;
  for (int i = 0; i < 20; ++i) {
    one.build();
    one.run(2);
  }
  one.engine.reset();
  EXPECT_EQ(one.b.live, 0);
  PluginNode node;
  node.layer = "node";
  node.name = one.b.name;
  node.version = one.b.version;
  node.plugin_namespace = one.b.plugin_namespace;
  node.num_inputs = 1;
  node.aot = is(kFunction) ? 0 : -1;
  const int made = one.b.made;
  for (int i = 0; i < 10000; ++i) {
    const OperatorPtr op = make_plugin_for_node(node, &one.registry, {});
    ASSERT_NE(op, nullptr);
    OperatorPtr copy;
    if (is(kV2)) copy = make_plugin_v2_operator(*plugin_v2_of(*op), 1);
    if (is(kV3) || is(kQuick)) copy = make_plugin_v3_operator(*plugin_of(*op), 1, 0);
    one.b.calls.clear();
  }
  EXPECT_EQ(one.b.live, 0);
  EXPECT_EQ(one.b.made - made, is(kV2) ? 20000 : 0);
}

}  // namespace
}  // namespace opwright
