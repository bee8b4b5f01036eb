// Runs an engine with one FP32 input and one FP32 output on an array that numpy.save wrote:
//   cpp_app model.engine x.npy
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "opwright/NvInferRuntime.h"

class Logger final : public opwright::ILogger {
  void log(Severity severity, char const* message) noexcept override {
    if (severity <= Severity::kWARNING) std::fprintf(stderr, "%s\n", message);
  }
};

static std::string read(char const* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The elements of an NPY file whose header says "{'descr': '<f4', ..., 'shape': (1, 3, 8, 8), }".
static std::vector<float> parse_npy(std::string const& npy, opwright::Dims& shape) {
  size_t const begin = npy.find('\n') + 1, open = npy.find('('), close = npy.find(')');
  if (npy.compare(0, 6, "\x93NUMPY") != 0 || npy.find("'<f4'") > begin || close > begin) return {};
  std::istringstream extents(npy.substr(open + 1, close - open - 1));
  size_t count = 1;
  for (std::string extent; shape.nbDims < shape.MAX_DIMS && std::getline(extents, extent, ',');) {
    if (extent.find_first_not_of(' ') == extent.npos) continue;
    count *= shape.d[shape.nbDims++] = std::atoll(extent.c_str());
  }
  if (count != (npy.size() - begin) / sizeof(float)) return {};
  std::vector<float> elements(count);
  npy.copy(reinterpret_cast<char*>(elements.data()), count * sizeof(float), begin);
  return elements;
}

static int fail(char const* message) { return std::fprintf(stderr, "%s\n", message), 1; }

int main(int argc, char** argv) {
  if (argc != 3) return fail("usage: cpp_app model.engine x.npy");
  Logger logger;
  std::unique_ptr<opwright::IRuntime> runtime(opwright::createInferRuntime(logger));
  runtime->setEngineHostCodeAllowed(true);  // its kernels run here: only for files that you trust
  std::string const plan = read(argv[1]);
  std::unique_ptr<opwright::ICudaEngine> engine(
      runtime->deserializeCudaEngine(plan.data(), plan.size()));
  if (!engine) return fail("the engine was not loaded");  // the logger said why
  std::unique_ptr<opwright::IExecutionContext> context(engine->createExecutionContext());

  char const *x = engine->getIOTensorName(0), *y = engine->getIOTensorName(1);
  opwright::Dims shape{};
  std::vector<float> input = parse_npy(read(argv[2]), shape);
  if (input.empty()) return fail("expected an array of float32, as numpy.save writes it");
  if (!context->setInputShape(x, shape)) return 1;
  std::vector<float> output(context->getMaxOutputSize(y) / sizeof(float));
  context->setInputTensorAddress(x, input.data());
  context->setTensorAddress(y, output.data());
  if (!context->enqueueV3(nullptr)) return 1;  // on the CPU the work is done when it returns
  for (float value : output) std::printf("%g\n", value);
}
