#include "plugin/kernel/device_kernel.h"

#include <cstring>
#include <map>

#include "backend/backend.h"
#include "network/operator_registry.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/plugin_test.h"

namespace opwright {
namespace {

using DT = DataType;

const Queue kQueue = reinterpret_cast<Queue>(0x1234);

/// What one launch was given; arguments as 64-bit words, as far as the types in `sizes` say.
struct Launch {
  LaunchShape shape;
  std::vector<uint64_t> arguments;
  Queue queue = nullptr;
};

/// A device of compute capability 9.0 whose memory is the host's, and that notes launches.
class RecordingGpu final : public Device {
 public:
  class Function final : public DeviceFunction {
   public:
    explicit Function(const RecordingGpu& gpu) : gpu_(gpu) {}
    int num_parameters() const override { return gpu_.num_parameters; }
    void allow_shared_memory(uint32_t bytes) const override {
      if (bytes > 227 * 1024) fail("there are 232448 bytes");
    }
    void launch(const LaunchShape& shape, void* const* arguments, Queue queue) const override {
      Launch launch{shape, {}, queue};
      for (size_t i = 0; i < gpu_.sizes.size(); ++i) {
        launch.arguments.push_back(0);
        std::memcpy(&launch.arguments.back(), arguments[i], gpu_.sizes[i]);
      }
      gpu_.launches.push_back(std::move(launch));
    }

   private:
    const RecordingGpu& gpu_;
  };

  const Backend& backend() const override { return get_backend("cuda"); }
  DeviceType type() const override { return DeviceType::kGPU; }
  std::string identity() const override { return "a GPU"; }
  std::string architecture() const override { return "sm_90"; }
  bool runs(std::string_view target) const override {
    return target == "sm_90" || target == "sm_90a" || target == "compute_80";
  }
  LaunchLimits launch_limits() const override {
    return {
        .grid = {LaunchLimits::kMost, 65535, 65535}, .block = {1024, 1024, 64}, .threads = 1024};
  }
  void* allocate(size_t bytes) const override { return std::malloc(bytes); }
  void free(void* memory) const noexcept override { std::free(memory); }
  void copy(void* to, const void* from, size_t bytes, Queue queue) const override {
    EXPECT_TRUE(queue == kQueue || launches.empty());  // before the first run there is none
    if (bytes > 0) std::memcpy(to, from, bytes);
    ++copies;
  }
  void make_tensor_map(const TensorMapShape& shape, const void* address, void* to) const override {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(to) % 64, 0u);
    std::memcpy(to, &address, sizeof(address));
    maps.push_back(shape);
  }
  void synchronize(Queue) const override {}
  std::unique_ptr<Event> make_event(bool) const override { return nullptr; }
  std::shared_ptr<const DeviceFunction> load_function(const CodeObject&,
                                                      const std::string& name) const override {
    if (name != "f") fail("there is no function '", name, "'");
    return std::make_shared<Function>(*this);
  }
  std::vector<Candidate> candidates(const Operator&, const CandidateQuery&) const override {
    return {};
  }
  std::unique_ptr<Kernel> make_kernel(const Operator&, const KernelArgs&) const override {
    return nullptr;
  }
  std::vector<TensorFormat> formats(int) const override { return {}; }
  double time(Kernel&, void const* const*, void* const*, void*, int,
              const CacheScene&) const override {
    return 0;
  }

  int num_parameters = -1;
  std::vector<size_t> sizes;
  mutable std::vector<Launch> launches;
  mutable int copies = 0;
  mutable std::vector<TensorMapShape> maps;
};

const char* const kPtx = "\n.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f() {}";

KernelCode make_code() {
  KernelCode code;
  code.name = "f";
  code.object = {"test f", "sm_90", Blob::copy(kPtx, std::strlen(kPtx)), false};
  // Input 0 has rank 2: symbols 0 and 1.
  code.grid[0] = Expr::symbol(1);
  code.grid[1] = Expr::symbol(0);
  code.block[0] = 128;
  return code;
}

class DeviceKernelTest : public testing::Test {
 protected:
  DeviceKernelTest() {
    ports_[0].min = {0, 0};
    ports_[0].max = {4000, 1 << 20};
  }

  std::unique_ptr<Kernel> make(const KernelCode& code) {
    const PlannedOperatorPtr op = make_compiled_kernel(code);
    return make(*op);
  }
  std::unique_ptr<Kernel> make(const PlannedOperator& op) {
    KernelArgs args = make_args(candidate_, ports_, outputs_);
    args.device = &gpu_;
    return op.make_kernel(args);
  }
  void run(Kernel& kernel, const Shape& shape, void* workspace = nullptr) {
    kernel.on_shape_change({&shape, 1}, {&shape, 1});
    void const* inputs[] = {in_};
    void* outputs[] = {out_};
    kernel.enqueue(inputs, outputs, workspace, kQueue);
  }
  std::string error_with(auto change, const Shape& shape = {2, 3}) {
    KernelCode code = make_code();
    change(code);
    return thrown_error([&] { run(*make(code), shape); });
  }

  RecordingGpu gpu_;
  std::vector<PortDesc> ports_ = {port(DT::kFLOAT, {2, 3})};
  std::vector<PortDesc> outputs_ = {port(DT::kFLOAT, {2, 3})};
  Candidate candidate_{
      {{DT::kFLOAT, TensorFormat::kLINEAR}}, {{DT::kFLOAT, TensorFormat::kLINEAR}}, 0, ""};
  float in_[4] = {}, out_[4] = {};
};

uint64_t word(const void* address) { return reinterpret_cast<uint64_t>(address); }

TEST_F(DeviceKernelTest, LaunchesWithGridBlockAndArguments) {
  KernelCode code = make_code();
  code.block[1] = 2;
  code.shared_memory = Expr::symbol(0) * 1024;
  code.arguments = {{ArgumentType::kINT32, Expr::symbol(1), 0},
                    {ArgumentType::kINT64, Expr::symbol(0) - 9, 0},
                    {ArgumentType::kFLOAT32, {}, 0.5}};
  gpu_.sizes = {8, 4, 8, 4, 8};
  gpu_.num_parameters = 5;
  const auto kernel = make(code);
  EXPECT_EQ(kernel->workspace_size(), 0u);
  EXPECT_EQ(kernel->capture_obstacle(), "");
  run(*kernel, {2, 3});
  run(*kernel, {5, 70});
  ASSERT_EQ(gpu_.launches.size(), 2u);
  const Launch& launch = gpu_.launches[1];
  EXPECT_EQ(launch.shape.grid, (std::array<uint32_t, 3>{70, 5, 1}));
  EXPECT_EQ(launch.shape.block, (std::array<uint32_t, 3>{128, 2, 1}));
  EXPECT_EQ(launch.shape.shared_memory, 5u * 1024);
  EXPECT_EQ(launch.queue, kQueue);
  const std::vector<uint64_t> expected = {word(in_), 70, static_cast<uint64_t>(-4), 0x3f000000,
                                          word(out_)};
  EXPECT_EQ(launch.arguments, expected);
  EXPECT_EQ(gpu_.launches[0].shape.grid[0], 3u);
}

TEST_F(DeviceKernelTest, EmptyOutputsNeedNoLaunch) {
  const auto kernel = make(make_code());
  run(*kernel, {0, 3});
  EXPECT_TRUE(gpu_.launches.empty());
  run(*kernel, {2, 3});
  EXPECT_EQ(gpu_.launches.size(), 1u);
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.grid[0] = Expr::symbol(1) - 3; }),
                  "layer 'test layer': compiled kernel 'test f': grid_x is 0 (inputs[0].shape[1] - "
                  "3), so that nothing would write output 0");
}

TEST_F(DeviceKernelTest, ChecksLimits) {
  const std::string who = "layer 'test layer': compiled kernel 'test f': ";
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.grid[1] = Expr::symbol(0) * 40000; }),
                  who + "grid_y is 80000 (inputs[0].shape[0] * 40000); GPUs have at most 65535");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.grid[0] = Expr::symbol(0) * (1 << 30); }),
                  who + "grid_x is 2147483648");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.block[0] = Expr::symbol(1) * 400; }),
                  who + "block_x is 1200 (inputs[0].shape[1] * 400); GPUs have at most 1024");
  EXPECT_CONTAINS(error_with([](KernelCode& c) {
                    c.block[0] = 64;
                    c.block[1] = 32;
                  }),
                  who + "a block has 64 x 32 x 1 threads; GPUs have at most 1024");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.block[2] = 65; }), "block_z is 65");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.block[0] = 0; }), "block_x is 0");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.shared_memory = Expr::symbol(0) * 120000; }),
                  who + "shared_mem is 240000 (inputs[0].shape[0] * 120000): there are 232448");
  EXPECT_CONTAINS(error_with([](KernelCode& c) { c.name = "g"; }),
                  who + "there is no function 'g'");
}

TEST_F(DeviceKernelTest, ScratchLiesInTheWorkspace) {
  KernelCode code = make_code();
  const Expr cells = code.grid[0] * code.grid[1];
  code.scratch = {cells * 10, 0, cells * 7};
  ports_[0].max = {4, 100};
  gpu_.sizes = {8, 8, 8, 8, 8};
  gpu_.num_parameters = 5;
  const auto kernel = make(code);
  EXPECT_EQ(kernel->workspace_size(), 4096u + 2816u);  // 4000 and 2800 bytes, multiples of 256
  alignas(256) std::byte workspace[2] = {};
  run(*kernel, {3, 20}, workspace);
  const std::vector<uint64_t> expected = {word(in_), word(out_), word(workspace), 0,
                                          word(workspace) + 4096};
  EXPECT_EQ(gpu_.launches.at(0).arguments, expected);
  EXPECT_CONTAINS(thrown_error([&] {
                    run(*kernel, {5, 200}, workspace);
                  }),
                  "scratch buffer 0 takes 10000 bytes");
}

/// Two matrices of two rows each, in boxes of eight rows.
KernelTensorMap matrices() {
  const Expr rows = Expr::symbol(0), columns = Expr::symbol(1);
  return {0, DT::kHALF, {columns, 2, rows}, {columns, columns}, {64, 8, 1}, {1, 1, 1}, {}, {}};
}

TEST_F(DeviceKernelTest, TensorMapsAreMadeWhereTheirTensorsLie) {
  ports_ = {port(DT::kHALF, {3, 64})};
  ports_[0].min = {1, 8}, ports_[0].max = {4, 1024};
  KernelCode code = make_code();
  code.maps = {matrices()};
  code.maps[0].extents[2] = Expr::symbol(0) - 1;
  gpu_.sizes = {8, 8, 8};
  gpu_.num_parameters = 3;
  const auto kernel = make(code);
  alignas(16) std::byte memory[2 * 3 * 64 + 16] = {};
  const auto run_at = [&](void* in) {
    void const* inputs[] = {in};
    void* outputs[] = {out_};
    kernel->enqueue(inputs, outputs, nullptr, kQueue);
    return gpu_.launches.back().arguments[2];
  };
  const Shape shape = {3, 64};
  kernel->on_shape_change({&shape, 1}, {&shape, 1});
  EXPECT_EQ(run_at(memory), word(memory));
  EXPECT_EQ(run_at(memory), word(memory));
  ASSERT_EQ(gpu_.maps.size(), 1u) << "nothing had changed";
  EXPECT_EQ(gpu_.maps[0].extents, (std::vector<uint64_t>{64, 2, 2}));
  EXPECT_EQ(gpu_.maps[0].strides, (std::vector<uint64_t>{128, 128}));
  EXPECT_EQ(run_at(memory + 16), word(memory + 16));
  EXPECT_EQ(gpu_.maps.size(), 2u);
  // Elsewhere than maps may begin, the input is copied.
  EXPECT_EQ(gpu_.copies, 0);
  const uint64_t copy = run_at(memory + 2);
  EXPECT_EQ(copy % 16, 0u);
  EXPECT_NE(copy, word(memory));
  EXPECT_EQ(gpu_.copies, 1);
  const Shape smaller = {2, 64};
  kernel->on_shape_change({&smaller, 1}, {&smaller, 1});
  EXPECT_EQ(run_at(memory), word(memory));
  EXPECT_EQ(gpu_.maps.back().extents, (std::vector<uint64_t>{64, 2, 1}));
}

/// Drivers refuse an extent of 0. The kernel still runs: an attention without keys has results.
TEST_F(DeviceKernelTest, AnEmptyTensorHasAMapOfOtherMemory) {
  ports_ = {port(DT::kHALF, {3, 64})};
  ports_[0].min = {0, 8}, ports_[0].max = {4, 1024};
  KernelCode code = make_code();
  KernelTensorMap map = matrices();
  map.extents[1] = 1, map.strides[0] = 8;
  code.maps = {map};
  code.grid[1] = 1;
  gpu_.sizes = {8, 8, 8};
  gpu_.num_parameters = 3;
  const auto kernel = make(code);
  for (const int64_t rows : {3, 0, 3}) {
    alignas(16) std::byte memory[2 * 3 * 64] = {};
    const Shape shape = {rows, 64};
    kernel->on_shape_change({&shape, 1}, {&shape, 1});
    void const* inputs[] = {rows == 0 ? nullptr : memory};
    void* outputs[] = {out_};
    kernel->enqueue(inputs, outputs, nullptr, kQueue);
    const uint64_t place = gpu_.launches.back().arguments[2];
    EXPECT_EQ(place == word(memory), rows > 0);
    EXPECT_NE(place, 0u);
    const uint64_t one = 1, expected = rows == 0 ? one : static_cast<uint64_t>(rows);
    EXPECT_EQ(gpu_.maps.back().extents,
              (std::vector<uint64_t>{rows == 0 ? one : 64, one, expected}));
  }
}

TEST_F(DeviceKernelTest, TensorMapsLieInsideTheirTensors) {
  ports_ = {port(DT::kHALF, {3, 64})};
  ports_[0].min = {0, 0}, ports_[0].max = {4, 1024};
  const std::string who =
      "layer 'test layer': compiled kernel 'test f': its tensor map of input 0 ";
  const auto error = [&](auto change, const Shape& shape) {
    return error_with(
        [&](KernelCode& code) {
          code.maps = {matrices()};
          change(code.maps[0]);
        },
        shape);
  };
  EXPECT_CONTAINS(error([](KernelTensorMap&) {}, {3, 64}), who + "reaches beyond its 192 elements");
  EXPECT_CONTAINS(error([](KernelTensorMap& m) { m.extents[2] = Expr::symbol(0) - 3; }, {3, 64}),
                  who + "has an extent of 0");
  EXPECT_CONTAINS(error([](KernelTensorMap& m) { m.extents[1] = 1; }, {3, 68}),
                  who + "has a stride of 68 elements; expected a multiple of 8");
  EXPECT_CONTAINS(error([](KernelTensorMap& m) { m.strides[0] = int64_t{1} << 60; }, {3, 64}),
                  who + "has a stride of");
  EXPECT_CONTAINS(error([](KernelTensorMap& m) { m.input = 1; }, {3, 64}),
                  "tensor map 0 is of input 1, which is absent");
  EXPECT_CONTAINS(error([](KernelTensorMap& m) { m.type = DT::kBF16; }, {3, 64}),
                  "tensor map 0 has elements of type BF16, and input 0 those of FP16");
}

TEST_F(DeviceKernelTest, CountsParameters) {
  gpu_.num_parameters = 4;
  EXPECT_CONTAINS(
      error_with([](KernelCode&) {}),
      "layer 'test layer': compiled kernel 'test f': the code takes 4 parameters, but it is called "
      "with 2 arguments (1 input, 0 extra arguments, 1 output); a kernel has a pointer for each");
  gpu_.num_parameters = 2;
  EXPECT_NO_THROW(run(*make(make_code()), {2, 3}));
}

TEST_F(DeviceKernelTest, PointersThatTritonAddsAndNobodyReadsAreNull) {
  const auto ptx = [](const std::string& body) {
    const std::string text =
        ".version 9.0\n.target sm_80\n.visible .entry f(\n"
        "\t.param .u64 .ptr .global .align 1 f_param_0,\n"
        "\t.param .u64 .ptr .global .align 1 f_param_1,\n"
        "\t.param .u64 .ptr .global .align 1 f_param_2,\n"
        "\t.param .u64 .ptr .global .align 1 f_param_3\n)\n{\n" +
        body + "}\n";
    return [text](KernelCode& code) {
      code.object.bytes =
          Blob::make(text.size(), [&](void* to) { std::memcpy(to, text.data(), text.size()); });
    };
  };
  const std::string reads = "ld.param.b64 %rd0, [f_param_0];\nld.param.b64 %rd1, [f_param_1];\n";
  for (const int told : {4, -1}) {  // old drivers do not count
    gpu_.num_parameters = told;
    gpu_.sizes = {8, 8, 8, 8};
    KernelCode code = make_code();
    ptx(reads)(code);
    const auto kernel = make(code);
    run(*kernel, {2, 3});
    const std::vector<uint64_t> expected = {word(in_), word(out_), 0, 0};
    EXPECT_EQ(gpu_.launches.back().arguments, expected);
  }
  gpu_.num_parameters = 4;
  EXPECT_CONTAINS(error_with(ptx(reads + "ld.param.b64 %rd2, [f_param_2];\n")),
                  "the code takes 4 parameters, but it is called with 2 arguments");
}

TEST_F(DeviceKernelTest, PointersToValuesAreUploadedWhenTheyChange) {
  KernelCode code = make_code();
  code.arguments = {{ArgumentType::kPOINTER, Expr::symbol(0) * 11, 0},
                    {ArgumentType::kINT32, 5, 0},
                    {ArgumentType::kPOINTER, Expr::symbol(1), 0}};
  gpu_.sizes = {8, 8, 4, 8, 8};
  const auto kernel = make(code);
  gpu_.copies = 0;  // of zeros
  const auto values = [&] {
    const std::vector<uint64_t>& arguments = gpu_.launches.back().arguments;
    return std::pair(*reinterpret_cast<int64_t*>(arguments[1]),
                     *reinterpret_cast<int64_t*>(arguments[3]));
  };
  run(*kernel, {2, 3});
  EXPECT_EQ(values(), std::pair(int64_t{22}, int64_t{3}));
  run(*kernel, {2, 3});
  EXPECT_EQ(gpu_.copies, 1);
  run(*kernel, {2, 4});
  EXPECT_EQ(values(), std::pair(int64_t{22}, int64_t{4}));
  EXPECT_EQ(gpu_.copies, 2);
}

TEST_F(DeviceKernelTest, MemoryBehindAPointerToZeroIsTheKernelsOwn) {
  KernelCode code = make_code();
  code.arguments = {{ArgumentType::kPOINTER, 0, 0}};
  gpu_.sizes = {8, 8, 8};
  const auto kernel = make(code);
  gpu_.copies = 0;
  run(*kernel, {2, 3});
  auto* const counter = reinterpret_cast<int64_t*>(gpu_.launches.back().arguments[1]);
  EXPECT_EQ(*counter, 0);
  *counter = 7;
  run(*kernel, {2, 4});
  EXPECT_EQ(reinterpret_cast<int64_t*>(gpu_.launches.back().arguments[1]), counter);
  EXPECT_EQ(*counter, 7);
  EXPECT_EQ(gpu_.copies, 0);
}

TEST_F(DeviceKernelTest, IsToldTheValuesOfShapeInputs) {
  ports_ = {port(DT::kFLOAT, {2}), port(DT::kINT32, {2})};
  candidate_.inputs.push_back({DT::kINT32, TensorFormat::kLINEAR});
  KernelCode code = make_code();
  code.grid[0] = Expr::symbol(2) * 10 + Expr::symbol(3);
  code.grid[1] = 1;
  code.shape_inputs = {1};
  const auto kernel = make(code);
  const Shape shapes[] = {{2}, {2}};
  void const* inputs[] = {in_, nullptr};
  void* outputs[] = {out_};
  for (const int64_t second : {2, 9}) {
    const int64_t sizes[] = {4, second};
    kernel->on_values_change(1, sizes);
    kernel->on_shape_change(shapes, {shapes, 1});
    kernel->enqueue(inputs, outputs, nullptr, kQueue);
  }
  ASSERT_EQ(gpu_.launches.size(), 2u);
  EXPECT_EQ(gpu_.launches[0].shape.grid[0], 42u);
  EXPECT_EQ(gpu_.launches[1].shape.grid[0], 49u);
}

TEST_F(DeviceKernelTest, CodeForAnotherGpuIsRefused) {
  KernelCode code = make_code();
  const std::string elf(
      "\x7f"
      "ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\276\0",
      20);
  std::string cubin = elf + std::string(64, '\0');
  code.object = {"test f", "sm_80", Blob::copy(cubin.data(), cubin.size()), false};
  const std::string message = thrown_error([&] { make(code); });
  EXPECT_CONTAINS(message,
                  "layer 'test layer': compiled kernel 'test f' is code for sm_80, for GPUs of "
                  "compute capability 8.0 to 8.9; this device is sm_90. Build the engine here");
  EXPECT_CONTAINS(message, "compute_80");
  code.object.target = "sm_90a";
  EXPECT_NO_THROW(make(code));
}

TEST_F(DeviceKernelTest, NeedsPermission) {
  const PlannedOperatorPtr made = make_compiled_kernel(make_code());
  const std::vector<CodeObject> code = made->code();
  ASSERT_EQ(code.size(), 1u);
  std::vector<LoadedCode> loaded = {{code[0], false}};
  OperatorLoadContext context;
  context.layer = "test layer";
  context.code = loaded;
  EXPECT_THROW(load_compiled_kernel(made->attributes(), context), Error);
  EXPECT_TRUE(gpu_.launches.empty());
  loaded[0].permitted = true;
  const PlannedOperatorPtr again = load_compiled_kernel(made->attributes(), context);
  run(*make(*again), {2, 3});
  EXPECT_EQ(gpu_.launches.size(), 1u);
}

TEST_F(DeviceKernelTest, CodeForTheHostIsRefused) {
  EXPECT_CONTAINS(error_with([](KernelCode& c) {
                    c.object.host = true;
                    c.object.target = "x86-64";
                  }),
                  "is code for the host (x86-64), but the layer runs on sm_90");
}

}  // namespace
}  // namespace opwright
