// Builds and runs what the ONNX parser takes over: whatever the model, there is an Error or an
// engine that runs and touches no memory but its own. Memory is limited, as small files may declare
// huge tensors.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "add_profile.h"
#include "base/error.h"
#include "compile/compile.h"
#include "onnx/parser.h"
#include "random_model.h"
#include "run/layout.h"
#include "run/run_plan.h"

namespace opwright {
namespace {

class NoLogger final : public ILogger {
  void log(Severity, char const*) noexcept override {}
};

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

void build_and_run(const uint8_t* data, size_t size) {
  static NoLogger logger;
  const Log log(&logger);
  Network network;
  OnnxParser parser(network, log);
  if (!parser.parse(Blob::copy(data, size), "")) return;
  BuilderConfig config{DeviceId{"cpu"}};
  config.timing = false;
  config.log = log;
  add_profile(config, profile_of(network));
  Plan plan = compile(network, config);
  for (Schedule& schedule : plan.schedules) fuzz::spread_arena(schedule);
  // The script of what is run, from the bytes.
  fuzz::Random random(size == 0 ? 0 : size * 31 + data[size / 2]);
  std::vector<uint8_t> bytes(64);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 32);
  fuzz::Script script(bytes.data(), bytes.size());
  fuzz::run_plan(std::move(plan), script, nullptr);
}

}  // namespace
}  // namespace opwright

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
