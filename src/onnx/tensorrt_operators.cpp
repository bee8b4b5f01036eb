// Operators of the domain `trt`, which NVIDIA's Model Optimizer writes for TensorRT.

#include "onnx/importer.h"
#include "operators/dynamic_quantization.h"
#include "operators/quantization.h"

namespace opwright::onnx {
namespace {

void quantize_blocks(NodeImporter& node, int64_t block_size, DataType to, DataType scale_type) {
  DynamicQuantizeParams params;
  Tensor* const x = node.input(0);
  params.axis = node.axis(node.get_int("axis", -1), x->rank());
  params.block_size = node.get_int("block_size", block_size);
  params.to = to, params.scale_type = scale_type;
  std::vector<Tensor*> inputs = {x};
  if (Tensor* const divisor = node.optional_input(1))
    inputs.push_back(divisor->rank() == 0 ? divisor : node.reshape(divisor, {}));
  const Layer* const layer =
      node.network().add<DynamicQuantize>(std::move(params), inputs, node.next_name());
  node.set_output(0, layer->output(0));
  node.set_output(1, layer->output(1));
}

void dequantize_blocks(NodeImporter& node) {
  Tensor *const x = node.input(0), *const scale = node.input(1);
  QuantizationParams params;
  params.to = DataType::kFLOAT;
  if (const int64_t given = node.get_int("output_dtype", 0); given != 0)
    params.to = node.element_type("output_dtype", given);
  node.set_output(0, node.add<Dequantize>(params, {x, scale}));
}

}  // namespace

void add_tensorrt(NodeTable& table) {
  table["TRT_FP4DynamicQuantize"] = [](NodeImporter& node) {
    quantize_blocks(node, 16, DataType::kFP4, DataType::kFP8);
  };
  table["TRT_MXFP8DynamicQuantize"] = [](NodeImporter& node) {
    quantize_blocks(node, 32, DataType::kFP8, DataType::kE8M0);
  };
  table["TRT_MXFP8DequantizeLinear"] = dequantize_blocks;
}

}  // namespace opwright::onnx
