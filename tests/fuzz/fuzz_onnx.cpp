// Parses arbitrary bytes as ONNX models: whatever they are, the parser reports errors or makes a
// network whose tensors have types and shapes.

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "onnx/parser.h"
#include "random_model.h"

namespace {

/// Messages by the thousand would be slow.
class NoLogger final : public opwright::ILogger {
  void log(Severity, char const*) noexcept override {}
};

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

/// Mostly the usual mutations; inputs that are too short to be anything, and some others, become a
/// random model.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  if (size < 32 || seed % 16 == 0) {
    const std::string model = opwright::fuzz::RandomModel(seed).make();
    if (model.size() <= max_size) {
      std::memcpy(data, model.data(), model.size());
      return model.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwright;
  static NoLogger logger;
  Network network;
  OnnxParser parser(network, Log(&logger));
  const bool taken = parser.parse(Blob::copy(data, size), "");
  if (taken != parser.errors().empty()) std::abort();
  for (const OnnxError& error : parser.errors())
    if (error.message.empty()) std::abort();
  if (!taken) return 0;
  for (const Tensor* output : network.outputs()) {
    if (bits(output->dtype()) == 0 || output->rank() > Dims::MAX_DIMS) std::abort();
    (void)str(output->dims());
  }
  return 0;
}
