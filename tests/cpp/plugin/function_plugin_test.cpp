#include "plugin/model/function_plugin.h"

#include <cstring>

#include "network/network.h"
#include "network/operator_registry.h"
#include "plugin/compile_for_test.h"
#include "plugin/lookup.h"
#include "plugin/model/function_model.h"
#include "plugin/plugin_operators.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/registry.h"
#include "plugin/test_plugins.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;

/// y = x * scale, defined by C++ functions; attributes `scale` (float) and `unused` (int array).
class Scale final : public FunctionPlugin {
 public:
  const std::string& name() const override { return name_; }
  const std::string& plugin_namespace() const override { return namespace_; }
  const std::vector<FunctionParameter>& parameters() const override { return parameters_; }
  int num_outputs() const override { return num_outputs_; }
  bool has_impl(DeviceType device) const override { return impl && device == DeviceType::kCPU; }
  bool has_aot_impl(DeviceType device) const override { return aot && device == DeviceType::kCPU; }
  bool has_autotune() const override { return autotuned; }
  std::vector<std::string> impl_attributes() const override { return {"scale"}; }
  std::vector<OutputInfo> infer(InferContext& context, const FieldValues&) const override {
    OutputInfo output;
    static_cast<TensorInfo&>(output) = *context.inputs[0];
    output.aliased_input = aliased_input;
    return std::vector<OutputInfo>(static_cast<size_t>(described), output);
  }
  std::vector<Candidate> autotune(const CandidateQuery& query, const FieldValues&) const override {
    Candidate c{{query.inputs[0].type}, {query.outputs[0].type}, 1, "FIRST"};
    if (all_half) c.outputs[0].dtype = DT::kHALF;
    Candidate d = c;
    if (half) d.outputs[0].dtype = DT::kHALF;
    d.tactic = 2;
    return {c, d};
  }
  std::unique_ptr<Kernel> attach(const KernelArgs&, const FieldValues& attributes,
                                 const FunctionOutputs& outputs) const override {
    told = outputs;
    struct Callback final : Kernel {
      float scale = 0;
      int64_t count = 0;
      void on_shape_change(std::span<const Shape> in, std::span<const Shape>) override {
        count = in[0].numel();
      }
      void enqueue(void const* const* in, void* const* out, void*, Queue) override {
        for (int64_t i = 0; i < count; ++i)
          static_cast<float*>(out[0])[i] = scale * static_cast<float const*>(in[0])[i];
      }
    };
    auto kernel = std::make_unique<Callback>();
    for (const FieldValue& field : attributes)
      if (field.name == "scale") kernel->scale = *field.data.as<float>();
    return kernel;
  }
  KernelCode compile(const KernelArgs& args, const FieldValues&) const override {
    ++compilations;
    KernelCode code;
    code.name = "triple";
    static const CodeObject object = compile_for_test(
        "extern \"C\" void triple(void** args, int64_t x, int64_t, int64_t) {"
        "(*(float**)args[1])[x] = 3 * (*(const float**)args[0])[x]; }");
    code.object = object;
    code.grid[0] = numel(std::vector<Expr>{Expr::symbol(0)});
    EXPECT_EQ(args.candidate->tactic, 0);
    return code;
  }

  std::string fingerprint(FunctionMode mode) const override {
    return mode == FunctionMode::kCompiled ? aot_code : impl_code;
  }

  std::string name_ = "scale", namespace_ = "test", impl_code = "a", aot_code = "b";
  bool impl = true, aot = true, autotuned = false;
  int aliased_input = -1, described = 1;
  bool half = false, all_half = false;  ///< output types of the second, or of all combinations
  int num_outputs_ = 1;
  mutable int compilations = 0;
  mutable FunctionOutputs told;  ///< by the last attach()
  std::vector<FunctionParameter> parameters_ = {
      {.name = "x", .kind = ParameterKind::kTensor},
      {.name = "scale", .type = PluginFieldType::kFLOAT32},
      {.name = "unused", .form = AttributeForm::kArray, .type = PluginFieldType::kINT32},
      {.name = "flag", .type = PluginFieldType::kINT8, .is_bool = true},
      {.name = "mode", .form = AttributeForm::kText, .type = PluginFieldType::kCHAR}};
};

template <class T>
FieldValue field(const char* name, PluginFieldType type, std::vector<T> values) {
  return {name, type, static_cast<int32_t>(values.size()),
          Blob::copy(values.data(), values.size() * sizeof(T))};
}

FieldValues attributes() {
  return {field<float>("scale", PluginFieldType::kFLOAT32, {2.5f}),
          field<int32_t>("unused", PluginFieldType::kINT32, {1, 2})};
}

const std::vector<PortDesc> kPorts = {port(DT::kFLOAT, {4})};
const Candidate kCandidate{{{DT::kFLOAT, TF::kLINEAR}}, {{DT::kFLOAT, TF::kLINEAR}}, 0, ""};

std::vector<float> run(const PlannedOperator& op) {
  const auto kernel = op.make_kernel(make_args(kCandidate, kPorts, kPorts));
  const Shape shape{4};
  kernel->on_shape_change({&shape, 1}, {&shape, 1});
  const float in[] = {1, 2, 3, 4};
  std::vector<float> out(4);
  void const* inputs[] = {in};
  void* outputs[] = {out.data()};
  kernel->enqueue(inputs, outputs, nullptr, nullptr);
  return out;
}

PlannedOperatorPtr plan(const OperatorPtr& op, const std::vector<PortDesc>& ports = kPorts) {
  return op->plan(make_args(kCandidate, ports, ports));
}

TEST(FunctionPlugin, Candidates) {
  auto definition = std::make_shared<Scale>();
  const auto op = make_function_operator(definition, attributes(), FunctionMode::kCallback);
  auto candidates = op->candidates(make_query(kPorts, kPorts));
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0], kCandidate);
  definition->autotuned = true;
  candidates = op->candidates(make_query(kPorts, kPorts));
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates[1].tactic, 2);
  definition->impl = false;
  EXPECT_CONTAINS(thrown_error([&] { op->candidates(make_query(kPorts, kPorts)); }),
                  "plugin 'test::scale' has no impl function for the CPU");
}

TEST(FunctionPlugin, RunsTheCallback) {
  const auto op =
      make_function_operator(std::make_shared<Scale>(), attributes(), FunctionMode::kCallback);
  const PlannedOperatorPtr planned = plan(op);
  EXPECT_EQ(run(*planned), (std::vector<float>{2.5f, 5, 7.5f, 10}));
  EXPECT_EQ(planned->kind(), "FunctionPlugin");
  EXPECT_EQ(planned->requirements()[0],
            (PluginRequirement{"FunctionPlugin", "scale", "1", "test"}));
}

TEST(FunctionPlugin, BecomesACompiledKernel) {
  auto definition = std::make_shared<Scale>();
  const auto op = make_function_operator(definition, attributes(), FunctionMode::kCompiled);
  EXPECT_EQ(run(*plan(op)), (std::vector<float>{3, 6, 9, 12}));
  const PlannedOperatorPtr special = plan(op);
  EXPECT_EQ(special->kind(), "CompiledKernel");
  EXPECT_EQ(definition->compilations, 1);  // for one candidate and shape
  EXPECT_EQ(run(*special), (std::vector<float>{3, 6, 9, 12}));
  EXPECT_TRUE(special->requirements().empty());
  const std::vector<PortDesc> other = {port(DT::kFLOAT, {5})};
  plan(op, other);
  EXPECT_EQ(definition->compilations, 2);
}

TEST(FunctionPlugin, StoresWhatImplTakes) {
  auto definition = std::make_shared<Scale>();
  const auto op = make_function_operator(definition, attributes(), FunctionMode::kCallback);
  const Attributes stored = plan(op)->attributes();
  const auto& fields = std::get<FieldValues>(*find(stored, "fields"));
  ASSERT_EQ(fields.size(), 1u);
  EXPECT_EQ(fields[0].name, "scale");

  OperatorLoadContext context;
  context.layer = "test layer";
  EXPECT_CONTAINS(thrown_error([&] { load_operator("FunctionPlugin", stored, context); }),
                  "'test::scale' is not registered");
  register_function_plugin(definition);
  EXPECT_EQ(run(*load_operator("FunctionPlugin", stored, context)),
            (std::vector<float>{2.5f, 5, 7.5f, 10}));
  deregister_function_plugin("test", "scale");
  EXPECT_EQ(find_function_plugin("test", "scale"), nullptr);
}

TEST(FunctionPlugin, AliasesAreStored) {
  auto definition = std::make_shared<Scale>();
  definition->aliased_input = 0;
  const auto op = make_function_operator(definition, attributes(), FunctionMode::kCallback);
  std::vector<PortDesc> outputs = kPorts;
  outputs[0].aliased_input = 0;
  const PlannedOperatorPtr planned = op->plan(make_args(kCandidate, kPorts, outputs));
  run(*planned);
  EXPECT_EQ(definition->told.aliased_inputs, std::vector<int>{0});
  EXPECT_EQ(definition->told.data_dependent, std::vector<bool>{false});

  register_function_plugin(definition);
  OperatorLoadContext load;
  load.layer = "test layer";
  definition->told = {};
  run(*load_operator("FunctionPlugin", planned->attributes(), load));
  EXPECT_EQ(definition->told.aliased_inputs, std::vector<int>{0});
  Attributes hostile = planned->attributes();
  for (Attribute& attribute : hostile)
    if (attribute.name == "aliased_inputs") attribute.value = Ints{int64_t{1} << 40};
  EXPECT_CONTAINS(thrown_error([&] { run(*load_operator("FunctionPlugin", hostile, load)); }),
                  "is stored as aliased to input");
  for (Attribute& attribute : hostile)
    if (attribute.name == "aliased_inputs") attribute.value = Ints{-1, -1};
  EXPECT_CONTAINS(thrown_error([&] { load_operator("FunctionPlugin", hostile, load); }),
                  "do not fit together");
  deregister_function_plugin("test", "scale");
}

/// What a plan stores, as load_function_plugin() gets it, with one attribute changed.
PlannedOperatorPtr load_with(const Attributes& stored, const char* name = "",
                             AttributeValue value = {}) {
  Attributes changed = stored;
  for (Attribute& attribute : changed)
    if (attribute.name == name) attribute.value = value;
  OperatorLoadContext context;
  context.layer = "test layer";
  return load_operator("FunctionPlugin", changed, context);
}

class StoredFunctions : public testing::Test {
 protected:
  void SetUp() override { register_function_plugin(definition); }
  void TearDown() override { deregister_function_plugin("test", "scale"); }
  Attributes stored(const FieldValues& values = attributes()) const {
    return plan(make_function_operator(definition, values, FunctionMode::kCallback))->attributes();
  }
  static void check(const PlannedOperator& op, std::vector<PortDesc> inputs,
                    std::vector<PortDesc> outputs, int64_t tactic = 0,
                    const std::vector<OutputInfo>& inferred = {}) {
    Candidate candidate;
    for (const PortDesc& input : inputs) candidate.inputs.push_back(input.type);
    for (const PortDesc& output : outputs) candidate.outputs.push_back(output.type);
    candidate.tactic = tactic;
    KernelArgs args = make_args(candidate, inputs, outputs);
    args.inferred = inferred;
    op.check(args);
  }
  const std::shared_ptr<Scale> definition = std::make_shared<Scale>();
};

TEST_F(StoredFunctions, PortsAreThoseOfTheFunctions) {
  const PlannedOperatorPtr op = load_with(stored());
  check(*op, kPorts, kPorts);
  EXPECT_CONTAINS(thrown_error([&] { check(*op, {}, kPorts); }), "'x' is missing");
  EXPECT_CONTAINS(thrown_error([&] { check(*op, {kPorts[0], kPorts[0]}, kPorts); }), "but 2 came");
  EXPECT_CONTAINS(thrown_error([&] { check(*op, kPorts, {kPorts[0], kPorts[0]}); }), "2 outputs");
  EXPECT_CONTAINS(thrown_error([&] { check(*op, kPorts, {}); }), "0 outputs");
}

TEST_F(StoredFunctions, WhatAutotuneMayHaveGivenIsTakenWithoutIt) {
  definition->parameters_.resize(2);  // all of whose attributes are stored
  const PlannedOperatorPtr op = load_with(stored());
  check(*op, kPorts, kPorts, 3);
  EXPECT_CONTAINS(thrown_error([&] { check(*op, kPorts, kPorts, -1); }),
                  "stores the tactic -1, and autotune gives 0 to");
  const std::vector<PortDesc> hwc = {port(DT::kFLOAT, {1, 2, 2, 2}, TF::kHWC)};
  check(*op, hwc, hwc);
  std::vector<PortDesc> quantized = {port(DT::kINT8, {4})};
  quantized[0].scale = 0.5f;
  const std::vector<PortDesc> half = {port(DT::kHALF, {4})}, byte = {port(DT::kINT8, {4})},
                              integer = {port(DT::kINT32, {4})};
  const auto error = [&](const std::vector<PortDesc>& inputs,
                         const std::vector<PortDesc>& outputs) {
    TestContext context({tensor(inputs[0].type.dtype, {4})});
    const std::vector<OutputInfo> inferred = op->infer(context);
    try {
      check(*op, inputs, outputs, 0, inferred);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const auto& inputs : {kPorts, half, quantized})
    for (const auto& outputs : {kPorts, half, quantized}) EXPECT_EQ(error(inputs, outputs), "");
  EXPECT_EQ(error(integer, integer), "");
  EXPECT_EQ(error(byte, byte), "");
  EXPECT_CONTAINS(error(kPorts, integer),
                  "output 0 is stored as INT32, and its register function says FP32");
  EXPECT_CONTAINS(error(kPorts, byte), "stored as INT8, and its register function says FP32");
  EXPECT_CONTAINS(error(integer, half), "stored as FP16, and its register function says INT32");
  EXPECT_CONTAINS(error(byte, kPorts), "stored as FP32, and its register function says INT8");
}

TEST_F(StoredFunctions, AnAttributeThatImplTakesCannotBeLeftOut) {
  auto renamed = std::get<FieldValues>(*find(stored(), "fields"));
  for (FieldValue& field : renamed)
    if (field.name == "scale") field.name = "other";
  const PlannedOperatorPtr op = load_with(stored(), "fields", renamed);
  EXPECT_CONTAINS(thrown_error([&] { check(*op, kPorts, kPorts); }),
                  "does not store its attribute 'scale', which impl takes");
}

TEST_F(StoredFunctions, AliasesAreThoseOfRegister) {
  definition->parameters_.resize(2);  // all of whose attributes are stored
  definition->aliased_input = 0;
  TestContext context({tensor(DT::kFLOAT, {4})});
  const PlannedOperatorPtr op = load_with(stored());  // which says that none is
  const std::vector<OutputInfo> inferred = op->infer(context);
  EXPECT_CONTAINS(thrown_error([&] { check(*op, kPorts, kPorts, 0, inferred); }),
                  "other inputs that outputs are aliased to than its register function says");
}

TEST_F(StoredFunctions, AutotuneIsAskedWhereItsAttributesAreThere) {
  definition->autotuned = true;
  const PlannedOperatorPtr lacking = load_with(stored());
  EXPECT_FALSE(lacking->can_infer());
  check(*lacking, kPorts, kPorts, 3);
  definition->parameters_.resize(2);
  const PlannedOperatorPtr op = load_with(stored());
  EXPECT_TRUE(op->can_infer());
  check(*op, kPorts, kPorts, 2);
  EXPECT_CONTAINS(thrown_error([&] { check(*op, kPorts, kPorts, 3); }),
                  "which autotune does not give");
}

TEST(FunctionPlugin, TwoOutputsCannotTakeOneInput) {
  auto definition = std::make_shared<Scale>();
  definition->aliased_input = 0;
  definition->described = definition->num_outputs_ = 2;
  TestContext context({tensor(DT::kFLOAT, {4})});
  EXPECT_CONTAINS(thrown_error([&] {
                    make_function_operator(definition, {}, FunctionMode::kCallback)->infer(context);
                  }),
                  "plugin 'test::scale': outputs 0 and 1 are both aliased to input 0");
}

TEST(FunctionPlugin, AliasedOutputsKeepTheirInputsType) {
  auto definition = std::make_shared<Scale>();
  definition->aliased_input = 0;
  definition->autotuned = definition->half = true;
  const auto op = make_function_operator(definition, attributes(), FunctionMode::kCallback);
  std::vector<PortDesc> outputs = kPorts;
  outputs[0].aliased_input = 0;
  ASSERT_EQ(op->candidates(make_query(kPorts, outputs)).size(), 1u);
  definition->all_half = true;
  EXPECT_CONTAINS(thrown_error([&] { op->candidates(make_query(kPorts, outputs)); }),
                  "output 0 is FP16 but aliased to input 0, which is FP32");
}

TEST(FunctionPlugin, TimingKeyTellsAttributesAndModesApart) {
  auto definition = std::make_shared<Scale>();
  FieldValues other = attributes();
  other[0] = field<float>("scale", PluginFieldType::kFLOAT32, {2.75f});
  const auto key = [&](const FieldValues& values, FunctionMode mode) {
    return *make_function_operator(definition, values, mode)->timing_key();
  };
  EXPECT_EQ(key(attributes(), FunctionMode::kCallback), key(attributes(), FunctionMode::kCallback));
  EXPECT_NE(key(attributes(), FunctionMode::kCallback), key(other, FunctionMode::kCallback));
  EXPECT_NE(key(attributes(), FunctionMode::kCallback), key(attributes(), FunctionMode::kCompiled));
  // The code of a function counts for the mode that runs it.
  const std::string callback = key(attributes(), FunctionMode::kCallback);
  const std::string compiled = key(attributes(), FunctionMode::kCompiled);
  definition->impl_code = "edited";
  EXPECT_NE(key(attributes(), FunctionMode::kCallback), callback);
  EXPECT_EQ(key(attributes(), FunctionMode::kCompiled), compiled);
  definition->aot_code = "edited";
  EXPECT_NE(key(attributes(), FunctionMode::kCompiled), compiled);
}

TEST(FunctionPlugin, NumberOfOutputsIsChecked) {
  auto definition = std::make_shared<Scale>();
  definition->num_outputs_ = 2;
  TestContext context({tensor(DT::kFLOAT, {4})});
  EXPECT_CONTAINS(thrown_error([&] {
                    make_function_operator(definition, {}, FunctionMode::kCallback)->infer(context);
                  }),
                  "described 1 outputs, expected 2");
}

TEST(FunctionPlugin, InputsAreCheckedByTheirKinds) {
  const std::vector<FunctionParameter> parameters = {
      {.name = "x", .kind = ParameterKind::kTensor},
      {.name = "n", .kind = ParameterKind::kShapeInput},
      {.name = "b", .kind = ParameterKind::kOptionalTensor},
      {.name = "xs", .kind = ParameterKind::kTensors},
      {.name = "k"}};
  EXPECT_EQ(num_fixed_inputs(parameters), 3u);
  EXPECT_EQ(parameter_of_input(parameters, 2)->name, "b");
  EXPECT_EQ(parameter_of_input(parameters, 9)->name, "xs");
  check_inputs(parameters, {true, true, false}, "p");
  check_inputs(parameters, {true, true, true, true, true}, "p");
  const auto error_with = [&](const std::vector<FunctionParameter>& p, std::vector<bool> present) {
    return thrown_error([&] { check_inputs(p, present, "plugin 'p'"); });
  };
  EXPECT_EQ(error_with(parameters, {true}),
            "plugin 'p' takes the tensors (x, n, b=None, *xs), but 'n' is missing");
  EXPECT_CONTAINS(error_with(parameters, {true, false, true}), "but input 1 ('n') is absent");
  EXPECT_CONTAINS(error_with(parameters, {true, true, true, false}), "input 3 ('xs') is absent");
  const std::vector<FunctionParameter> one = {{.name = "x", .kind = ParameterKind::kTensor}};
  EXPECT_CONTAINS(error_with(one, {true, true}), "takes the tensors (x), but 2 came");
  EXPECT_EQ(parameter_of_input(one, 1), nullptr);
}

TEST(ChooseMode, FollowsTheRequestThenTheFlags) {
  Scale both;
  EXPECT_EQ(choose_mode(both, 1, false, true), FunctionMode::kCompiled);
  EXPECT_EQ(choose_mode(both, 0, true, false), FunctionMode::kCallback);
  EXPECT_EQ(choose_mode(both, -1, true, false), FunctionMode::kCompiled);
  EXPECT_EQ(choose_mode(both, -1, false, true), FunctionMode::kCallback);
  const std::string message = thrown_error([&] { choose_mode(both, -1, false, false); });
  EXPECT_CONTAINS(message, "aot=True or aot=False");
  EXPECT_CONTAINS(message, "PREFER_AOT_PYTHON_PLUGINS or PREFER_JIT_PYTHON_PLUGINS");
  EXPECT_CONTAINS(thrown_error([&] { choose_mode(both, -1, true, true); }), "has both flags");
  Scale jit;
  jit.aot = false;
  EXPECT_EQ(choose_mode(jit, -1, true, false), FunctionMode::kCallback);
  EXPECT_CONTAINS(thrown_error([&] { choose_mode(jit, 1, false, false); }), "no aot_impl");
  Scale aot;
  aot.impl = false;
  EXPECT_EQ(choose_mode(aot, -1, false, false), FunctionMode::kCompiled);
  EXPECT_CONTAINS(thrown_error([&] { choose_mode(aot, 0, false, false); }), "no impl");
  aot.aot = false;
  EXPECT_CONTAINS(thrown_error([&] { choose_mode(aot, -1, false, false); }), "neither");
}

/// What the log is warned of.
class Warnings final : public ILogger {
 public:
  void log(Severity severity, char const* message) noexcept override {
    if (severity == Severity::kWARNING) messages.emplace_back(message);
  }
  std::vector<std::string> messages;
};

class Lookup : public testing::Test {
 protected:
  void SetUp() override { register_function_plugin(definition); }
  void TearDown() override { deregister_function_plugin("test", "scale"); }
  PluginNode node(FieldValues values) const {
    PluginNode n;
    n.layer = "node 1";
    n.name = "scale";
    n.plugin_namespace = "test";
    n.aot = 0;
    n.num_inputs = 1;
    n.attributes = std::move(values);
    return n;
  }
  FieldValues as_onnx() const {
    return {field<int64_t>("scale", PluginFieldType::kINT64, {2}),
            field<int64_t>("unused", PluginFieldType::kINT64, {1, 2, 3}),
            field<int64_t>("flag", PluginFieldType::kINT64, {1}),
            field<char>("mode", PluginFieldType::kCHAR, {'a', 'b'})};
  }
  std::shared_ptr<Scale> definition = std::make_shared<Scale>();
  PluginRegistry registry;
  NetworkFlags flags;
};

TEST_F(Lookup, ConvertsToTheRegisteredTypes) {
  const OperatorPtr op = make_plugin_for_node(node(as_onnx()), &registry, flags);
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->kind(), "FunctionPlugin");
  EXPECT_EQ(run(*plan(op)), (std::vector<float>{2, 4, 6, 8}));
}

TEST_F(Lookup, NamesMissingAndMistypedAttributes) {
  const auto error_with = [&](auto change) {
    FieldValues values = as_onnx();
    change(values);
    const std::string message =
        thrown_error([&] { make_plugin_for_node(node(values), &registry, flags); });
    EXPECT_CONTAINS(message, "layer 'node 1': plugin 'test::scale'");
    return message;
  };
  EXPECT_CONTAINS(error_with([](FieldValues& v) { v.erase(v.begin()); }),
                  "needs attribute 'scale'");
  EXPECT_CONTAINS(error_with([](FieldValues& v) {
                    v[0] = field<char>("scale", PluginFieldType::kCHAR, {'2'});
                  }),
                  "'scale' must be FLOAT32, but is CHAR");
  EXPECT_CONTAINS(error_with([](FieldValues& v) {
                    v[1] = field<float>("unused", PluginFieldType::kFLOAT32, {1.5f});
                  }),
                  "'unused' must be INT32, but is FLOAT32");
  EXPECT_CONTAINS(error_with([](FieldValues& v) {
                    v[0] = field<int64_t>("scale", PluginFieldType::kINT64, {1, 2});
                  }),
                  "'scale' must be one value, but has 2");
  EXPECT_CONTAINS(error_with([](FieldValues& v) {
                    v[2] = field<int64_t>("flag", PluginFieldType::kINT64, {2});
                  }),
                  "'flag' must be a boolean, but is 2");
}

TEST_F(Lookup, AttributesThatFunctionsDoNotDeclareAreLeftOut) {
  FieldValues values = as_onnx();
  values.push_back(field<int64_t>("sclae", PluginFieldType::kINT64, {1}));
  Warnings warnings;
  EXPECT_EQ(run(*plan(make_plugin_for_node(node(values), &registry, flags, Log(&warnings)))),
            (std::vector<float>{2, 4, 6, 8}));
  ASSERT_EQ(warnings.messages.size(), 1u);
  EXPECT_CONTAINS(warnings.messages[0], "plugin 'test::scale' declares no attribute 'sclae'");
}

TEST_F(Lookup, FillsInDefaultValues) {
  FieldValues values = as_onnx();
  values.erase(values.begin());
  definition->parameters_[1].default_value =
      field<float>("scale", PluginFieldType::kFLOAT32, {0.5f});
  EXPECT_EQ(run(*plan(make_plugin_for_node(node(values), &registry, flags))),
            (std::vector<float>{0.5f, 1, 1.5f, 2}));
}

TEST_F(Lookup, FunctionsMakeVersionOne) {
  PluginNode n = node(as_onnx());
  n.version = "2";
  EXPECT_CONTAINS(thrown_error([&] { make_plugin_for_node(n, &registry, flags); }),
                  "'test::scale' has the version 1, but the node's attribute 'plugin_version' says "
                  "'2'");
}

TEST_F(Lookup, UnknownPluginsGiveNull) {
  PluginNode n = node({});
  n.name = "nobody";
  EXPECT_EQ(make_plugin_for_node(n, &registry, flags), nullptr);
  const PluginRequirement function{"FunctionPlugin", "scale", "1", "test"};
  EXPECT_TRUE(is_available(function, &registry));
  const PluginRequirement missing{"PluginV3", "nobody", "2", "ns"};
  EXPECT_FALSE(is_available(missing, &registry));
  EXPECT_CONTAINS(describe_missing(missing), "'nobody' (version 2, namespace 'ns')");
  EXPECT_CONTAINS(describe_missing(function), "test::scale");
}

TEST_F(Lookup, CreatorsGetWhatTheyDeclareInTheirOrder) {
  Behavior b;
  TestCreator creator(b);
  creator.declared = {PluginField("pads", nullptr, PluginFieldType::kINT32, 0),
                      PluginField("alpha", nullptr, PluginFieldType::kFLOAT32, 0),
                      PluginField("wide", nullptr, PluginFieldType::kINT64, 0),
                      PluginField("untyped", nullptr, PluginFieldType::kUNKNOWN, 0),
                      PluginField("names", nullptr, PluginFieldType::kUNKNOWN, 0),
                      PluginField("absent", nullptr, PluginFieldType::kINT32, 0)};
  ASSERT_TRUE(registry.registerCreator(creator, "ns"));
  PluginNode n;
  n.layer = "node 2";
  n.name = "test_plugin";
  n.plugin_namespace = "ns";
  n.num_inputs = 1;
  n.attributes = {field<int64_t>("untyped", PluginFieldType::kINT64, {-7}),
                  field<int64_t>("wide", PluginFieldType::kINT64, {int64_t{1} << 40}),
                  field<int64_t>("alpha", PluginFieldType::kINT64, {3}),
                  field<char>("mode", PluginFieldType::kCHAR, {'w', 'r', 'a', 'p'}),
                  field<int64_t>("pads", PluginFieldType::kINT64, {1, 2}),
                  field<char>("names", PluginFieldType::kCHAR, {'a', 'b', 'c'})};
  n.attributes.back().extents = {1, 2};
  n.obstacles = {{"branch", "attribute 'branch' is a graph"}};
  Warnings warnings;
  const OperatorPtr op = make_plugin_for_node(n, &registry, flags, Log(&warnings));
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->kind(), "PluginV3");
  EXPECT_EQ(creator.given, "pads=1,2,;alpha=3.000000,;wide=;untyped=-7,;names=a;");
  EXPECT_EQ(creator.layer, "node 2");
  EXPECT_EQ(creator.last_phase, TensorRTPhase::kBUILD);
  EXPECT_EQ(b.clones, 0);
  ASSERT_EQ(warnings.messages.size(), 3u);
  EXPECT_CONTAINS(warnings.messages[0], "declares the attribute 'absent'");
  EXPECT_CONTAINS(warnings.messages[1], "declares no attribute 'mode'");
  EXPECT_CONTAINS(warnings.messages[2], "declares no attribute 'branch'");

  n.attributes[4] = field<int64_t>("pads", PluginFieldType::kINT64, {int64_t{1} << 33});
  EXPECT_CONTAINS(thrown_error([&] { make_plugin_for_node(n, &registry, flags); }),
                  "attribute 'pads' must be INT32");
  creator.declared = {PluginField("branch", nullptr, PluginFieldType::kUNKNOWN, 0),
                      PluginField("alpha", nullptr, PluginFieldType::kFLOAT32, 0)};
  EXPECT_CONTAINS(thrown_error([&] { make_plugin_for_node(n, &registry, flags); }), "is a graph");
  n.obstacles.clear();
  n.attributes.clear();
  b.can_make = false;
  EXPECT_CONTAINS(thrown_error([&] { make_plugin_for_node(n, &registry, flags); }),
                  "refused the attributes (none); it declares: branch: UNKNOWN, alpha: FLOAT32");
}

TEST(LookupInLibrary, FindsAPluginInALibrary) {
  PluginRegistry registry(&PluginRegistry::global());
  void* handle =
      registry.load_library(std::string(OPWRIGHT_TEST_PLUGIN_DIR) + "/circ_pad_plugin.so");
  PluginNode n;
  n.layer = "pad";
  n.name = "circ_pad_plugin";
  n.num_inputs = 1;
  n.attributes = {field<int64_t>("pads", PluginFieldType::kINT64, {1, 2})};
  {
    // The library's creator declares its pads as INT32.
    const OperatorPtr op = make_plugin_for_node(n, &registry, {});
    ASSERT_NE(op, nullptr);
    TestContext context({tensor(DT::kFLOAT, {2, Expr::symbol(0)})});
    EXPECT_EQ(op->infer(context)[0].dims, (SymShape{2, Expr::symbol(0) + 3}));
    const std::vector<PortDesc> in = {port(DT::kFLOAT, {2, 3})}, out = {port(DT::kFLOAT, {2, 6})};
    const auto candidates = op->candidates(make_query(in, out));
    ASSERT_EQ(candidates.size(), 2u);
    for (const Candidate& candidate : candidates) {
      const auto kernel = make_kernel(*op, make_args(candidate, in, out));
      const Shape in_shape{2, 3}, out_shape{2, 6};
      kernel->on_shape_change({&in_shape, 1}, {&out_shape, 1});
      const float data[] = {1, 2, 3, 4, 5, 6};
      std::vector<float> result(12);
      void const* inputs[] = {data};
      void* outputs[] = {result.data()};
      kernel->enqueue(inputs, outputs, nullptr, nullptr);
      EXPECT_EQ(result, (std::vector<float>{3, 1, 2, 3, 1, 2, 6, 4, 5, 6, 4, 5}));
    }
  }
  registry.deregisterLibrary(handle);
}

}  // namespace
}  // namespace opwright
