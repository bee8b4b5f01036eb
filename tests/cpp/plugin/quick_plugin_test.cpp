// What only plugins of the Quick family have: lists of combinations, strides, requests, kernels.

#include "plugin/compile_for_test.h"
#include "plugin/engine_for_test.h"
#include "plugin/plugin_kinds.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;
using Request = QuickPluginCreationRequest;

OperatorPtr make_quick(Behavior& b, int inputs = 1) {
  return make_plugin(PluginKind::kQuick, b, inputs);
}

constexpr std::pair<DT, TF> kLinear{DT::kFLOAT, TF::kLINEAR};

/// A kernel of a grid cell for each row: y[row] = sum(x[row]) * args[1] * FACTOR.
void be_row_sums(Behavior& b) {
  b.aot = true;
  b.shapes = [](DimsExprs const* in, auto, auto, auto, DimsExprs* out, auto, auto&) {
    out[0].nbDims = 1;
    out[0].d[0] = in[0].d[0];
    return 0;
  };
  b.launch = [](DimsExprs const* in, IKernelLaunchParams& launch, ISymExprs& arguments,
                IExprBuilder& builder, int32_t) {
    TestSymExpr rows(in[0].d[0]), one(builder.constant(1)), columns(in[0].d[1]);
    TestSymExpr two(builder.constant(2), PluginArgDataType::kINT8);
    EXPECT_TRUE(launch.setGridX(&rows) && launch.setGridY(&one) && launch.setGridZ(&one));
    EXPECT_TRUE(launch.setBlockX(&one) && launch.setBlockY(&one) && launch.setBlockZ(&one));
    EXPECT_EQ(launch.getGridX(), &rows);
    EXPECT_EQ(launch.getSharedMem(), nullptr);
    EXPECT_FALSE(arguments.setSymExpr(0, &columns));
    EXPECT_TRUE(arguments.setNbSymExprs(2));
    EXPECT_TRUE(arguments.setSymExpr(0, &columns) && arguments.setSymExpr(1, &two));
    EXPECT_EQ(arguments.getSymExpr(1), &two);
    EXPECT_EQ(arguments.getSymExpr(2), nullptr);
    EXPECT_FALSE(arguments.setSymExpr(2, &two));
    return 0;
  };
  b.kernel = [](PluginTensorDesc const*, char const** name, char** code, int32_t* size, int32_t) {
    static const CodeObject object = compile_for_test(
        "extern \"C\" void row_sums(void** args, int64_t x, int64_t, int64_t) {"
        "const int32_t n = *(int32_t*)args[1]; const float* row = *(const float**)args[0] + x * n;"
        "float sum = 0; for (int i = 0; i < n; ++i) sum += row[i];"
        "(*(float**)args[3])[x] = sum * *(int8_t*)args[2]; }");
    *name = "row_sums";
    *code = const_cast<char*>(object.bytes.as<char>());
    *size = static_cast<int32_t>(object.bytes.size());
    return 0;
  };
}

TEST(V3Quick, HearsOfRanksAndOfCandidatesOnly) {
  Behavior b;
  b.combinations = {{{DT::kHALF, TF::kLINEAR}, {DT::kHALF, TF::kLINEAR}},
                    {{DT::kFLOAT, TF::kDHWC8}, {DT::kFLOAT, TF::kLINEAR}},
                    {{DT::kFLOAT, TF::kLINEAR}, {DT::kFLOAT, TF::kLINEAR}},
                    {{DT::kFLOAT, TF::kLINEAR}, {DT::kFLOAT, TF::kLINEAR}}};
  b.tactics = [](DT type) {
    return type == DT::kHALF ? std::vector<int32_t>{7, 5} : std::vector<int32_t>{};
  };
  const OperatorPtr op = make_quick(b);
  EXPECT_EQ(op->kind(), "PluginV3");
  TestContext context({tensor(DT::kFLOAT, {Expr::symbol(0), 3, 4})});
  EXPECT_EQ(op->infer(context)[0].dims, (SymShape{Expr::symbol(0), 3, 4}));
  EXPECT_EQ(b.ranks, (std::vector<int32_t>{3}));

  const std::vector<PortDesc> ports = {port(DT::kFLOAT, {2, 3, 4})};
  CandidateQuery query = make_query(ports, ports);
  // FP16 is not allowed and three axes have no DHWC8.
  const Candidate linear{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};
  EXPECT_EQ(op->candidates(query), (std::vector<Candidate>{linear}));
  query.fp16 = true;
  Candidate half{{{DT::kHALF, TF::kLINEAR}}, {{DT::kHALF, TF::kLINEAR}}, 7, ""};
  Candidate other = half;
  other.tactic = 5;
  EXPECT_EQ(op->candidates(query), (std::vector<Candidate>{half, other, linear}));
  b.aliased = [](int32_t) { return 0; };
  b.combinations = {{{DT::kHALF, TF::kLINEAR}, {DT::kFLOAT, TF::kLINEAR}}};
  EXPECT_CONTAINS(thrown_error([&] { op->candidates(query); }),
                  "the network's types are FP32 -> FP32");
}

TEST(V3Quick, EnqueueGetsStridesOfTheFormat) {
  Behavior b;
  std::vector<Shape> strides;
  b.enqueue = [&](PluginTensorDesc const* in, auto...) {
    strides = {Shape(in[0].dims), Shape(b.input_strides[0]), Shape(b.output_strides[0])};
    return 0;
  };
  const std::vector<PortDesc> in = {port(DT::kFLOAT, {2, 3, 4, 5}, TF::kHWC)};
  const std::vector<PortDesc> out = {port(DT::kFLOAT, {2, 3, 4, 5})};
  const Candidate candidate{{{DT::kFLOAT, TF::kHWC}}, {{DT::kFLOAT, TF::kLINEAR}}, 3, ""};
  const auto kernel = make_kernel(*make_quick(b), make_args(candidate, in, out));
  const Shape shape{1, 3, 2, 2};
  kernel->on_shape_change({&shape, 1}, {&shape, 1});
  kernel->enqueue(nullptr, nullptr, nullptr, nullptr);
  EXPECT_EQ(strides, (std::vector<Shape>{shape, {12, 1, 6, 3}, {12, 4, 2, 1}}));
  EXPECT_EQ(kernel->workspace_size(), 0u);
}

TEST(V3Quick, BringsACompiledKernel) {
  Behavior b;
  be_row_sums(b);
  const Plan plan = build(make_quick(b), {3});
  EXPECT_TRUE(plan.requirements.empty());
  ASSERT_EQ(plan.code.size(), 1u);
  const auto engine = Engine::load(plan, {});
  EXPECT_EQ(run(engine, {2, 3}, {1, 2, 3, 4, 5, 6}), (std::vector<float>{12, 30}));
  EXPECT_EQ(run(engine, {1, 3}, {1, 2, 3}), (std::vector<float>{12}));
}

TEST(V3Quick, ExpressionsOfTheShapesMayBeKeptForTheLaunch) {
  Behavior b;
  be_row_sums(b);
  const auto launch = b.launch;
  b.launch = [&b, launch](DimsExprs const*, auto&&... rest) { return launch(&b.kept, rest...); };
  EXPECT_EQ(run(Engine::load(build(make_quick(b), {3}), {}), {1, 3}, {1, 2, 3}),
            (std::vector<float>{12}));
}

TEST(V3Quick, NodesAndFlagsDecideWhatACreatorIsAskedFor) {
  Behavior b;
  b.plugin_namespace = "ns";
  QuickTestCreator creator(b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, "ns"));
  PluginNode node;
  node.layer = "node 1";
  node.name = "test_plugin";
  node.plugin_namespace = "ns";
  node.num_inputs = 1;
  const auto requested = [&](int aot, bool prefer_aot, bool prefer_jit) {
    node.aot = aot;
    NetworkFlags flags;
    flags.prefer_aot_python_plugins = prefer_aot;
    flags.prefer_jit_python_plugins = prefer_jit;
    EXPECT_NE(make_plugin_for_node(node, &registry, flags), nullptr);
    return creator.last_request;
  };
  EXPECT_EQ(requested(-1, false, false), Request::kUNKNOWN);
  EXPECT_EQ(requested(-1, true, false), Request::kPREFER_AOT);
  EXPECT_EQ(requested(-1, false, true), Request::kPREFER_JIT);
  EXPECT_EQ(requested(1, false, true), Request::kSTRICT_AOT);
  EXPECT_EQ(requested(0, true, false), Request::kSTRICT_JIT);
  EXPECT_EQ(creator.given, "ns::test_plugin");
  EXPECT_EQ(creator.last_phase, TensorRTPhase::kBUILD);
  EXPECT_CONTAINS(thrown_error([&] { requested(-1, true, true); }), "both flags");
}

TEST(V3Quick, CompiledKernelsHaveNoShapeInputs) {
  Behavior b;
  be_row_sums(b);
  EXPECT_CONTAINS(thrown_error([&] { make_plugin(PluginKind::kQuick, b, 1, 1); }),
                  "it cannot have shape inputs");
}

TEST(V3Quick, Faults) {
  struct Case {
    const char* message;
    std::function<void(Behavior&)> change;
  };
  using Launch = std::function<void(IKernelLaunchParams&, ISymExprs&, IExprBuilder&)>;
  const auto launch = [](Launch extra) {
    return [extra](Behavior& b) {
      const auto good = b.launch;
      b.launch = [good, extra](DimsExprs const* in, IKernelLaunchParams& params, ISymExprs& args,
                               IExprBuilder& builder, int32_t tactic) {
        const int32_t status = good(in, params, args, builder, tactic);
        extra(params, args, builder);
        return status;
      };
    };
  };
  static char text[] = "void kernel() {}";
  const std::vector<Case> cases = {
      {"getNbSupportedFormatCombinations() returned 0", [](auto& b) { b.combination_count = 0; }},
      {"getNbSupportedFormatCombinations() returned 2147483647",
       [](auto& b) { b.combination_count = INT32_MAX; }},
      {"port 1 of combination 1 the type -1",
       [](auto& b) {
         b.combinations = {{kLinear, kLinear}, {kLinear}};
         b.combination_count = 2;
       }},
      {"lists no combination of types and formats that is possible",
       [](auto& b) {
         b.combinations = {{{DT::kINT64, TF::kLINEAR}, kLinear}};
       }},
      {"setTactic() returned 9", [](auto& b) { b.set_tactic_status = 9; }},
      {"getLaunchParams() returned 1",
       [](auto& b) { b.launch = [](auto, auto&, auto&, auto&, auto) { return 1; }; }},
      {"getLaunchParams(): gridX was not set",
       [](auto& b) { b.launch = [](auto, auto&, auto&, auto&, auto) { return 0; }; }},
      {"getLaunchParams(): gridZ was set to null",
       launch([](auto& params, auto&, auto&) { EXPECT_FALSE(params.setGridZ(nullptr)); })},
      {"getLaunchParams(): gridY is -2; it must be at least 0",
       launch([](auto& params, auto&, auto& builder) {
         TestSymExpr negative(builder.constant(-2));
         params.setGridY(&negative);
       })},
      {"getLaunchParams(): blockX is 0; it must be at least 1",
       launch([](auto& params, auto&, auto& builder) {
         TestSymExpr zero(builder.constant(0));
         params.setBlockX(&zero);
       })},
      {"getLaunchParams(): sharedMem is no expression of this call's",
       launch([](auto& params, auto&, auto&) {
         TestSymExpr foreign(reinterpret_cast<IDimensionExpr const*>(&params));
         params.setSharedMem(&foreign);
       })},
      {"getLaunchParams(): extra argument 2 of 3 was not set",
       launch([](auto&, auto& arguments, auto&) { arguments.setNbSymExprs(3); })},
      {"the number of extra arguments was set to -1",
       launch([](auto&, auto& arguments, auto&) { EXPECT_FALSE(arguments.setNbSymExprs(-1)); })},
      {"extra argument 0 has the unknown data type 9",
       launch([](auto&, auto& arguments, auto& builder) {
         TestSymExpr unknown(builder.constant(1), static_cast<PluginArgDataType>(9));
         arguments.setSymExpr(0, &unknown);
       })},
      {"getKernel() returned 6", [](auto& b) { b.kernel = [](auto...) { return 6; }; }},
      {"getKernel() gave no kernel name", [](auto& b) { b.kernel = [](auto...) { return 0; }; }},
      {"getKernel() gave no code",
       [](auto& b) {
         b.kernel = [](auto, char const** name, auto...) {
           *name = "kernel";
           return 0;
         };
       }},
      {"that getKernel() gave is no shared object for the CPU: it is shorter than an ELF header",
       [](auto& b) {
         b.kernel = [](auto, char const** name, char** code, int32_t* size, auto) {
           *name = "kernel";
           *code = text;
           *size = sizeof(text);
           return 0;
         };
       }},
      {"exports no symbol 'other'",
       [](auto& b) {
         const auto good = b.kernel;
         b.kernel = [good](auto in, char const** name, auto... rest) {
           const int32_t status = good(in, name, rest...);
           *name = "other";
           return status;
         };
       }},
  };
  for (const Case& c : cases) {
    Behavior b;
    be_row_sums(b);
    c.change(b);
    const std::string message = thrown_error([&] { build(make_quick(b), {3}); });
    EXPECT_CONTAINS(message, c.message);
    EXPECT_CONTAINS(message, "the plugin");
  }
}

}  // namespace
}  // namespace opwright
