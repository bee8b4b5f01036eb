// Methods that return objects, called directly and through the binary interface of TensorRT 11.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "opwright/builder.h"
#include "tensorrt/client.h"

namespace opwright {
namespace {

class Silent final : public ILogger {
  void log(Severity, AsciiChar const*) noexcept override {}
};

/// The network's inputs one after the other: INetworkDefinition::getInput().
void direct(benchmark::State& state) {
  Silent logger;
  const std::unique_ptr<IBuilder> builder(createInferBuilder(logger));
  const std::unique_ptr<INetworkDefinition> network(builder->createNetworkV2(0));
  for (int64_t i = 0; i < state.range(0); ++i)
    network->addInput(("x" + std::to_string(i)).c_str(), DataType::kFLOAT, Dims{1, {8}});
  int32_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(network->getInput(i));
    if (++i == state.range(0)) i = 0;
  }
}
BENCHMARK(direct)->Arg(1)->Arg(1000);

void through_tensorrt(benchmark::State& state) {
  using client::Object;
  client::Logger logger;
  Object* const builder = client::exported<Object*(void*, int32_t)>(
      "nvinfer", "createInferBuilder_INTERNAL")(&logger, 110100);
  auto* const network = client::call<Object*>(builder, "VBuilder", "createNetworkV2", 0U);
  const Dims dims{1, {8}};
  for (int64_t i = 0; i < state.range(0); ++i)
    client::call<Object*>(network, "VNetworkDefinition", "addInput",
                          ("x" + std::to_string(i)).c_str(), DataType::kFLOAT, &dims);
  const size_t get = client::slot_of("VNetworkDefinition", "getInput");
  int32_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(client::call_slot<Object*>(network->implementation, get, i));
    if (++i == state.range(0)) i = 0;
  }
  client::drop(network);
  client::drop(builder);
}
BENCHMARK(through_tensorrt)->Arg(1)->Arg(1000);

}  // namespace
}  // namespace opwright

BENCHMARK_MAIN();
