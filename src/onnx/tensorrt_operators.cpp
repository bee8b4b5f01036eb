// Operators of the domain `trt`, which NVIDIA's tools write for TensorRT.

#include <cctype>
#include <string>
#include <utility>

#include "onnx/importer.h"
#include "operators/dist_collective.h"
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

/// The enumerator of that name in any case; `otherwise` where the attribute is absent.
template <class E>
E enumerator(NodeImporter& node, std::string_view attribute, E otherwise) {
  const std::string given = node.get_text(attribute, "");
  if (given.empty()) return otherwise;
  std::string upper = given, names;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const auto& each : kEnumeration<E>.values) {
    if (upper == each.name) return each.value;
    names += str(names.empty() ? "" : ", ", each.name);
  }
  node.error(attribute, " is '", given, "'; expected one of ", names);
}

/// As Polygraphy's `multi-device shard` writes it. That tool gives each operation a reduction,
/// which only some operations use.
void dist_collective(NodeImporter& node) {
  DistCollectiveParams params;
  if (node.attribute("collective_operation", AttributeProto::Type::kString) == nullptr)
    node.error("there is no attribute collective_operation");
  params.op = enumerator(node, "collective_operation", params.op);
  params.reduce_op = enumerator(node, "reduce_op", ReduceOperation::kNONE);
  if (!params.reduces()) params.reduce_op = ReduceOperation::kNONE;
  params.root = node.get_int("root", -1);
  params.groups = node.get_ints("groups");
  const int64_t group_size = node.get_int("group_size", 0);
  // Without the ranks' number, a size of a group that is not listed is the size of all.
  params.num_ranks = node.get_int(
      "nb_rank",
      node.get_int("num_ranks", params.groups.empty() && group_size > 0 ? group_size : 1));
  if (!params.groups.empty() && group_size > 0 &&
      std::cmp_not_equal(params.groups.size(), group_size))
    node.error("groups has ", params.groups.size(), " ranks, and group_size is ", group_size);
  node.set_output(0, node.add<DistCollective>(std::move(params), {node.input(0)}));
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
  table["DistCollective"] = dist_collective;
}

}  // namespace opwright::onnx
