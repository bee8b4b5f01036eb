// Enumerations of layers.

#include <type_traits>
#include <unordered_map>

#include "bindings.h"
#include "operators/builtin_layers.h"

namespace opwright::python {
namespace {

struct NamedType {
  const char* name;
  LayerType type;
};
constexpr NamedType kLayerTypes[] = {
    {"CONVOLUTION", LayerType::kCONVOLUTION},
    {"CAST", LayerType::kCAST},
    {"ACTIVATION", LayerType::kACTIVATION},
    {"POOLING", LayerType::kPOOLING},
    {"LRN", LayerType::kLRN},
    {"SCALE", LayerType::kSCALE},
    {"SOFTMAX", LayerType::kSOFTMAX},
    {"DECONVOLUTION", LayerType::kDECONVOLUTION},
    {"CONCATENATION", LayerType::kCONCATENATION},
    {"ELEMENTWISE", LayerType::kELEMENTWISE},
    {"PLUGIN", LayerType::kPLUGIN},
    {"UNARY", LayerType::kUNARY},
    {"PADDING", LayerType::kPADDING},
    {"SHUFFLE", LayerType::kSHUFFLE},
    {"REDUCE", LayerType::kREDUCE},
    {"TOPK", LayerType::kTOPK},
    {"GATHER", LayerType::kGATHER},
    {"MATRIX_MULTIPLY", LayerType::kMATRIX_MULTIPLY},
    {"RAGGED_SOFTMAX", LayerType::kRAGGED_SOFTMAX},
    {"CONSTANT", LayerType::kCONSTANT},
    {"IDENTITY", LayerType::kIDENTITY},
    {"PLUGIN_V2", LayerType::kPLUGIN_V2},
    {"SLICE", LayerType::kSLICE},
    {"SHAPE", LayerType::kSHAPE},
    {"PARAMETRIC_RELU", LayerType::kPARAMETRIC_RELU},
    {"RESIZE", LayerType::kRESIZE},
    {"TRIP_LIMIT", LayerType::kTRIP_LIMIT},
    {"RECURRENCE", LayerType::kRECURRENCE},
    {"ITERATOR", LayerType::kITERATOR},
    {"LOOP_OUTPUT", LayerType::kLOOP_OUTPUT},
    {"SELECT", LayerType::kSELECT},
    {"FILL", LayerType::kFILL},
    {"QUANTIZE", LayerType::kQUANTIZE},
    {"DEQUANTIZE", LayerType::kDEQUANTIZE},
    {"CONDITION", LayerType::kCONDITION},
    {"CONDITIONAL_INPUT", LayerType::kCONDITIONAL_INPUT},
    {"CONDITIONAL_OUTPUT", LayerType::kCONDITIONAL_OUTPUT},
    {"SCATTER", LayerType::kSCATTER},
    {"EINSUM", LayerType::kEINSUM},
    {"ASSERTION", LayerType::kASSERTION},
    {"ONE_HOT", LayerType::kONE_HOT},
    {"NON_ZERO", LayerType::kNON_ZERO},
    {"GRID_SAMPLE", LayerType::kGRID_SAMPLE},
    {"NMS", LayerType::kNMS},
    {"REVERSE_SEQUENCE", LayerType::kREVERSE_SEQUENCE},
    {"NORMALIZATION", LayerType::kNORMALIZATION},
    {"PLUGIN_V3", LayerType::kPLUGIN_V3},
    {"SQUEEZE", LayerType::kSQUEEZE},
    {"UNSQUEEZE", LayerType::kUNSQUEEZE},
    {"CUMULATIVE", LayerType::kCUMULATIVE},
    {"DYNAMIC_QUANTIZE", LayerType::kDYNAMIC_QUANTIZE},
    {"ATTENTION_INPUT", LayerType::kATTENTION_INPUT},
    {"ATTENTION_OUTPUT", LayerType::kATTENTION_OUTPUT},
    {"ROTARY_EMBEDDING", LayerType::kROTARY_EMBEDDING},
    {"KV_CACHE_UPDATE", LayerType::kKVCACHE_UPDATE},
    {"MOE", LayerType::kMOE},
    {"DIST_COLLECTIVE", LayerType::kDIST_COLLECTIVE},
};

void bind_layer_type(nb::module_& m) {
  std::unordered_map<LayerType, std::string> docs = {
      {LayerType::kCONSTANT, "IConstantLayer."},
      {LayerType::kPADDING, "IPaddingLayer."},
      {LayerType::kPLUGIN, "A function plugin."},
      {LayerType::kPLUGIN_V2, "IPluginV2Layer."},
      {LayerType::kPLUGIN_V3, "IPluginV3Layer."},
      {LayerType::kSHAPE, "IShapeLayer, or what a parser computed of extents."}};
  each_layer([&]<class Op>() { docs.emplace(Op::kLayer.type, str(Op::kLayer.name, ".")); });
  nb::enum_<LayerType> bound(m, "LayerType", nb::is_arithmetic(),
                             "What a layer is: the class that it has, or why it has none.");
  for (const auto& [name, type] : kLayerTypes)
    bound.value(name, type, docs.contains(type) ? docs[type].c_str() : "Not here.");
}

/// Binds an enumeration once, however many layers have it.
template <class E>
void bind_enumeration(nb::module_& m) {
  constexpr const auto& shown = kEnumeration<E>;
  if (nb::hasattr(m, shown.name)) return;
  nb::enum_<E> bound(m, shown.name, nb::is_arithmetic(), shown.doc);
  for (const auto& each : shown.values) bound.value(each.name, each.value, each.doc);
}

}  // namespace

void bind_layer_enums(nb::module_& m) {
  bind_layer_type(m);
  bind_enumeration<CollectiveOperation>(m);  // an argument, and no property
  each_layer([&]<class Op>() {
    typename Op::Params params;
    each_shown(params, [&]<class T>(const char*, T&, auto...) {
      if constexpr (std::is_enum_v<T> && !std::is_same_v<T, DataType>) bind_enumeration<T>(m);
    });
  });
}

}  // namespace opwright::python
