#include "operators/einsum.h"

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

void einsum(NodeImporter& node) {
  std::vector<Tensor*> inputs;
  for (int i = 0; i < node.num_inputs(); ++i) inputs.push_back(node.input(i));
  if (inputs.empty()) node.error("there are no inputs; expected at least one");
  node.set_output(0, write_einsum(node, node.get_text("equation", ""), inputs));
}

}  // namespace

void add_einsum(NodeTable& table) { table["Einsum"] = einsum; }

}  // namespace opwright::onnx
