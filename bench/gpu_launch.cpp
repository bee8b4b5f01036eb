// Compares an engine of compiled kernels with the same kernels launched by hand, without Python:
//   gpu_launch launch|graph|load ENGINE CUBIN SPEC START
// launch: host time of an enqueue against that of cuLaunchKernel. graph: host and whole time of an
// enqueue against launching a graph of the same kernels. load: milliseconds from START
// (CLOCK_MONOTONIC, ns) to the first result, and those of the driver's own start. The figures are
// written as JSON. The first line of SPEC is the kernel's name, then come the grid, the block, the
// number of kernels in the chain, the bytes of the input and of each output, and the arguments:
// "in", "out" or "i32 N", "i64 N".
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "opwright/NvInferRuntime.h"

namespace {

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "gpu_launch: %s\n", message.c_str());
  std::exit(1);
}

/// The driver's functions by name, so that the build needs neither its headers nor its library.
class Driver {
 public:
  Driver() {
    const char* name = std::getenv("OPWRIGHT_CUDA_DRIVER");
    library_ = dlopen(name ? name : "libcuda.so.1", RTLD_NOW);
    if (!library_) fail(dlerror());
    call("cuInit", 0u);
    int device = 0;
    void* context = nullptr;
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
  }
  template <class... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const int status = get<int(Arguments...)>(name)(arguments...);
    if (status != 0) fail(std::string(name) + ": error " + std::to_string(status));
  }
  template <class Function>
  Function* get(const char* name) const {
    void* const function = dlsym(library_, name);
    if (!function) fail(std::string("the driver has no ") + name);
    return reinterpret_cast<Function*>(function);
  }

 private:
  void* library_;
};

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Spec {
  std::string kernel;
  unsigned grid[3], block[3];
  int chain = 1;
  size_t input_bytes = 0, output_bytes = 0;
  struct Argument {
    std::string type;
    int64_t value = 0;
  };
  std::vector<Argument> arguments;

  explicit Spec(const char* path) {
    std::ifstream file(path);
    file >> kernel;
    for (unsigned& n : grid) file >> n;
    for (unsigned& n : block) file >> n;
    file >> chain >> input_bytes >> output_bytes;
    for (Argument argument; file >> argument.type; arguments.push_back(argument)) {
      if (argument.type[0] == 'i' && argument.type != "in") file >> argument.value;
    }
    if (kernel.empty() || arguments.empty()) fail("the spec is not complete");
  }
};

using Launch = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**);

/// The kernels of the chain with their arguments, as launched by hand.
class Chain {
 public:
  Chain(const Driver& driver, const Spec& spec, const char* cubin,
        const std::vector<uint64_t>& data)
      : spec_(spec), launch_(driver.get<Launch>("cuLaunchKernel")) {
    void* module = nullptr;
    driver.call("cuModuleLoadData", &module, read(cubin).c_str());
    driver.call("cuModuleGetFunction", &function_, module, spec.kernel.c_str());
    values_.resize(spec.chain), pointers_.resize(spec.chain);
    for (int i = 0; i < spec.chain; ++i) {
      for (const Spec::Argument& argument : spec.arguments) {
        values_[i].push_back(argument.type == "in"    ? static_cast<int64_t>(data[i])
                             : argument.type == "out" ? static_cast<int64_t>(data[i + 1])
                                                      : argument.value);
      }
      for (int64_t& value : values_[i]) pointers_[i].push_back(&value);
    }
  }
  void run(void* stream) {
    const unsigned *g = spec_.grid, *b = spec_.block;
    for (auto& pointers : pointers_) {
      if (launch_(function_, g[0], g[1], g[2], b[0], b[1], b[2], 0, stream, pointers.data(),
                  nullptr) != 0) {
        fail("cuLaunchKernel failed");
      }
    }
  }

 private:
  const Spec& spec_;
  Launch* launch_;
  void* function_ = nullptr;
  std::vector<std::vector<int64_t>> values_;
  std::vector<std::vector<void*>> pointers_;
};

class Logger final : public opwright::ILogger {
  void log(Severity severity, char const* message) noexcept override {
    if (severity <= Severity::kWARNING) std::fprintf(stderr, "%s\n", message);
  }
};

/// An engine from its file, with memory for its input and output.
struct Loaded {
  Logger logger;
  std::unique_ptr<opwright::IRuntime> runtime;
  std::unique_ptr<opwright::ICudaEngine> engine;
  std::unique_ptr<opwright::IExecutionContext> context;

  Loaded(const char* path, uint64_t input, uint64_t output)
      : runtime(opwright::createInferRuntime(logger)) {
    const std::string plan = read(path);
    runtime->setEngineDeviceCodeAllowed(true);
    engine.reset(runtime->deserializeCudaEngine(plan.data(), plan.size()));
    if (!engine) fail("the engine was not loaded");
    context.reset(engine->createExecutionContext());
    context->setTensorAddress("x", reinterpret_cast<void*>(input));
    context->setTensorAddress("y", reinterpret_cast<void*>(output));
  }
};

/// Seconds per call of two functions, measured in turns: on the host only, and until the device is
/// done. The smallest of several rounds counts.
struct Times {
  double host[2] = {1e9, 1e9}, whole[2] = {1e9, 1e9};
};

template <class First, class Second, class Wait>
Times in_turns(First first, Second second, Wait wait) {
  constexpr int kRounds = 15, kBatches = 9, kCalls = 200;
  Times best;
  auto round = [&](auto& function, int which) {
    std::vector<double> host, whole;
    for (int batch = 0; batch < kBatches; ++batch) {
      wait();
      const double start = now();
      for (int i = 0; i < kCalls; ++i) function();
      host.push_back(now() - start);
      wait();
      whole.push_back(now() - start);
    }
    for (auto* times : {&host, &whole}) std::sort(times->begin(), times->end());
    best.host[which] = std::min(best.host[which], host[kBatches / 2] / kCalls);
    best.whole[which] = std::min(best.whole[which], whole[kBatches / 2] / kCalls);
  };
  for (int i = 0; i < 100; ++i) first(), second();
  for (int i = 0; i < kRounds; ++i) round(first, 0), round(second, 1);
  return best;
}

void print(const Times& times) {
  std::printf(
      "{\"engine_host\": %.9f, \"engine\": %.9f, \"by_hand_host\": %.9f, \"by_hand\": %.9f}\n",
      times.host[0], times.whole[0], times.host[1], times.whole[1]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) fail("usage: gpu_launch launch|graph|load ENGINE CUBIN SPEC START");
  const std::string mode = argv[1];
  const double begin = now();
  const Driver driver;
  const double started = now();
  const Spec spec(argv[4]);

  std::vector<uint64_t> data(spec.chain + 1);
  for (uint64_t& address : data) {
    const size_t bytes = std::max(spec.input_bytes, spec.output_bytes);
    driver.call("cuMemAlloc_v2", &address, bytes);
    driver.call("cuMemsetD8_v2", address, static_cast<unsigned char>(0), bytes);
  }
  uint64_t output = 0;
  driver.call("cuMemAlloc_v2", &output, spec.output_bytes);
  void* stream = nullptr;
  driver.call("cuStreamCreate", &stream, 1u);
  auto* const synchronize = driver.get<int(void*)>("cuStreamSynchronize");
  auto wait = [&] {
    if (synchronize(stream) != 0) fail("cuStreamSynchronize failed");
  };

  Loaded loaded(argv[2], data[0], output);
  opwright::IExecutionContext& context = *loaded.context;
  auto* const cuda_stream = static_cast<cudaStream_t>(stream);
  auto enqueue = [&] {
    if (!context.enqueueV3(cuda_stream)) fail("the engine failed");
  };
  enqueue();
  wait();
  if (mode == "load") {
    const double start = 1e-9 * static_cast<double>(std::atoll(argv[5]));
    std::printf("{\"ms\": %.3f, \"driver\": %.3f}\n", 1e3 * (now() - start),
                1e3 * (started - begin));
    return 0;
  }

  Chain chain(driver, spec, argv[3], data);
  if (mode == "launch") {
    print(in_turns(
        enqueue, [&] { chain.run(stream); }, wait));
    return 0;
  }
  void *graph = nullptr, *executable = nullptr;
  driver.call("cuStreamBeginCapture_v2", stream, 1);
  chain.run(stream);
  driver.call("cuStreamEndCapture", stream, &graph);
  driver.call("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
  auto* const launch = driver.get<int(void*, void*)>("cuGraphLaunch");
  auto replay = [&] {
    if (launch(executable, stream) != 0) fail("cuGraphLaunch failed");
  };
  print(in_turns(enqueue, replay, wait));
}
