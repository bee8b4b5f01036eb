// The ONNX parser's classes have no implementations behind them: their own tables cross the border.

#include <utility>

#include "opwright/onnx_parser.h"
#include "tensorrt/abi/slot.h"

namespace opwright::tensorrt {
namespace {

using onnxparser::IParser;
using onnxparser::IParserRefitter;

/// TensorRT 10's list of a model's parts: indices of nodes, and whether the part is supported.
using Parts = std::vector<std::pair<std::vector<size_t>, bool>>;

bool supports_model(IParser& self, void const* model, size_t size, Parts& parts, char const* path) {
  const bool supported = self.supportsModelV2(model, size, path);
  parts.clear();
  for (int64_t i = 0; i < self.getNbSubgraphs(); ++i) {
    int64_t count = 0;
    const int64_t* const nodes = self.getSubgraphNodes(i, count);
    parts.emplace_back(std::vector<size_t>(nodes, nodes + count), self.isSubgraphSupported(i));
  }
  return supported;
}

std::vector<Slot> parser_slots() {
  std::vector<Slot> slots = {
      OPWRIGHT_SAME(IParser, parse),
      OPWRIGHT_SAME(IParser, parseFromFile),
      until_10(slot<IParser, &supports_model>("supportsModel")),
      until_10(OPWRIGHT_OTHER(
          IParser, parseWithWeightDescriptors,
          [](IParser& self, void const* model, size_t size) { return self.parse(model, size); })),
      OPWRIGHT_SAME(IParser, supportsOperator),
      OPWRIGHT_SAME(IParser, getNbErrors),
      OPWRIGHT_SAME(IParser, getError),
      OPWRIGHT_SAME(IParser, clearErrors),
  };
  for (const Slot& slot : destructor()) slots.push_back(slot);
  for (const Slot& slot : {
           OPWRIGHT_SAME(IParser, getUsedVCPluginLibraries),
           OPWRIGHT_PROPERTY(IParser, Flags),
           OPWRIGHT_SAME(IParser, clearFlag),
           OPWRIGHT_PROPERTY(IParser, Flag),
           OPWRIGHT_SAME(IParser, getLayerOutputTensor),
           OPWRIGHT_SAME(IParser, supportsModelV2),
           OPWRIGHT_SAME(IParser, getNbSubgraphs),
           OPWRIGHT_SAME(IParser, isSubgraphSupported),
           OPWRIGHT_SAME(IParser, getSubgraphNodes),
           OPWRIGHT_SAME(IParser, loadModelProto),
           OPWRIGHT_SAME(IParser, loadInitializer),
           OPWRIGHT_SAME(IParser, parseModelProto),
           OPWRIGHT_SAME(IParser, setBuilderConfig),
       })
    slots.push_back(slot);
  return slots;
}

std::vector<Slot> refitter_slots() {
  std::vector<Slot> slots = {
      OPWRIGHT_SAME(IParserRefitter, refitFromBytes), OPWRIGHT_SAME(IParserRefitter, refitFromFile),
      OPWRIGHT_SAME(IParserRefitter, getNbErrors),    OPWRIGHT_SAME(IParserRefitter, getError),
      OPWRIGHT_SAME(IParserRefitter, clearErrors),
  };
  for (const Slot& slot : destructor()) slots.push_back(slot);
  for (const Slot& slot : {
           OPWRIGHT_SAME(IParserRefitter, loadModelProto),
           OPWRIGHT_SAME(IParserRefitter, loadInitializer),
           OPWRIGHT_SAME(IParserRefitter, refitModelProto),
       })
    slots.push_back(slot);
  return slots;
}

const Table parser_table("IParser", parser_slots());
const Table parser_refitter_table("IParserRefitter", refitter_slots());

}  // namespace

const Kind parser_kind = {{&parser_table}, destroy<IParser>};
const Kind parser_refitter_kind = {{&parser_refitter_table}, destroy<IParserRefitter>};

}  // namespace opwright::tensorrt
