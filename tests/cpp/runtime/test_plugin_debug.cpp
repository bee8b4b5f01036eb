// Engines that check every call of a plugin, with plugins of each kind that misbehave.

#include <cmath>
#include <cstring>
#include <limits>

#include "add_profile.h"
#include "base/half.h"
#include "compile/compile.h"
#include "plugin/abi/v2_model.h"
#include "plugin/abi/v3_model.h"
#include "plugin/compile_for_test.h"
#include "plugin/compiled_operator.h"
#include "plugin/engine_for_test.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/plugin_test.h"
#include "plugin/quick_test_plugin.h"
#include "plugin/registry/registry.h"
#include "plugin/test_plugins.h"
#include "plugin/v2_test_plugin.h"
#include "runtime/inspect.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;
using Descs = PluginTensorDesc const*;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class WarningLogger final : public ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override {
    if (severity == Severity::kWARNING) warnings.emplace_back(message);
  }
  std::vector<std::string> warnings;
};

int64_t elements(const PluginTensorDesc& desc) {
  int64_t count = 1;
  for (int i = 0; i < desc.dims.nbDims; ++i) count *= desc.dims.d[i];
  return count;
}

/// What a plugin's call may do.
struct Call {
  Descs in, out;
  void const* const* inputs;
  void* const* outputs;
  void* workspace;
  template <class T = float>
  T* input(int i = 0) const {
    return static_cast<T*>(const_cast<void*>(inputs[i]));
  }
  template <class T = float>
  T* output(int i = 0) const {
    return static_cast<T*>(outputs[i]);
  }
  int64_t size() const { return elements(out[0]); }
  void copy() const {
    std::memcpy(outputs[0], inputs[0], static_cast<size_t>(bytes_of(out[0].type, size())));
  }
};
using Fault = std::function<void(const Call&)>;

/// An engine of one V3 plugin, "the plugin", of 1 to 8 rows of 3.
struct Checked {
  Behavior b;
  TestCreator creator{b};
  PluginRegistry registry;
  WarningLogger logger;
  Fault fault;
  std::vector<DT> inputs = {DT::kFLOAT};
  std::vector<int64_t> rest = {3};
  uint64_t memory_limit = 0;  ///< 0: none
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Context> context;
  std::vector<Blob> memory;

  explicit Checked(Fault call = {}) : fault(std::move(call)) {
    b.plugin_namespace = "ns";
    registry.registerCreator(creator, "");
    b.enqueue = [this](Descs in, Descs out, void const* const* from, void* const* to, void* work,
                       int32_t) {
      fault({in, out, from, to, work});
      return 0;
    };
    b.supports = [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
      return p[pos].desc.format == TF::kLINEAR;
    };
  }

  void load(bool debug = true) {
    Network network;
    std::vector<Tensor*> tensors;
    BuilderConfig config{DeviceId{"cpu"}};
    OptimizationProfile profile;
    Shape shape{-1}, min{0}, opt{4}, max{8};
    for (const int64_t extent : rest)
      for (Shape* s : {&shape, &min, &opt, &max}) s->push_back(extent);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = "x" + std::to_string(i);
      tensors.push_back(network.add_input(name, inputs[i], shape));
      profile.set_shape(name, min, opt, max);
    }
    TestPlugin plugin(b);
    Layer* layer = network.add_layer(
        make_plugin_v3_operator(plugin, static_cast<int>(inputs.size()), 0), tensors, "the plugin");
    for (Tensor* output : layer->outputs()) network.mark_output(*output);
    add_profile(config, profile);
    config.timing = false;
    config.debug_plugins = debug;
    LoadOptions options;
    options.plugins = &registry;
    options.log = Log(&logger);
    if (memory_limit > 0) options.limits.memory = memory_limit;
    engine = Engine::load(deserialize(to_file(compile(network, config))), options);
    context = std::make_unique<Context>(engine);
  }

  /// Runs with these bytes for each input; the outputs' bytes.
  std::vector<std::vector<std::byte>> run_bytes(int64_t rows,
                                                const std::vector<const void*>& given) {
    if (engine == nullptr) load();
    Shape shape{rows};
    for (const int64_t extent : rest) shape.push_back(extent);
    std::vector<std::vector<std::byte>> out;
    for (size_t i = 0; i < given.size(); ++i) {
      context->set_input_shape(static_cast<int>(i), shape);
      context->set_input_address(static_cast<int>(i), given[i]);
    }
    for (int o = 0; o < b.num_outputs; ++o) {
      const PortType type = engine->plan().outputs[static_cast<size_t>(o)].type;
      out.emplace_back(static_cast<size_t>(
          tensor_bytes(context->max_output_shape(o), type.dtype, type.format) + 8));
      const bool aliased = engine->plan().outputs[static_cast<size_t>(o)].aliased_input >= 0;
      context->set_output_address(o, aliased ? nullptr : out.back().data());
    }
    context->enqueue();
    return out;
  }
  std::vector<float> run(int64_t rows, const std::vector<float>& x) {
    const auto out = run_bytes(rows, std::vector<const void*>(inputs.size(), x.data()));
    std::vector<float> y(x.size());
    if (!y.empty())  // memcpy takes no null
      std::memcpy(y.data(), out[0].data(), std::min(out[0].size(), x.size() * sizeof(float)));
    return y;
  }
  std::string error(int64_t rows = 2) {
    const std::vector<float> x(static_cast<size_t>(elements_of(rows)), 1.5f);
    return thrown_error([&] { run(rows, x); });
  }
  int64_t elements_of(int64_t rows) const {
    int64_t count = rows;
    for (const int64_t extent : rest) count *= extent;
    return count;
  }
};

const std::string kWho =
    "layer 'the plugin': plugin 'test_plugin' (version 1, namespace 'ns'), call ";

TEST(PluginDebug, FaultlessPluginsComputeAsEver) {
  Checked c([](const Call& call) { call.copy(); });
  c.b.workspace = 100;
  EXPECT_EQ(c.run(2, {1, 2, 3, 4, 5, 6}), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(c.run(1, {7, 8, 9}), (std::vector<float>{7, 8, 9}));
  EXPECT_TRUE(c.run(0, {}).empty());
  EXPECT_TRUE(c.logger.warnings.empty());
  EXPECT_TRUE(c.engine->debug_plugins());
  EXPECT_CONTAINS(inspect_text(c.engine->plan()), "checks every call of a plugin");
}

TEST(PluginDebug, MemoryOfTheChecksCountsAgainstTheLimit) {
  const auto checked = [](int64_t workspace) {
    auto c = std::make_unique<Checked>([](const Call& call) { call.copy(); });
    c->memory_limit = 1 << 20;
    c->b.workspace = static_cast<size_t>(workspace);
    return c;
  };
  EXPECT_EQ(checked(1 << 18)->run(1, {7, 8, 9}), (std::vector<float>{7, 8, 9}));
  const std::string error = checked((1 << 20) - 64)->error();
  EXPECT_CONTAINS(error, "layer 'the plugin': checking its calls (debug_plugins)");
  EXPECT_CONTAINS(error, "more than the limit of 1.0 MiB (memory)");
}

TEST(PluginDebug, NamesTheFaultItsPlaceAndTheCall) {
  struct Case {
    Fault fault;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {[](const Call& c) { c.output()[6] = 2.5f; },
       {"4 bytes behind the end of output 0 (", "FP32 2x3)", "from element 6 on", "where 2.5"}},
      {[](const Call& c) { c.output()[6 + 1023] = 2.5f; }, {"from element 1029 on"}},
      {[](const Call& c) { c.output()[6] = c.input()[6]; }, {"from element 6 on"}},
      {[](const Call& c) { std::memset(c.output() - 2, 0, 8); },
       {"8 bytes before the start of output 0", "from element -2 on, where 0 stands"}},
      {[](const Call& c) { c.output<char>()[24] = 1; }, {"4 bytes behind the end of output 0"}},
      {[](const Call& c) { static_cast<char*>(c.workspace)[100] = 1; },
       {"1 bytes behind the end of the workspace (100 bytes)", "from byte 100 on",
        "getWorkspaceSize()"}},
      {[](const Call& c) { static_cast<char*>(c.workspace)[-4] = 1; },
       {"before the start of the workspace", "from byte -4 on"}},
      {[](const Call& c) { c.input()[4] = 7; },
       {"input 0 ('x0': FP32 2x3) was changed in 1 of 6 elements, the first at [1, 1] from 1.5 to "
        "7",
        "alias an output"}},
      {[](const Call& c) { c.input()[6] = 7; }, {"behind the end of input 0"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.parts[0]);
    bool is_faulty = false;
    Checked c([&](const Call& call) {
      call.copy();
      if (is_faulty) each.fault(call);
    });
    c.b.workspace = 100;
    const std::vector<float> x = {1, 2, 3, 4, 5, 6};
    EXPECT_EQ(c.run(2, x), x);
    is_faulty = true;
    const std::string message = c.error();
    EXPECT_EQ(message.find(kWho + "2 in this context: "), 0u) << message;
    for (const std::string& part : each.parts) EXPECT_CONTAINS(message, part);
    is_faulty = false;
    EXPECT_EQ(c.run(2, x), x) << "the context is usable afterwards";
  }
}

TEST(PluginDebug, NothingOfAFaultyCallReachesTheUser) {
  Checked c([](const Call& call) {
    call.copy();
    call.input()[0] = -1;
    call.output()[6] = -1;
  });
  c.load();
  std::vector<float> x(7, 1.0f), y(7, 5.0f);
  c.context->set_input_shape(0, {2, 3});
  c.context->set_input_address(0, x.data());
  c.context->set_output_address(0, y.data());
  thrown_error([&] { c.context->enqueue(); });
  EXPECT_EQ(x, std::vector<float>(7, 1.0f));
  EXPECT_EQ(y, std::vector<float>(7, 5.0f));
}

TEST(PluginDebug, UnwrittenElementsAreFoundInEveryType) {
  for (const DT type : {DT::kFLOAT, DT::kHALF, DT::kBF16, DT::kFP8, DT::kINT8, DT::kUINT8,
                        DT::kINT32, DT::kINT64, DT::kBOOL}) {
    SCOPED_TRACE(name(type));
    // Random bytes count from four in a row on.
    const bool is_byte = bits(type) == 8 && type != DT::kBOOL;
    int64_t left = 0;
    Checked c([&](const Call& call) {
      const int64_t written = call.size() - left;
      std::memset(call.outputs[0], 0, static_cast<size_t>(bytes_of(type, written)));
    });
    c.rest = {5};
    c.b.types = [type](DT* out, int32_t, DT const*, int32_t) {
      out[0] = type;
      return 0;
    };
    EXPECT_EQ(c.run(4, std::vector<float>(20, 1.0f)), std::vector<float>(20, 0.0f));
    left = is_byte ? 6 : 1;
    EXPECT_CONTAINS(c.error(4), str("was not written in ", left, " of 20 elements, the first at ",
                                    is_byte ? "[2, 4]" : "[3, 4]"));
    left = 20;
    EXPECT_CONTAINS(c.error(4), "20 of 20 elements, the first at [0, 0]");
  }
}

TEST(PluginDebug, NoValuesThatPluginsWriteCountAsUnwritten) {
  // All 16-bit values, and all pairs of 8-bit values without a run of four.
  for (const DT type : {DT::kINT8, DT::kUINT8, DT::kFP8}) {
    SCOPED_TRACE(name(type));
    Checked c([&](const Call& call) {
      for (int64_t i = 0; i < call.size(); ++i)
        call.output<uint8_t>()[i] = static_cast<uint8_t>(i % 2 ? i / 512 : i / 2);
    });
    c.rest = {1 << 14};
    c.b.types = [type](DT* out, int32_t, DT const*, int32_t) {
      out[0] = type;
      return 0;
    };
    c.run(8, std::vector<float>(static_cast<size_t>(c.elements_of(8))));
  }
  Checked c([](const Call& call) {
    const uint32_t values[] = {0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000, 0xFFFFFFFE,
                               0,          0x80000000, 0x7F800001, 0xFF800001};
    for (int64_t i = 0; i < call.size(); ++i) call.output<uint32_t>()[i] = values[i % 9];
  });
  c.rest = {9000};
  c.run(8, std::vector<float>(static_cast<size_t>(c.elements_of(8))));
}

TEST(PluginDebug, ReadingBesideATensorOrItsOldContentsShows) {
  Checked beside([](const Call& call) {
    call.copy();
    call.output()[2] += call.input()[-1];
    call.output()[5] += call.input()[6];
  });
  beside.run(2, std::vector<float>(6, 1.0f));
  ASSERT_EQ(beside.logger.warnings.size(), 1u);
  EXPECT_CONTAINS(beside.logger.warnings[0], "NaN or infinity in 2 of 6 elements");

  Checked accumulates([](const Call& call) {
    for (int64_t i = 0; i < call.size(); ++i) call.output()[i] += call.input()[i];
  });
  EXPECT_CONTAINS(accumulates.error(), "was not written in 6 of 6 elements");

  Checked workspace([](const Call& call) {
    call.copy();
    call.output()[0] = *static_cast<float*>(call.workspace);
  });
  workspace.b.workspace = 4;
  workspace.run(2, std::vector<float>(6, 1.0f));
  EXPECT_EQ(workspace.logger.warnings.size(), 1u);
}

TEST(PluginDebug, NonFiniteValuesAreAWarningWhereTheyArise) {
  float value = kNan;
  Checked c([&](const Call& call) {
    call.copy();
    call.output()[4] = value;
  });
  const std::vector<float> x(6, 1.0f);
  const std::vector<float> y = c.run(2, x);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[0], 1.0f);
  ASSERT_EQ(c.logger.warnings.size(), 1u);
  EXPECT_CONTAINS(c.logger.warnings[0], kWho + "1 in this context: output 0 ");
  EXPECT_CONTAINS(c.logger.warnings[0], "NaN or infinity in 1 of 6 elements");
  EXPECT_CONTAINS(c.logger.warnings[0], "nan at [1, 1]");
  c.run(2, x);
  EXPECT_EQ(c.logger.warnings.size(), 1u) << "once for a layer and context";

  // Each context tells it anew; not where the inputs had it before.
  value = -kInf;
  c.context = std::make_unique<Context>(c.engine);
  c.run(2, std::vector<float>(6, kInf));
  EXPECT_EQ(c.logger.warnings.size(), 1u);
  c.run(2, x);
  ASSERT_EQ(c.logger.warnings.size(), 2u);
  EXPECT_CONTAINS(c.logger.warnings[1], "-inf at [1, 1]");
}

TEST(PluginDebug, NonFiniteValuesAreFoundInEveryFloatingType) {
  for (const DT type : {DT::kHALF, DT::kBF16, DT::kFP8}) {
    SCOPED_TRACE(name(type));
    Checked c([&](const Call& call) {
      std::memset(call.outputs[0], 0, static_cast<size_t>(bytes_of(type, call.size())));
      const float value = kNan;
      convert(&value, DT::kFLOAT, static_cast<std::byte*>(call.outputs[0]) + bytes_of(type, 5),
              type, 1);
    });
    c.b.types = [type](DT* out, int32_t, DT const*, int32_t) {
      out[0] = type;
      return 0;
    };
    c.run(2, std::vector<float>(6, 1.0f));
    ASSERT_EQ(c.logger.warnings.size(), 1u);
    EXPECT_CONTAINS(c.logger.warnings[0], "nan at [1, 2]");
  }
}

TEST(PluginDebug, AliasedOutputsMayKeepWhatTheInputHas) {
  Checked c([](const Call& call) {
    EXPECT_EQ(call.inputs[0], call.outputs[0]);
    call.output()[1] += 5;
  });
  c.b.aliased = [](int32_t) { return 0; };
  c.load();
  std::vector<float> memory(6, 1.0f);
  c.run_bytes(2, {memory.data()});
  EXPECT_EQ(memory, (std::vector<float>{1, 6, 1, 1, 1, 1}));
  const std::function<void(float&)> updates[] = {[](float& y) { y *= 2; },
                                                 [](float& y) { y = std::max(y, 0.0f); },
                                                 [](float& y) { y = std::floor(y); }};
  for (const auto& update : updates) {
    c.fault = [&](const Call& call) { update(call.output()[6]); };
    EXPECT_CONTAINS(thrown_error([&] { c.run_bytes(2, {memory.data()}); }),
                    "behind the end of output 0");
  }
}

/// The second output is the size of the first.
void make_data_dependent(Checked& c) {
  c.b.num_outputs = 2;
  c.b.types = [](DT* out, int32_t, DT const*, int32_t) {
    out[0] = DT::kFLOAT;
    out[1] = DT::kINT32;
    return 0;
  };
  c.b.shapes = [](DimsExprs const* in, int32_t, DimsExprs const*, int32_t, DimsExprs* out, int32_t,
                  IExprBuilder& e) {
    const IDimensionExpr* upper = e.operation(DimensionOperation::kPROD, *in[0].d[0], *in[0].d[1]);
    out[0].nbDims = 2;
    out[0].d[0] = e.constant(2);
    out[0].d[1] = e.declareSizeTensor(1, *upper, *upper);
    out[1].nbDims = 0;
    return 0;
  };
}

TEST(PluginDebug, OfDataDependentOutputsTheTrueExtentMustBeWritten) {
  int32_t size = 4, written = 8;
  Checked c([&](const Call& call) {
    for (int32_t i = 0; i < written; ++i) call.output()[i] = static_cast<float>(i);
    if (size != 99) *call.output<int32_t>(1) = size;
  });
  make_data_dependent(c);
  const std::vector<float> x(6, 1.0f);
  std::vector<float> y = c.run(2, x);
  EXPECT_EQ(y[5], 5.0f);
  EXPECT_EQ(c.context->output_shape(0), Shape({2, 4}));
  size = written = 0;
  c.run(2, x);
  EXPECT_EQ(c.context->output_shape(0), Shape({2, 0}));
  size = 4;
  written = 7;
  EXPECT_CONTAINS(c.error(),
                  "not written in 1 of 8 elements, the first at [1, 3] of the shape 2x4");
  size = 7;
  EXPECT_CONTAINS(c.error(), "the size tensor, output 1 (");
  EXPECT_CONTAINS(c.error(), "was written as 7, which is not between 0 and its upper bound 6");
  size = -1;
  EXPECT_CONTAINS(c.error(), "was written as -1");
  size = 99;
  EXPECT_CONTAINS(c.error(), "output 1 (");
  EXPECT_CONTAINS(c.error(), "not written in 1 of 1 elements, the first at []");
  size = 3;
  written = 6;
  c.run(2, x);
  EXPECT_EQ(c.context->output_shape(0), Shape({2, 3}));
}

TEST(PluginDebug, ExtentsThatGrowAsTheirSizeFallsAreAnError) {
  int32_t size = 6;
  Checked c([&](const Call& call) { *call.output<int32_t>(1) = size; });
  make_data_dependent(c);
  c.b.shapes = [](DimsExprs const* in, int32_t, DimsExprs const*, int32_t, DimsExprs* out, int32_t,
                  IExprBuilder& e) {
    const IDimensionExpr* upper = e.operation(DimensionOperation::kPROD, *in[0].d[0], *in[0].d[1]);
    out[0].nbDims = 1;
    out[0].d[0] =
        e.operation(DimensionOperation::kSUB, *upper, *e.declareSizeTensor(1, *upper, *upper));
    out[1].nbDims = 0;
    return 0;
  };
  c.run(2, std::vector<float>(6, 1.0f));
  size = 2;
  EXPECT_CONTAINS(c.error(), "has the shape 4 by the size tensors that it wrote");
}

TEST(PluginDebug, PaddingOfVectorizedFormatsIsFree) {
  for (const TF format : {TF::kCHW4, TF::kHWC8, TF::kCHW32, TF::kHWC}) {
    SCOPED_TRACE(name(format));
    bool skips = false;
    // The 3 channels of each of 2x2 places are written, channel 2 of the last not if it skips.
    Checked c([&](const Call& call) {
      const FormatLayout layout = layout_of(format);
      const int64_t images = call.out[0].dims.d[0];
      for (int64_t n = 0; n < images; ++n)
        for (int64_t place = 0; place < 4; ++place)
          for (int64_t channel = 0; channel < 3; ++channel) {
            if (skips && n == images - 1 && place == 3 && channel == 2) continue;
            const int64_t lanes = layout.block == 1 ? 3 : layout.block;
            call.output()[(n * 4 + place) * lanes + channel] = 1.0f;
          }
    });
    c.rest = {3, 2, 2};
    c.b.supports = [format](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
      return p[pos].desc.format == (pos == 0 ? TF::kLINEAR : format);
    };
    EXPECT_EQ(c.run(2, std::vector<float>(24, 2.0f)), std::vector<float>(24, 1.0f));
    EXPECT_TRUE(c.logger.warnings.empty());
    skips = true;
    EXPECT_CONTAINS(c.error(), "not written in 1 of 24 elements, the first at [1, 2, 1, 1]");
  }
}

TEST(PluginDebug, EmptyTensorsHaveGuardsToo) {
  Checked c([](const Call&) {});
  EXPECT_TRUE(c.run(0, {}).empty());
  c.fault = [](const Call& call) { call.output()[0] = 3; };
  EXPECT_CONTAINS(c.error(0), "4 bytes behind the end of output 0");
}

TEST(PluginDebug, LoadingDecidesOverTheBuild) {
  bool checks = false;
  Checked c([&](const Call& call) {
    call.copy();
    checks = call.workspace != nullptr && call.inputs[0] != c.context->input_address(0);
  });
  c.load(false);
  const std::vector<float> x(6, 1.0f);
  c.run(2, x);
  EXPECT_FALSE(checks);
  for (const bool debug : {true, false}) {
    LoadOptions options;
    options.plugins = &c.registry;
    options.debug_plugins = debug;
    Plan plan = c.engine->plan();
    plan.debug_plugins = !debug;
    c.engine = Engine::load(plan, options);
    c.context = std::make_unique<Context>(c.engine);
    c.run(2, x);
    EXPECT_EQ(checks, debug);
  }
}

/// An engine of `op` on 4 rows of 3 that checks; the message of its first run.
std::string first_error(OperatorPtr op, IPluginRegistry* registry) {
  BuilderConfig config{DeviceId{"cpu"}};
  config.timing = false;
  config.debug_plugins = true;
  LoadOptions options;
  options.plugins = registry;
  options.allow_host_code = true;
  const auto engine = Engine::load(build(std::move(op), {3}, config), options);
  return thrown_error([&] { run(engine, {4, 3}, std::vector<float>(12, 1.0f)); });
}

TEST(PluginDebug, V2PluginsAreChecked) {
  Behavior b;
  b.workspace = 8;
  b.enqueue = [](Descs, Descs, auto, void* const* outputs, void* workspace, int32_t) {
    std::memset(workspace, 0, 9);
    std::memset(outputs[0], 0, 48);
    return 0;
  };
  V2TestCreator creator(b);
  PluginRegistry registry;
  registry.registerCreator(creator, "");
  const std::string message =
      first_error(adopt_plugin_v2(V2Plugin(new V2TestPlugin(b, 7)), 1), &registry);
  EXPECT_CONTAINS(message, "layer 'the plugin': plugin 'test_plugin' (version 1, namespace '')");
  EXPECT_CONTAINS(message, "1 bytes behind the end of the workspace (8 bytes)");
}

TEST(PluginDebug, QuickPluginsAreChecked) {
  Behavior b;
  b.plugin_namespace = "ns";
  b.enqueue = [](Descs, Descs, auto, void* const* outputs, auto, int32_t) {
    std::memset(outputs[0], 0, 52);
    return 0;
  };
  QuickTestCreator creator(b);
  PluginRegistry registry;
  registry.registerCreator(creator, "");
  QuickTestPlugin plugin(b);
  const std::string message = first_error(make_plugin_v3_operator(plugin, 1, 0), &registry);
  EXPECT_CONTAINS(message, "plugin 'test_plugin' (version 1, namespace 'ns'), call 1");
  EXPECT_CONTAINS(message, "4 bytes behind the end of output 0 ('y': FP32 4x3)");
}

TEST(PluginDebug, CompiledKernelsAreChecked) {
  KernelCode code;
  code.name = "negate";
  code.object = compile_for_test(
      "extern \"C\" void negate(void** args, int64_t x, int64_t, int64_t) {"
      "(*(float**)args[1])[x] = -(*(const float**)args[0])[x]; }");
  code.grid[0] = Expr::symbol(0) * 3 + 1;
  const std::string message = first_error(std::make_shared<CompiledOperator>(code, 2), nullptr);
  EXPECT_CONTAINS(message, "layer 'the plugin': compiled kernel 'test kernel', call 1");
  EXPECT_CONTAINS(message, "4 bytes behind the end of output 0 ('y': FP32 4x3)");
}

}  // namespace
}  // namespace opwright
