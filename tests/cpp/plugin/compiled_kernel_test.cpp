#include "plugin/kernel/compiled_kernel.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "network/operator_registry.h"
#include "plugin/compile_for_test.h"
#include "plugin/kernel/host_code.h"
#include "plugin/plugin_test.h"

namespace opwright {
namespace {

using DT = DataType;

/// y[i] = a * x[i] + b; one cell of the grid for each element of x, whose rows are `width` long.
/// `count` counts the cells that ran.
const char* const kAffine = R"(
extern "C" void affine(void** args, int64_t x, int64_t y, int64_t z) {
  const float* in = *(const float**)args[0];
  int32_t width = *(int32_t*)args[1];
  int64_t height = *(int64_t*)args[2];
  float a = *(float*)args[3];
  double b = *(double*)args[4];
  int8_t small = *(int8_t*)args[5];
  int16_t medium = *(int16_t*)args[6];
  float* out = *(float**)args[7];
  int64_t i = (z * height + y) * width + x;
  out[i] = a * in[i] + (float)b + small + medium;
}
)";

KernelCode affine() {
  KernelCode code;
  code.name = "affine";
  static const CodeObject object = compile_for_test(kAffine);
  code.object = object;
  // Input 0 has rank 3: depth is symbol 0, height 1, width 2.
  code.grid[0] = Expr::symbol(2);
  code.grid[1] = Expr::symbol(1);
  code.grid[2] = Expr::symbol(0);
  code.arguments = {{ArgumentType::kINT32, Expr::symbol(2), 0},
                    {ArgumentType::kINT64, Expr::symbol(1), 0},
                    {ArgumentType::kFLOAT32, {}, 0.5},
                    {ArgumentType::kFLOAT64, {}, 3.0},
                    {ArgumentType::kINT8, -7, 0},
                    {ArgumentType::kINT16, 300, 0}};
  return code;
}

struct Launched {
  std::vector<PortDesc> ports = {port(DT::kFLOAT, {2, 3, 5})};
  Candidate candidate{
      {{DT::kFLOAT, TensorFormat::kLINEAR}}, {{DT::kFLOAT, TensorFormat::kLINEAR}}, 0, ""};

  std::vector<float> run(const PlannedOperator& op, const Shape& shape) {
    const auto kernel = op.make_kernel(make_args(candidate, ports, ports));
    kernel->on_shape_change({&shape, 1}, {&shape, 1});
    std::vector<float> in(static_cast<size_t>(shape.numel())), out(in.size() + 1, -1.0f);
    std::iota(in.begin(), in.end(), 0.0f);
    void const* inputs[] = {in.data()};
    void* outputs[] = {out.data()};
    kernel->enqueue(inputs, outputs, nullptr, nullptr);
    EXPECT_EQ(out.back(), -1.0f);
    out.pop_back();
    return out;
  }
};

std::vector<float> expected(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(0.5f * static_cast<float>(i) + 3 - 7 + 300);
  return values;
}

TEST(CompiledKernel, GridAndArgumentsFollowTheShape) {
  Launched launched;
  const PlannedOperatorPtr op = make_compiled_kernel(affine());
  EXPECT_EQ(launched.run(*op, {2, 3, 5}), expected(30));
  EXPECT_EQ(launched.run(*op, {1, 1, 1}), expected(1));
  EXPECT_EQ(launched.run(*op, {7, 11, 13}), expected(1001));
  EXPECT_EQ(launched.run(*op, {2, 0, 5}), expected(0));
}

TEST(CompiledKernel, SurvivesStorage) {
  Launched launched;
  const PlannedOperatorPtr op = make_compiled_kernel(affine());
  const std::vector<CodeObject> code = op->code();
  ASSERT_EQ(code.size(), 1u);
  const std::vector<LoadedCode> loaded = {{code[0], true}};
  OperatorLoadContext context;
  context.layer = "test layer";
  context.code = loaded;
  const PlannedOperatorPtr again = load_compiled_kernel(op->attributes(), context);
  EXPECT_EQ(again->attributes(), op->attributes());
  EXPECT_EQ(launched.run(*again, {7, 11, 13}), expected(1001));
}

TEST(CompiledKernel, ReportsWrongLaunches) {
  Launched launched;
  const auto error_with = [&](auto change) {
    KernelCode code = affine();
    change(code);
    return thrown_error([&] { launched.run(*make_compiled_kernel(code), {2, 3, 5}); });
  };
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.name = "other"; }), "no symbol 'other'");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.grid[1] = Expr::symbol(1) - 4; }),
                  "layer 'test layer': compiled kernel 'test kernel': grid_y is -1 "
                  "(inputs[0].shape[1] - 4); it must be at least 1");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.arguments[4].value = Expr::symbol(0) * 100; }),
                  "extra argument 4 is 200 (inputs[0].shape[0] * 100), which does not fit 8 bits");
  EXPECT_CONTAINS(
      error_with([](KernelCode& c) { c.grid[0] = floor_div(Expr(1), Expr::symbol(0) - 2); }),
      "grid_x (1 // (inputs[0].shape[0] - 2)): division of 1 by zero");
  EXPECT_NE(error_with([](KernelCode& c) { c.grid[0] = Expr::symbol(3); }), "");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.object.bytes = {}; }), "has no code");
}

/// out[i] = first * 10 + second, of a shape input with two elements, in `*count` cells; input 1 is
/// absent.
const char* const kValues = R"(
extern "C" void fill(void** args, int64_t x, int64_t y, int64_t z) {
  float* out = *(float**)args[5];
  bool is_absent = *(void**)args[1] == nullptr;
  out[x] = is_absent ? *(int32_t*)args[3] * 10 + *(float*)args[4] : -2;
}
)";

TEST(CompiledKernel, IsToldTheValuesOfShapeInputs) {
  KernelCode code;
  code.name = "fill";
  static const CodeObject object = compile_for_test(kValues);
  code.object = object;
  // Input 0 has rank 1 (symbol 0), input 1 is absent, input 2 of rank 1 (symbol 1) has the elements
  // 2 and 3.
  code.shape_inputs = {2};
  code.grid[0] = Expr::symbol(2) + Expr::symbol(0) - 1;
  code.arguments = {{ArgumentType::kINT32, Expr::symbol(2), 0},
                    {ArgumentType::kFLOAT32, Expr::symbol(3), 0.5}};
  const PortType fp32{DT::kFLOAT, TensorFormat::kLINEAR}, int64{DT::kINT64, TensorFormat::kLINEAR};
  const Candidate candidate{{fp32, fp32, int64}, {fp32}, 0, ""};
  std::vector<PortDesc> inputs = {port(DT::kFLOAT, {1}), {}, port(DT::kINT64, {2})};
  inputs[1].present = false;
  const std::vector<PortDesc> outputs = {port(DT::kFLOAT, {8})};
  const PlannedOperatorPtr op = make_compiled_kernel(code);
  EXPECT_TRUE(op->is_shape_input(2));
  EXPECT_FALSE(op->is_shape_input(0));
  const auto kernel = op->make_kernel(make_args(candidate, inputs, outputs));
  const Shape in_shapes[] = {{1}, {}, {2}}, out_shape{8};
  const float x = 0;
  std::vector<float> out;
  // What lies in memory does not count.
  const int64_t elsewhere[] = {-100, -100};
  void const* pointers[] = {&x, nullptr, elsewhere};
  const auto run = [&](int64_t first, int64_t second) {
    const int64_t values[] = {first, second};
    kernel->on_values_change(2, values);
    kernel->on_shape_change(in_shapes, {&out_shape, 1});
    out.assign(8, -1);
    void* to[] = {out.data()};
    kernel->enqueue(pointers, to, nullptr, nullptr);
    return out;
  };
  // Values change while no shape does.
  for (const int64_t first : {3, 8, 1}) {
    std::vector<float> expected(8, -1);
    std::fill_n(expected.begin(), first, static_cast<float>(first * 10) - 6.5f);
    EXPECT_EQ(run(first, -7), expected);
  }
  EXPECT_CONTAINS(
      thrown_error([&] { run(int64_t{1} << 40, 0); }),
      "the grid has 1099511627776 x 1 x 1 cells (inputs[0].shape[0] + inputs[2][0] - 1, ");
  EXPECT_CONTAINS(thrown_error([&] { run(-1, 0); }),
                  "grid_x is -1 (inputs[0].shape[0] + inputs[2][0]");

  inputs[2].type.dtype = DT::kFLOAT;
  EXPECT_CONTAINS(thrown_error([&] { op->make_kernel(make_args(candidate, inputs, outputs)); }),
                  "is a shape input of type FP32; expected INT32 or INT64");
  inputs[2].present = false;
  EXPECT_CONTAINS(thrown_error([&] { op->make_kernel(make_args(candidate, inputs, outputs)); }),
                  "a shape input, is absent");
}

TEST(CompiledKernel, RefusesForeignLaunches) {
  Launched launched;
  const PlannedOperatorPtr op = make_compiled_kernel(affine());
  const std::vector<LoadedCode> code = {{op->code()[0], true}};
  OperatorLoadContext context;
  context.layer = "test layer";
  context.code = code;
  const Attributes good = op->attributes();
  const auto error_with = [&](auto&& change) {
    auto launch = std::get<KernelLaunch>(*find(good, "launch"));
    change(launch);
    const Attributes bad = {{"launch", launch}};
    return thrown_error([&] {
      validate(bad);
      launched.run(*load_compiled_kernel(bad, context), {2, 3, 5});
    });
  };
  const auto end = std::get<KernelLaunch>(*find(good, "launch")).program.size();
  const auto past = static_cast<int32_t>(end);
  EXPECT_CONTAINS(error_with([&](auto& l) { l.grid[2] = past; }), "as an extent of its grid");
  EXPECT_CONTAINS(error_with([](auto& l) { l.grid[2] = -1; }), "expression -1 of");
  EXPECT_CONTAINS(error_with([&](auto& l) { l.block[0] = past; }), "as an extent of its block");
  EXPECT_CONTAINS(error_with([&](auto& l) { l.shared_memory = past; }), "as its shared memory");
  EXPECT_CONTAINS(error_with([](auto& l) { l.program.clear(); }), "expression 0 of 0");
  EXPECT_CONTAINS(error_with([](auto& l) { l.program[0].op = static_cast<ExprOp>(99); }),
                  "an expression that is none");
  EXPECT_CONTAINS(error_with([&](auto& l) {
                    l.program.push_back({ExprOp::kSum, past, 0});
                  }),
                  "an expression that is none");
  EXPECT_CONTAINS(error_with([&](auto& l) { l.arguments[0].value = past; }), "as an argument");
  EXPECT_CONTAINS(error_with([](auto& l) { l.arguments[0].type = static_cast<ArgumentType>(17); }),
                  "unknown type 17");
  EXPECT_CONTAINS(error_with([](auto& l) { l.scratch = {-1}; }), "scratch buffer");
  EXPECT_CONTAINS(error_with([&](auto& l) { l.checks = {{past, "m"}}; }), "as a condition");
  EXPECT_CONTAINS(error_with([](auto& l) { l.shape_inputs = {7}; }), "a shape input, is absent");
  EXPECT_CONTAINS(error_with([](auto& l) { l.shape_inputs = {-1}; }), "which is no input");
  EXPECT_CONTAINS(thrown_error([&] {
                    load_compiled_kernel({{"launch", Ints{1}}}, context);
                  }),
                  "'launch' must be the launch of a kernel, not a list of integers");
  context.code = {};
  EXPECT_CONTAINS(thrown_error([&] { load_compiled_kernel(good, context); }), "0 code objects");
}

TEST(HostCode, IsNotTouchedWithoutPermission) {
  const std::string marker = testing::TempDir() + "/opwright_marker_" + std::to_string(getpid());
  unlink(marker.c_str());
  const CodeObject object = compile_for_test(
      "#include <cstdio>\n"
      "__attribute__((constructor)) static void init() { std::fclose(std::fopen(\"" +
      marker +
      "\", \"w\")); }\n"
      "extern \"C\" void k(void**, int64_t, int64_t, int64_t) {}\n");
  const auto ran = [&] { return access(marker.c_str(), F_OK) == 0; };
  ASSERT_FALSE(ran());

  Launched launched;
  KernelCode code = affine();
  const Attributes launch = make_compiled_kernel(code)->attributes();
  OperatorLoadContext context;
  context.layer = "test layer";
  std::vector<LoadedCode> loaded = {{object, false}};
  context.code = loaded;
  const std::string message = thrown_error([&] { load_compiled_kernel(launch, context); });
  EXPECT_CONTAINS(message, "'test layer'");
  EXPECT_CONTAINS(message, "without permission");
  EXPECT_FALSE(ran());

  // A file that claims that its code is not for the host.
  loaded[0].object.host = false;
  EXPECT_CONTAINS(thrown_error([&] { load_compiled_kernel(launch, context); }),
                  "is code for a GPU, which the engine may not run without permission");
  loaded[0].permitted = true;
  const PlannedOperatorPtr op = load_compiled_kernel(launch, context);
  EXPECT_CONTAINS(thrown_error([&] {
                    op->make_kernel(make_args(launched.candidate, launched.ports, launched.ports));
                  }),
                  "may not run on the host");
  EXPECT_FALSE(ran());
  // Checking reads, but does not map.
  check_host_code(object);
  EXPECT_FALSE(ran());
  // Permitted, it runs: the marker would have been seen.
  HostCode::load(object);
  EXPECT_TRUE(ran());
  unlink(marker.c_str());
}

CodeObject constant(int value) {
  return compile_for_test("extern \"C\" int value() { return " + std::to_string(value) + "; }");
}

int call(const HostCode& code) { return reinterpret_cast<int (*)()>(code.symbol("value"))(); }

TEST(HostCode, IsSharedAndUnloaded) {
  const CodeObject one = constant(1), two = constant(2);
  auto first = HostCode::load(one);
  EXPECT_EQ(HostCode::load(one), first);
  EXPECT_EQ(call(*first), 1);
  CodeObject copy = one;
  copy.bytes = Blob::copy(one.bytes.data(), one.bytes.size());
  EXPECT_EQ(HostCode::load(copy), first);
  // The next library may get the same descriptor, but not the old code.
  for (int i = 0; i < 5; ++i) {
    first.reset();
    EXPECT_EQ(call(*HostCode::load(two)), 2);
    first = HostCode::load(one);
    EXPECT_EQ(call(*first), 1);
  }
}

/// A library that calls the function when it is loaded.
CodeObject calling(void (*function)(), int number) {
  return compile_for_test(
      "__attribute__((constructor)) static void init() { reinterpret_cast<void (*)()>(" +
      std::to_string(reinterpret_cast<uintptr_t>(function)) +
      "ul)(); }\nextern \"C\" int value() { return " + std::to_string(number) + "; }");
}

TEST(HostCode, ConstructorsMayLoadOtherCode) {
  static int inner = 0;
  const CodeObject outer = calling([] { inner = call(*HostCode::load(constant(77))); }, 78);
  EXPECT_EQ(call(*HostCode::load(outer)), 78);
  EXPECT_EQ(inner, 77);
}

TEST(HostCode, IsLoadedOnceByThreadsAtOnce) {
  static std::atomic<int> constructed = 0;
  const CodeObject object = calling(
      [] {
        ++constructed;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      },
      79);
  std::vector<std::shared_ptr<const HostCode>> loaded(8);
  std::vector<std::thread> threads;
  for (auto& code : loaded) threads.emplace_back([&] { code = HostCode::load(object); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(constructed, 1);
  for (const auto& code : loaded) EXPECT_EQ(code, loaded[0]);
}

TEST(HostCode, AFailedLoadLetsTheNextTry) {
  CodeObject bad = constant(80);
  bad.target = "sm_90";
  EXPECT_CONTAINS(thrown_error([&] { HostCode::load(bad); }), "but this host is");
  EXPECT_EQ(call(*HostCode::load(constant(80))), 80);
}

TEST(HostCode, StaysCorrectWhenALibraryCannotBeUnloaded) {
  const auto resident = [](int value) {
    // Unique symbols keep a library in the process for ever.
    return compile_for_test(
        "template <int N> struct S { static inline int v = " + std::to_string(value) +
        "; };\nextern \"C\" int value() { static int calls = 0; return S<" + std::to_string(value) +
        ">::v + 0 * calls; }");
  };
  const CodeObject one = resident(11), two = resident(22);
  EXPECT_EQ(call(*HostCode::load(one)), 11);
  EXPECT_EQ(call(*HostCode::load(two)), 22);
}

TEST(HostCode, NamesWhatDoesNotFit) {
  const CodeObject good = constant(3);
  const auto error_with = [&](const std::string& target) {
    CodeObject object = good;
    object.target = target;
    return thrown_error([&] { HostCode::load(object); });
  };
  EXPECT_CONTAINS(error_with("sm_90"), "is for 'sm_90', but this host is");
  EXPECT_CONTAINS(error_with(std::string(kHostTarget) + " warp9 fma_of_the_future"),
                  "this processor lacks warp9, fma_of_the_future");
  // Loaded before or not, the target is checked.
  const auto held = HostCode::load(good);
  EXPECT_CONTAINS(error_with(std::string(kHostTarget) + " warp9"), "lacks warp9");
}

TEST(HostCode, RefusesWhatIsNoSharedObject) {
  const CodeObject good = constant(4);
  const auto error_with = [&](auto change) {
    std::vector<char> bytes(good.bytes.as<char>(), good.bytes.as<char>() + good.bytes.size());
    change(bytes);
    CodeObject object = good;
    object.bytes = Blob::copy(bytes.data(), bytes.size());
    return thrown_error([&] { HostCode::load(object); });
  };
  EXPECT_CONTAINS(error_with([](auto& b) { b.resize(10); }), "shorter than an ELF header");
  EXPECT_CONTAINS(error_with([](auto& b) { b[0] = 'X'; }), "does not begin with");
  EXPECT_CONTAINS(error_with([](auto& b) { b[4] = 1; }), "not a 64-bit ELF file");
  EXPECT_CONTAINS(error_with([](auto& b) { b[18] = 8; }), "ELF machine number is 8");
  EXPECT_CONTAINS(error_with([](auto& b) { b[16] = 1; }), "ELF type is 1");
  EXPECT_CONTAINS(error_with([](auto& b) { b[39] = 0x7f; }), "beyond its end");
  EXPECT_CONTAINS(error_with([](auto& b) { b.resize(b.size() / 4); }), "truncated");
  EXPECT_CONTAINS(thrown_error([&] { HostCode::load(good)->symbol("nothing"); }),
                  "exports no symbol 'nothing'");
}

TEST(KernelLaunch, ScratchIsPartOfTheLaunch) {
  KernelCode kernel;
  kernel.name = "k";
  kernel.grid[0] = Expr::symbol(0);
  kernel.scratch = {0, kernel.grid[0] * Expr(64)};
  const KernelLaunch launch = make_launch(kernel);
  ASSERT_EQ(launch.scratch.size(), 2U);
  const int64_t extents[] = {5};
  EXPECT_EQ(launch.expression(launch.scratch[0]).evaluate(extents), 0);
  EXPECT_EQ(launch.expression(launch.scratch[1]).evaluate(extents), 320);
}

TEST(KernelLaunch, ChecksArePartOfTheLaunch) {
  KernelCode kernel;
  kernel.name = "k";
  const Expr a = Expr::symbol(0), b = Expr::symbol(1);
  kernel.checks = {{Expr::make(ExprOp::kEqual, a, b), "the extents differ"},
                   {Expr::make(ExprOp::kLess, a, 8), "too long"}};
  const KernelLaunch launch = make_launch(kernel);
  const auto fault = [&](int64_t first, int64_t second) -> std::string {
    const int64_t extents[] = {first, second};
    std::vector<int64_t> values(launch.program.size());
    evaluate(launch.program, extents, values);
    try {
      require_checks(launch, values, "l", "k");
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault(3, 3), "");
  EXPECT_NE(fault(3, 4).find("layer 'l': compiled kernel 'k': the extents differ"),
            std::string::npos);
  EXPECT_NE(fault(9, 9).find("too long"), std::string::npos);
}

}  // namespace
}  // namespace opwright
