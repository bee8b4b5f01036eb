#include "plugin/abi/v3_model.h"

#include <cstring>
#include <stdexcept>

#include "network/operator_registry.h"
#include "plugin/model/plugin_operator.h"
#include "plugin/plugin_test.h"
#include "plugin/quick_test_plugin.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/registry.h"
#include "plugin/test_language.h"
#include "plugin/test_plugins.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;

OperatorPtr make(Behavior& b, int inputs = 1, int shape_inputs = 0) {
  TestPlugin plugin(b);
  return make_plugin_v3_operator(plugin, inputs, shape_inputs);
}

TEST(V3Infer, ShapesAreExpressionsOverTheInputs) {
  Behavior b;
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
  const std::vector<OutputInfo> outputs = make(b, 2)->infer(context);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].dtype, DT::kHALF);
  ASSERT_EQ(outputs[0].dims.size(), 2u);
  const int64_t symbols[] = {7};
  EXPECT_EQ(outputs[0].dims[0].evaluate(symbols), 14);
  EXPECT_EQ(outputs[0].dims[1].constant(), 2);
  EXPECT_EQ(outputs[1].dtype, DT::kINT32);
  EXPECT_TRUE(outputs[1].dims.empty());
}

TEST(V3Infer, AllOperations) {
  Behavior b;
  b.shapes = [](DimsExprs const*, int32_t, DimsExprs const*, int32_t, DimsExprs* out, int32_t,
                IExprBuilder& e) {
    using Op = DimensionOperation;
    const Op ops[] = {Op::kSUM, Op::kPROD, Op::kMAX,       Op::kMIN,
                      Op::kSUB, Op::kLESS, Op::kFLOOR_DIV, Op::kCEIL_DIV};
    out[0].nbDims = 8;
    for (int i = 0; i < 8; ++i) out[0].d[i] = e.operation(ops[i], *e.constant(7), *e.constant(2));
    EXPECT_EQ(e.operation(static_cast<Op>(99), *e.constant(1), *e.constant(1)), nullptr);
    return 0;
  };
  TestContext context({tensor(DT::kFLOAT, {1})});
  EXPECT_EQ(constant_shape(make(b)->infer(context)[0].dims), Shape({9, 14, 7, 2, 5, 0, 3, 4}));
}

TEST(V3Infer, ShapeInputsGiveTheirValues) {
  Behavior b;
  b.shapes = [](DimsExprs const*, int32_t n, DimsExprs const* values, int32_t s, DimsExprs* out,
                int32_t, IExprBuilder&) {
    EXPECT_EQ(n, 1);
    EXPECT_EQ(s, 1);
    out[0] = values[0];
    return 0;
  };
  const OperatorPtr op = make(b, 1, 1);
  EXPECT_FALSE(op->is_shape_input(0));
  EXPECT_TRUE(op->is_shape_input(1));
  TensorInfo size = tensor(DT::kINT64, {2});
  size.values = std::make_shared<std::vector<Expr>>(std::vector<Expr>{4, Expr::symbol(3)});
  TestContext context({tensor(DT::kFLOAT, {1}), size});
  const SymShape dims = op->infer(context)[0].dims;
  EXPECT_EQ(dims, (SymShape{4, Expr::symbol(3)}));

  TestContext unknown({tensor(DT::kFLOAT, {1}), tensor(DT::kINT64, {2})});
  EXPECT_CONTAINS(thrown_error([&] { op->infer(unknown); }),
                  "shape input 0 must be a shape tensor");
}

TEST(V3Infer, SizeTensors) {
  Behavior b;
  b.num_outputs = 2;
  b.types = [](DT* out, int32_t, DT const*, int32_t) {
    out[0] = out[1] = DT::kINT32;
    return 0;
  };
  b.shapes = [](DimsExprs const* in, int32_t, DimsExprs const*, int32_t, DimsExprs* out, int32_t,
                IExprBuilder& e) {
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
  const auto outputs = make(b)->infer(context);
  ASSERT_EQ(context.declared.size(), 1u);
  EXPECT_EQ(context.declared[0].output, 1);
  const int64_t symbols[] = {5};
  EXPECT_EQ(context.declared[0].opt.evaluate(symbols), 10);
  EXPECT_EQ(context.declared[0].upper_bound.evaluate(symbols), 20);
  EXPECT_EQ(outputs[0].dims, (SymShape{Expr::symbol(100), 2}));
}

TEST(V3Infer, ReportsWhatIsWrongWithShapes) {
  Behavior b;
  TestContext context({tensor(DT::kFLOAT, {4, 5})});
  const auto error_with = [&](auto shapes) {
    b.shapes = [shapes](DimsExprs const* in, int32_t, DimsExprs const*, int32_t, DimsExprs* out,
                        int32_t, IExprBuilder& e) -> int32_t { return shapes(in, out, e); };
    const std::string message = thrown_error([&] { make(b)->infer(context); });
    EXPECT_CONTAINS(message, "layer 'test layer': plugin 'test_plugin' (version 1, namespace '')");
    return message;
  };
  EXPECT_CONTAINS(error_with([](auto*, auto*, auto&) { return -3; }),
                  "getOutputShapes() returned -3");
  EXPECT_CONTAINS(error_with([](auto*, auto*, auto&) { return 0; }), "set no shape for output 0");
  EXPECT_CONTAINS(error_with([](auto*, DimsExprs* out, auto&) {
                    out[0].nbDims = 9;
                    return 0;
                  }),
                  "rank of 9");
  EXPECT_CONTAINS(error_with([](auto*, DimsExprs* out, auto&) {
                    out[0].nbDims = 1;
                    return 0;
                  }),
                  "output 0 for extent 0 no expression");
  EXPECT_CONTAINS(error_with([](DimsExprs const* in, DimsExprs* out, IExprBuilder& e) {
                    out[0].nbDims = 1;
                    out[0].d[0] =
                        e.operation(DimensionOperation::kFLOOR_DIV, *in[0].d[0], *e.constant(0));
                    return 0;
                  }),
                  "getOutputShapes(): ");
  EXPECT_CONTAINS(error_with([](auto*, DimsExprs* out, IExprBuilder& e) {
                    out[0].nbDims = 1;
                    out[0].d[0] = e.constant(-2);
                    return 0;
                  }),
                  "negative value -2");
  EXPECT_CONTAINS(error_with([](auto*, auto*, IExprBuilder& e) {
                    e.declareSizeTensor(4, *e.constant(1), *e.constant(2));
                    return 0;
                  }),
                  "called for output 4");
}

TEST(V3Infer, ReportsWhatIsWrongWithTypes) {
  Behavior b;
  TestContext context({tensor(DT::kFLOAT, {4})});
  b.types = [](auto...) { return 5; };
  EXPECT_CONTAINS(thrown_error([&] { make(b)->infer(context); }),
                  "getOutputDataTypes() returned 5");
  b.types = [](auto...) { return 0; };
  EXPECT_CONTAINS(thrown_error([&] { make(b)->infer(context); }), "set no type for output 0");
  b.types = [](DT* out, auto...) {
    out[0] = static_cast<DT>(40);
    return 0;
  };
  EXPECT_CONTAINS(thrown_error([&] { make(b)->infer(context); }), "unknown type 40");
  b.num_outputs = 0;
  EXPECT_CONTAINS(thrown_error([&] { make(b)->infer(context); }), "getNbOutputs() returned 0");
}

TEST(V3Infer, AliasedOutputs) {
  Behavior b;
  b.num_outputs = 2;
  b.aliased = [](int32_t output) { return output == 0 ? 1 : -1; };
  TestContext context({tensor(DT::kFLOAT, {4}), tensor(DT::kFLOAT, {4})});
  const auto outputs = make(b, 2)->infer(context);
  EXPECT_EQ(outputs[0].aliased_input, 1);
  EXPECT_EQ(outputs[1].aliased_input, -1);
  b.aliased = [](int32_t) { return 1; };
  EXPECT_CONTAINS(thrown_error([&] { make(b, 2)->infer(context); }), "input 1 is aliased to two");
  b.aliased = [](int32_t) { return 2; };
  EXPECT_CONTAINS(thrown_error([&] { make(b, 2)->infer(context); }),
                  "getAliasedInput(0) returned 2");
}

TEST(V3Plugin, NeedsItsParts) {
  Behavior b;
  b.has_core = false;
  EXPECT_CONTAINS(thrown_error([&] { make(b); }), "no core part");
  b.has_core = true;
  b.has_runtime = false;
  EXPECT_CONTAINS(thrown_error([&] { make(b); }), "no runtime part");
  b.has_runtime = true;
  b.has_build = false;
  EXPECT_CONTAINS(thrown_error([&] { make(b); }), "no build part");
  b.has_build = true;
  b.can_clone = false;
  EXPECT_CONTAINS(thrown_error([&] { make(b); }), "clone() returned null");
  EXPECT_EQ(b.live, 0);
}

TEST(V3Candidates, TypesFollowTheQuery) {
  Behavior b;
  const std::vector<PortDesc> in = {port(DT::kFLOAT, {2, 3})}, out = in;
  CandidateQuery query = make_query(in, out);
  const OperatorPtr op = make(b);
  auto candidates = op->candidates(query);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].inputs[0], (PortType{DT::kFLOAT, TF::kLINEAR}));
  EXPECT_EQ(candidates[0].tactic, 0);

  query.fp16 = query.bf16 = true;
  candidates = op->candidates(query);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[1].inputs[0].dtype, DT::kHALF);
  EXPECT_EQ(candidates[1].outputs[0].dtype, DT::kHALF);
  EXPECT_EQ(candidates[2].outputs[0].dtype, DT::kBF16);
  query.strongly_typed = true;
  EXPECT_EQ(op->candidates(query).size(), 1u);
}

TEST(V3Candidates, AsksPortByPortInTensorRTsOrder) {
  Behavior b;
  b.num_outputs = 1;
  int calls_at_output = 0;
  b.supports = [&](int32_t pos, DynamicPluginTensorDesc const* p, int32_t n, int32_t m) {
    EXPECT_EQ(n, 2);
    EXPECT_EQ(m, 1);
    if (pos == 2) {
      ++calls_at_output;
      // What came before was accepted, so it holds.
      EXPECT_EQ(p[0].desc.type, DT::kHALF);
      EXPECT_EQ(p[1].desc.type, DT::kFLOAT);
    }
    if (p[pos].desc.format != TF::kLINEAR) return false;
    return pos == 0 ? p[0].desc.type == DT::kHALF : p[pos].desc.type == DT::kFLOAT;
  };
  const std::vector<PortDesc> in = {port(DT::kFLOAT, {2, 3}), port(DT::kFLOAT, {2, 3})};
  const std::vector<PortDesc> out = {port(DT::kFLOAT, {2, 3})};
  CandidateQuery query = make_query(in, out);
  query.fp16 = true;
  const auto candidates = make(b, 2)->candidates(query);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].inputs[0].dtype, DT::kHALF);
  EXPECT_GT(calls_at_output, 0);
}

TEST(V3Candidates, VectorizedFormats) {
  Behavior b;
  b.supports = [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
    return p[pos].desc.format == TF::kCHW32 && p[pos].desc.type == DT::kINT8;
  };
  const std::vector<PortDesc> ports = {port(DT::kINT8, {1, 64, 4, 4})};
  const auto candidates = make(b)->candidates(make_query(ports, ports));
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].outputs[0].format, TF::kCHW32);
  // A matrix cannot have the format.
  const std::vector<PortDesc> matrix = {port(DT::kINT8, {4, 4})};
  EXPECT_CONTAINS(
      thrown_error([&] { make(b)->candidates(make_query(matrix, matrix)); }),
      "accepts no combination of types and formats; the network's types are INT8 -> INT8");
}

TEST(V3Candidates, LimitHoldsAndBeginsWithLinear) {
  Behavior b;
  b.supports = [](auto...) { return true; };
  b.format_limit = 3;
  const std::vector<PortDesc> ports = {port(DT::kFLOAT, {1, 8, 4, 4})};
  CandidateQuery query = make_query(ports, ports);
  const auto candidates = make(b)->candidates(query);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[0].inputs[0].format, TF::kLINEAR);
  EXPECT_EQ(candidates[0].outputs[0].format, TF::kLINEAR);
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_FALSE(candidates[i] == candidates[k]);
}

TEST(V3Candidates, AliasedPortsAgree) {
  Behavior b;
  b.supports = [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
    return p[pos].desc.format == TF::kLINEAR;
  };
  b.aliased = [](int32_t) { return 0; };
  const std::vector<PortDesc> ports = {port(DT::kFLOAT, {4})};
  CandidateQuery query = make_query(ports, ports);
  query.fp16 = true;
  for (const Candidate& c : make(b)->candidates(query)) EXPECT_EQ(c.inputs[0], c.outputs[0]);
}

TEST(V3Candidates, TacticsBelongToTheCombination) {
  Behavior b;
  b.tactics = [](DT type) {
    return type == DT::kFLOAT ? std::vector<int32_t>{1, 2} : std::vector<int32_t>{2};
  };
  b.configure = [](DynamicPluginTensorDesc const* in, int32_t n, DynamicPluginTensorDesc const* out,
                   int32_t m) {
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
  std::vector<PortDesc> ports = {port(DT::kFLOAT, {4, 3})};
  ports[0].min = {1, 3};
  ports[0].max = {8, 3};
  CandidateQuery query = make_query(ports, ports);
  query.fp16 = true;
  const auto candidates = make(b)->candidates(query);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[0].tactic, 1);
  EXPECT_EQ(candidates[1].tactic, 2);
  EXPECT_EQ(candidates[2].tactic, 2);
  EXPECT_EQ(candidates[2].inputs[0].dtype, DT::kHALF);
}

TEST(V3Candidates, ReportsWrongTacticsAndConfiguration) {
  Behavior b;
  const std::vector<PortDesc> ports = {port(DT::kFLOAT, {4})};
  const CandidateQuery query = make_query(ports, ports);
  const OperatorPtr op = make(b);
  b.tactics = [](DT) { return std::vector<int32_t>{1, 1}; };
  EXPECT_CONTAINS(thrown_error([&] { op->candidates(query); }), "gave tactic 1 twice");
  b.tactics = [](DT) { return std::vector<int32_t>{0}; };
  EXPECT_CONTAINS(thrown_error([&] { op->candidates(query); }), "tactics must be positive");
  b.tactics = [](DT) { return std::vector<int32_t>{1}; };
  b.tactics_status = 9;
  EXPECT_CONTAINS(thrown_error([&] { op->candidates(query); }), "getValidTactics() returned 9");
  b.configure = [](auto...) { return -1; };
  EXPECT_CONTAINS(thrown_error([&] { op->candidates(query); }), "configurePlugin() returned -1");
}

TEST(V3TimingKey, FollowsTheCacheId) {
  Behavior b;
  const std::string first = *make(b)->timing_key();
  b.timing_cache_id = "other";
  EXPECT_NE(*make(b)->timing_key(), first);
  b.timing_cache_id = "";
  EXPECT_EQ(*make(b)->timing_key(), first);
  b.plugin_namespace = "ns";
  EXPECT_NE(*make(b)->timing_key(), first);
  b.timing_cache_id = nullptr;
  EXPECT_FALSE(make(b)->timing_key().has_value());
}

struct OneV3Kernel {
  Behavior b;
  std::vector<PortDesc> ports = {port(DT::kFLOAT, {3})};
  Candidate candidate{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};
  KernelArgs args() { return make_args(candidate, ports, ports); }
};

TEST(V3Kernel, RunsTheTacticOnPreparedDescriptors) {
  OneV3Kernel r;
  r.candidate.tactic = 2;
  r.b.workspace = 128;
  PluginTensorDesc const* seen = nullptr;
  r.b.enqueue = [&](PluginTensorDesc const* in, PluginTensorDesc const* out,
                    void const* const* inputs, void* const* outputs, void* workspace,
                    int32_t tactic) {
    EXPECT_EQ(tactic, 2);
    EXPECT_EQ(in[0].dims.d[0], 3);
    EXPECT_EQ(out[0].dims.nbDims, 1);
    EXPECT_EQ(in[0].type, DT::kFLOAT);
    EXPECT_NE(workspace, nullptr);
    EXPECT_TRUE(seen == nullptr || seen == in);
    seen = in;
    for (int i = 0; i < 3; ++i)
      static_cast<float*>(outputs[0])[i] = 2 * static_cast<float const*>(inputs[0])[i];
    return 0;
  };
  const OperatorPtr op = make(r.b);
  const auto kernel = make_kernel(*op, r.args());
  EXPECT_EQ(kernel->workspace_size(), 128u);
  EXPECT_EQ(kernel->domain(), nullptr);
  const Shape shape{3};
  kernel->on_shape_change({&shape, 1}, {&shape, 1});
  float in[] = {1, 2, 3}, out[3] = {};
  void const* inputs[] = {in};
  void* outputs[] = {out};
  alignas(64) char workspace[128];
  kernel->enqueue(inputs, outputs, workspace, nullptr);
  kernel->enqueue(inputs, outputs, workspace, nullptr);
  EXPECT_EQ(out[2], 6.0f);
}

TEST(V3Kernel, ReportsFailures) {
  OneV3Kernel r;
  const OperatorPtr op = make(r.b);
  r.b.set_tactic_status = 4;
  EXPECT_CONTAINS(thrown_error([&] { make_kernel(*op, r.args()); }), "setTactic() returned 4");
  r.b.set_tactic_status = 0;
  const auto kernel = make_kernel(*op, r.args());
  const Shape shape{3};
  r.b.shape_change = [](auto...) { return 6; };
  EXPECT_CONTAINS(thrown_error([&] {
                    kernel->on_shape_change({&shape, 1}, {&shape, 1});
                  }),
                  "onShapeChange() returned 6");
  r.b.enqueue = [](auto...) { return 7; };
  const std::string message =
      thrown_error([&] { kernel->enqueue(nullptr, nullptr, nullptr, nullptr); });
  EXPECT_CONTAINS(message, "layer 'test layer': plugin 'test_plugin'");
  EXPECT_CONTAINS(message, "enqueue() returned 7");
  r.b.enqueue = [](auto...) { return 0; };
  kernel->enqueue(nullptr, nullptr, nullptr, nullptr);  // still usable
}

TEST(V3Kernel, ThrowsWhatACallbackLeftBehind) {
  OneV3Kernel r;
  const OperatorPtr op = make(r.b);
  const auto kernel = make_kernel(*op, r.args());
  r.b.enqueue = [](auto...) {
    leave_exception(std::make_exception_ptr(std::out_of_range("from the callback")));
    return -1;
  };
  EXPECT_THROW(kernel->enqueue(nullptr, nullptr, nullptr, nullptr), std::out_of_range);
  r.b.enqueue = [](auto...) { return 0; };
  kernel->enqueue(nullptr, nullptr, nullptr, nullptr);
  // Methods without a status, too.
  r.b.supports = [](auto...) {
    leave_exception(std::make_exception_ptr(std::out_of_range("from the callback")));
    return false;
  };
  EXPECT_THROW(op->candidates(make_query(r.ports, r.ports)), std::out_of_range);
}

TEST(V3Kernel, EntersTheDomainOfItsLanguage) {
  static struct Domain final : ExecutionDomain {
    void enter(Queue) override {}
    void leave() noexcept override {}
  } domain;
  TestLanguage python;
  python.domain = &domain;
  OneV3Kernel r;
  r.b.language = APILanguage::kPYTHON;
  EXPECT_EQ(make_kernel(*make(r.b), r.args())->domain(), &domain);
  r.b.language = APILanguage::kCPP;
  EXPECT_EQ(make_kernel(*make(r.b), r.args())->domain(), nullptr);
}

TEST(V3Kernel, ContextsHaveTheirOwnClones) {
  OneV3Kernel r;
  {
    const OperatorPtr op = make(r.b);
    EXPECT_EQ(r.b.live, 1);
    const PlannedOperatorPtr planned = op->plan(r.args());
    const auto first = planned->make_kernel(r.args());
    const auto second = planned->make_kernel(r.args());
    EXPECT_EQ(r.b.live, 4);
    EXPECT_NE(TestPlugin::last_context, nullptr);
    EXPECT_NE(TestPlugin::last_context->getGpuAllocator(), nullptr);
    r.b.attach_returns_itself = true;
    const auto third = planned->make_kernel(r.args());
    EXPECT_EQ(r.b.live, 5);
  }
  EXPECT_EQ(r.b.live, 0);
}

TEST(V3Kernel, IsAttachedAsOneOfItsFamily) {
  OneV3Kernel r;
  QuickBehavior quick;
  r.b.attach = [&] { return new QuickTestPlugin(quick); };
  EXPECT_CONTAINS(thrown_error([&] { make_kernel(*make(r.b), r.args()); }),
                  "what attachToContext() returned cannot be used: it is of the Quick family");
  EXPECT_EQ(r.b.live, 0);
}

TEST(V3Storage, GoesThroughTheCreator) {
  OneV3Kernel r;
  r.b.name = "stored_plugin";
  r.b.plugin_namespace = "ns";
  r.b.workspace = 4096;
  r.candidate.inputs[0].dtype = r.candidate.outputs[0].dtype = DT::kHALF;
  r.ports = with_types(r.ports, r.candidate.inputs);
  const PlannedOperatorPtr chosen = make(r.b)->plan(r.args());
  const Attributes stored = chosen->attributes();
  ASSERT_EQ(chosen->requirements().size(), 1u);
  EXPECT_EQ(chosen->requirements()[0], (PluginRequirement{"PluginV3", "stored_plugin", "1", "ns"}));

  TestCreator creator(r.b);
  PluginRegistry registry;
  OperatorLoadContext context;
  context.layer = "test layer";
  context.plugins = &registry;
  EXPECT_CONTAINS(
      thrown_error([&] { load_plugin_v3(stored, context); }),
      "no creator is registered for plugin 'stored_plugin' (version 1, namespace 'ns')");
  ASSERT_TRUE(registry.registerCreator(creator, "ns"));
  // The plugin that runs has no build part.
  r.b.has_build = false;
  const PlannedPlugin loaded(load_plugin_v3(stored, context), context.layer);
  EXPECT_EQ(creator.last_phase, TensorRTPhase::kRUNTIME);
  EXPECT_EQ(creator.layer, "test layer");
  // What configurePlugin() told before it was stored: FP16 is DataType 1.
  EXPECT_EQ(creator.given, "configured_type=1,;");
  EXPECT_EQ(loaded.make_kernel(r.args())->workspace_size(), 4096u);
  creator.refuse = true;
  EXPECT_CONTAINS(thrown_error([&] { load_plugin_v3(stored, context); }), "could not make it");
}

TEST(V3Storage, RefusesForeignAttributes) {
  OneV3Kernel r;
  OperatorLoadContext context;
  context.layer = "test layer";
  thrown_error([&] { load_plugin_v3({}, context); });
  Attributes stored = make(r.b)->plan(r.args())->attributes();
  for (Attribute& attribute : stored)
    if (attribute.name == "fields") attribute.value = Ints{1};
  TestCreator creator(r.b);
  PluginRegistry registry;
  registry.registerCreator(creator, "");
  context.plugins = &registry;
  EXPECT_CONTAINS(thrown_error([&] { load_plugin_v3(stored, context); }),
                  "'fields' must be plugin fields, not a list of integers");
}

}  // namespace
}  // namespace opwright
