#include "tensorrt/abi/layer_tables.h"

namespace opwright::tensorrt {
namespace {

/// A layer that is on the border of a loop, a conditional or an attention, and other layers.
Kind on_border(const Table& border, const Table& own) { return {{&layer_table, &border, &own}}; }
Kind plain(const Table& own) { return {{&layer_table, &own}}; }

std::vector<Kind> kinds() {
  std::vector<Kind> kinds(EnumMax<LayerType>(), Kind{{&layer_table}});
  const auto set = [&](LayerType type, Kind kind) { kinds[static_cast<size_t>(type)] = kind; };
  using Type = LayerType;
  set(Type::kCONVOLUTION, plain(convolution_layer_table));
  set(Type::kCAST, plain(cast_layer_table));
  set(Type::kACTIVATION, plain(activation_layer_table));
  set(Type::kPOOLING, plain(pooling_layer_table));
  set(Type::kLRN, plain(lrn_layer_table));
  set(Type::kSCALE, plain(scale_layer_table));
  set(Type::kSOFTMAX, plain(soft_max_layer_table));
  set(Type::kDECONVOLUTION, plain(deconvolution_layer_table));
  set(Type::kCONCATENATION, plain(concatenation_layer_table));
  set(Type::kELEMENTWISE, plain(element_wise_layer_table));
  set(Type::kUNARY, plain(unary_layer_table));
  set(Type::kPADDING, plain(padding_layer_table));
  set(Type::kSHUFFLE, plain(shuffle_layer_table));
  set(Type::kREDUCE, plain(reduce_layer_table));
  set(Type::kTOPK, plain(top_k_layer_table));
  set(Type::kGATHER, plain(gather_layer_table));
  set(Type::kMATRIX_MULTIPLY, plain(matrix_multiply_layer_table));
  set(Type::kRAGGED_SOFTMAX, plain(ragged_soft_max_layer_table));
  set(Type::kCONSTANT, plain(constant_layer_table));
  set(Type::kIDENTITY, plain(identity_layer_table));
  set(Type::kPLUGIN_V2, plain(plugin_v2_layer_table));
  set(Type::kSLICE, plain(slice_layer_table));
  set(Type::kSHAPE, plain(shape_layer_table));
  set(Type::kPARAMETRIC_RELU, plain(parametric_re_lu_layer_table));
  set(Type::kRESIZE, plain(resize_layer_table));
  set(Type::kTRIP_LIMIT, on_border(loop_boundary_layer_table, trip_limit_layer_table));
  set(Type::kRECURRENCE, on_border(loop_boundary_layer_table, recurrence_layer_table));
  set(Type::kITERATOR, on_border(loop_boundary_layer_table, iterator_layer_table));
  set(Type::kLOOP_OUTPUT, on_border(loop_boundary_layer_table, loop_output_layer_table));
  set(Type::kSELECT, plain(select_layer_table));
  set(Type::kFILL, plain(fill_layer_table));
  set(Type::kQUANTIZE, plain(quantize_layer_table));
  set(Type::kDEQUANTIZE, plain(dequantize_layer_table));
  set(Type::kCONDITION, on_border(conditional_boundary_layer_table, condition_layer_table));
  set(Type::kCONDITIONAL_INPUT,
      on_border(conditional_boundary_layer_table, conditional_input_layer_table));
  set(Type::kCONDITIONAL_OUTPUT,
      on_border(conditional_boundary_layer_table, conditional_output_layer_table));
  set(Type::kSCATTER, plain(scatter_layer_table));
  set(Type::kEINSUM, plain(einsum_layer_table));
  set(Type::kASSERTION, plain(assertion_layer_table));
  set(Type::kONE_HOT, plain(one_hot_layer_table));
  set(Type::kNON_ZERO, plain(non_zero_layer_table));
  set(Type::kGRID_SAMPLE, plain(grid_sample_layer_table));
  set(Type::kNMS, plain(nms_layer_table));
  set(Type::kREVERSE_SEQUENCE, plain(reverse_sequence_layer_table));
  set(Type::kNORMALIZATION, plain(normalization_layer_table));
  set(Type::kPLUGIN_V3, plain(plugin_v3_layer_table));
  set(Type::kSQUEEZE, plain(squeeze_layer_table));
  set(Type::kUNSQUEEZE, plain(unsqueeze_layer_table));
  set(Type::kCUMULATIVE, plain(cumulative_layer_table));
  set(Type::kDYNAMIC_QUANTIZE, plain(dynamic_quantize_layer_table));
  set(Type::kATTENTION_INPUT,
      on_border(attention_boundary_layer_table, attention_input_layer_table));
  set(Type::kATTENTION_OUTPUT,
      on_border(attention_boundary_layer_table, attention_output_layer_table));
  set(Type::kROTARY_EMBEDDING, plain(rotary_embedding_layer_table));
  set(Type::kKVCACHE_UPDATE, plain(kv_cache_update_layer_table));
  set(Type::kMOE, plain(mo_e_layer_table));
  set(Type::kDIST_COLLECTIVE, plain(dist_collective_layer_table));
  return kinds;
}

}  // namespace

const Kind& kind_of(const ILayer& layer) {
  static const std::vector<Kind> all = kinds();
  return all[static_cast<size_t>(layer.getType())];
}

const Kind loop_kind = {{&loop_table}};
const Kind conditional_kind = {{&if_conditional_table}};
const Kind attention_kind = {{&attention_table}};

}  // namespace opwright::tensorrt
