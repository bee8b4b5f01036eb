// Launches of compiled kernels, as engine files say them: an Error, or a launch that is evaluated
// for any shapes and values within what its block of arguments has room for.

#include <cstring>
#include <new>

#include "base/error.h"
#include "network/kernel_launch.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/kernel/launch_values.h"
#include "run/mutate.h"
#include "run/script.h"

namespace opwright::fuzz {
namespace {

/// The launch of a plugin with an input, a shape input and an output.
Attributes valid_launch() {
  KernelCode code;
  code.name = "kernel";
  const Expr n = Expr::symbol(0), m = Expr::symbol(1), v = Expr::symbol(3);
  code.grid[0] = ceil_div(n * m, 64);
  code.grid[1] = max(v, 1);
  code.block[0] = 64;
  code.shared_memory = Expr::select(Expr::make(ExprOp::kLess, n, 8), 128, 64 * m);
  code.arguments = {{ArgumentType::kINT32, n * m},
                    {ArgumentType::kINT64, v},
                    {ArgumentType::kFLOAT32, 0, 0.5},
                    {ArgumentType::kINT8, 3},
                    {ArgumentType::kPOINTER, floor_div(n, 2)}};
  code.maps = {{.input = 0,
                .type = DataType::kHALF,
                .extents = {m, n},
                .strides = {m},
                .box = {64, 8},
                .steps = {1, 1},
                .lower = {},
                .upper = {}}};
  code.shape_inputs = {1};
  code.checks = {{Expr::make(ExprOp::kLess, 0, m), "there is nothing"}};
  return {{"launch", make_launch(code)}};
}

PortDesc port(DataType type, Shape min, Shape max) {
  PortDesc desc;
  desc.type.dtype = type;
  desc.min = min;
  desc.opt = desc.max = max;
  return desc;
}

void run(Script& script) {
  static const Attributes valid = valid_launch();
  Attributes attributes = valid;
  for (size_t i = script.below(6); i > 0; --i) mutate(attributes, script);
  const int64_t count = script.chance(4) ? 3 : 1;
  std::vector<PortDesc> inputs = {port(DataType::kHALF, {1, 2}, {16, 2}),
                                  port(DataType::kINT64, {count}, {count})};
  const std::vector<PortDesc> outputs = {port(DataType::kFLOAT, {1, 2}, {16, 2})};
  if (script.chance(6)) inputs[script.below(2)].present = false;
  if (script.chance(6)) inputs.push_back(inputs[script.below(2)]);
  if (script.chance(12)) inputs[1].type.dtype = DataType::kINT32;
  const Candidate candidate;
  const KernelArgs args{
      .layer = "l", .candidate = &candidate, .inputs = inputs, .outputs = outputs};
  KernelLaunch launch;
  AttributeReader reader("CompiledKernel", attributes);
  reader("launch", launch);
  validate(launch);
  LaunchValues values(launch, "plugin", args);
  for (const auto* list : {&launch.grid, &launch.block})
    for (const int32_t instruction : *list) {
      try {
        (void)launch.expression(instruction).str();
      } catch (const Error&) {
      }
    }
  for (int round = 0; round < 3; ++round) {
    try {
      std::vector<Shape> shapes;
      for (const PortDesc& desc : inputs) shapes.push_back(desc.max);
      shapes[0] = {script.number(4), 2};
      values.set_shapes(shapes, std::vector<Shape>{shapes[0]});
      const std::vector<int64_t> elements = {script.number(1), script.number(2), 3};
      values.set_values(1, std::span(elements).first(static_cast<size_t>(count)));
      values.evaluate();
      values.accept();
      for (const KernelLaunch::TensorMap& map : launch.maps)
        for (const auto* numbers : {&map.extents, &map.strides, &map.lower, &map.upper})
          for (const int32_t instruction : *numbers) (void)values.value(instruction);
      uint8_t sum = 0;
      for (size_t i = 0; i < values.num_arguments(); ++i)
        sum ^= *static_cast<const uint8_t*>(values.arguments()[i]);
      (void)sum;
    } catch (const Error& error) {
      if (std::strlen(error.what()) == 0) std::abort();
    }
  }
}

}  // namespace
}  // namespace opwright::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  opwright::fuzz::Script script(data, size);
  try {
    opwright::fuzz::run(script);
  } catch (const opwright::Error& error) {
    if (std::strlen(error.what()) == 0) std::abort();
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
