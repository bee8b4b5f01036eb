// Builds and runs what the ONNX parser takes over: whatever the model, there is an Error or an
// engine that runs. Memory is limited, as small files may declare huge tensors.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"
#include "compile/compile.h"
#include "onnx/parser.h"
#include "random_model.h"
#include "runtime/context.h"

namespace opwright {
namespace {

class NoLogger final : public ILogger {
  void log(Severity, char const*) noexcept override {}
};

constexpr int64_t kMaxBytes = 1 << 22;  // of an input or output, so that runs are short

/// Small extents for those that the model leaves open.
OptimizationProfile profile_of(const Network& network) {
  OptimizationProfile profile;
  for (const Tensor* input : network.inputs()) {
    const Shape shape = input->shape();
    if (input->info().values) {
      Shape low, middle, high;
      for (int64_t i = 0; i < shape.numel() && i < Dims::MAX_DIMS; ++i)
        low.push_back(0), middle.push_back(1), high.push_back(4);
      profile.set_values(input->name(), low, middle, high);
      continue;
    }
    Shape low = shape, middle = shape, high = shape;
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] < 0) low[i] = 1, middle[i] = 2, high[i] = 4;
    profile.set_shape(input->name(), low, middle, high);
  }
  return profile;
}

Blob zeros(int64_t bytes) {
  require(bytes <= kMaxBytes, "too large to run");
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  return Blob::make(size, [&](void* memory) { std::memset(memory, 0, size); });
}

void build_and_run(const uint8_t* data, size_t size) {
  static NoLogger logger;
  const Log log(&logger);
  Network network;
  OnnxParser parser(network, log);
  if (!parser.parse(Blob::copy(data, size), "")) return;
  BuildConfig config;
  config.timing = false;
  config.log = log;
  config.profiles = {profile_of(network)};
  Plan plan = compile(network, config);
  LoadOptions options;
  options.log = log;
  const std::shared_ptr<Engine> engine = Engine::load(std::move(plan), options);
  Context context(engine);
  std::vector<Blob> memory;
  for (size_t i = 0; i < engine->plan().inputs.size(); ++i) {
    const int index = static_cast<int>(i);
    const PlanPort& port = engine->plan().inputs[i];
    const ProfileInput& range = engine->plan().schedules[0].inputs[i];
    const Shape shape = range.values ? context.input_shape(index) : range.opt;
    memory.push_back(zeros(bytes_of(port.type.dtype, shape.numel())));
    context.set_input_address(index, memory.back().data());
    if (!range.values) context.set_input_shape(index, shape);
  }
  for (size_t i = 0; i < engine->plan().outputs.size(); ++i) {
    const int index = static_cast<int>(i);
    const DataType dtype = engine->plan().outputs[i].type.dtype;
    memory.push_back(zeros(bytes_of(dtype, context.max_output_shape(index).numel())));
    context.set_output_address(index, const_cast<std::byte*>(memory.back().data()));
  }
  context.enqueue();
}

}  // namespace
}  // namespace opwright

extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=256";
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  // Few mutations of bytes leave a model that builds, so most inputs are new models.
  if (size < 32 || seed % 4 != 0) {
    const std::string model = opwright::fuzz::RandomModel(seed).make();
    if (model.size() <= max_size) {
      std::memcpy(data, model.data(), model.size());
      return model.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    opwright::build_and_run(data, size);
  } catch (const opwright::Error& error) {
    if (std::strlen(error.what()) == 0) std::abort();
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
