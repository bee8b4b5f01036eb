#include "operators/layer_types.h"

#include <string_view>
#include <unordered_map>

#include "operators/activation.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright {

LayerType layer_type(const Layer& layer) {
  if (layer.added_as()) return *layer.added_as();
  static const std::unordered_map<std::string_view, LayerType> types = {
      {Activation::kKind, LayerType::kACTIVATION},
      {Cast::kKind, LayerType::kCAST},
      {Concatenation::kKind, LayerType::kCONCATENATION},
      {"Constant", LayerType::kCONSTANT},
      {Convolution::kKind, LayerType::kCONVOLUTION},
      {Deconvolution::kKind, LayerType::kDECONVOLUTION},
      {ElementWise::kKind, LayerType::kELEMENTWISE},
      {Fill::kKind, LayerType::kFILL},
      {Gather::kKind, LayerType::kGATHER},
      {Identity::kKind, LayerType::kIDENTITY},
      {Lrn::kKind, LayerType::kLRN},
      {MatrixMultiply::kKind, LayerType::kMATRIX_MULTIPLY},
      {Normalization::kKind, LayerType::kNORMALIZATION},
      {ParametricRelu::kKind, LayerType::kPARAMETRIC_RELU},
      {"PluginV2", LayerType::kPLUGIN_V2},
      {"PluginV3", LayerType::kPLUGIN_V3},
      {Pooling::kKind, LayerType::kPOOLING},
      {Reduce::kKind, LayerType::kREDUCE},
      {Resize::kKind, LayerType::kRESIZE},
      {Scale::kKind, LayerType::kSCALE},
      {Select::kKind, LayerType::kSELECT},
      {ShapeOf::kKind, LayerType::kSHAPE},
      {Shuffle::kKind, LayerType::kSHUFFLE},
      {Slice::kKind, LayerType::kSLICE},
      {Softmax::kKind, LayerType::kSOFTMAX},
      {TopK::kKind, LayerType::kTOPK},
      {Unary::kKind, LayerType::kUNARY},
      {"Values", LayerType::kSHAPE},
  };
  const auto found = types.find(layer.op()->kind());
  return found == types.end() ? LayerType::kPLUGIN : found->second;
}

}  // namespace opwright
