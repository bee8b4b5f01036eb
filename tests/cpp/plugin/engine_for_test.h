#pragma once

#include <cstring>
#include <vector>

#include "add_profile.h"
#include "compile/compile.h"
#include "network/network.h"
#include "runtime/context.h"

namespace opwright {

inline Blob to_file(const Plan& plan) {
  const std::vector<Blob> pieces = serialize(plan);
  size_t size = 0;
  for (const Blob& piece : pieces) size += piece.size();
  return Blob::make(size, [&](void* memory) {
    auto* to = static_cast<std::byte*>(memory);
    for (const Blob& piece : pieces) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
  });
}

/// One plugin between the network's only input and output; its first extent is 1 to 8.
inline Plan build(OperatorPtr op, const Shape& rest,
                  const BuilderConfig& base = BuilderConfig(DeviceId{"cpu"})) {
  Network network;
  Shape shape{-1};
  Shape min{1}, opt{4}, max{8};
  for (const int64_t extent : rest)
    for (Shape* s : {&shape, &min, &opt, &max}) s->push_back(extent);
  Tensor* input = network.add_input("x", DataType::kFLOAT, shape);
  Tensor* const inputs[] = {input};
  Layer* layer = network.add_layer(std::move(op), inputs, "the plugin");
  layer->output(0)->set_name("y");
  network.mark_output(*layer->output(0));
  BuilderConfig config = base;
  OptimizationProfile profile;
  profile.set_shape("x", min, opt, max);
  add_profile(config, profile);
  return deserialize(to_file(compile(network, config)));
}

/// Runs an engine that build() made.
inline std::vector<float> run(Context& context, const Shape& shape,
                              const std::vector<float>& input) {
  context.set_input_shape(0, shape);
  std::vector<float> output(static_cast<size_t>(context.output_shape(0).numel()));
  context.set_input_address(0, input.data());
  context.set_output_address(0, output.data());
  context.enqueue();
  return output;
}
inline std::vector<float> run(const std::shared_ptr<Engine>& engine, const Shape& shape,
                              const std::vector<float>& input) {
  Context context(engine);
  return run(context, shape, input);
}

}  // namespace opwright
