#pragma once

#include "tensorrt/abi/slot.h"

/// \file
/// The tables of layers, from which kinds_of_layers.cpp puts the kinds together.

namespace opwright::tensorrt {

extern const Table layer_table, convolution_layer_table, activation_layer_table,
    pooling_layer_table, lrn_layer_table, scale_layer_table, soft_max_layer_table,
    concatenation_layer_table, deconvolution_layer_table, element_wise_layer_table,
    gather_layer_table, plugin_v2_layer_table, plugin_v3_layer_table, unary_layer_table,
    reduce_layer_table, padding_layer_table, shuffle_layer_table, slice_layer_table,
    shape_layer_table, top_k_layer_table, matrix_multiply_layer_table, non_zero_layer_table,
    ragged_soft_max_layer_table, identity_layer_table, cast_layer_table, constant_layer_table,
    parametric_re_lu_layer_table, resize_layer_table, loop_boundary_layer_table,
    recurrence_layer_table, loop_output_layer_table, trip_limit_layer_table, iterator_layer_table,
    loop_table, conditional_boundary_layer_table, condition_layer_table,
    conditional_input_layer_table, conditional_output_layer_table, if_conditional_table,
    attention_boundary_layer_table, attention_input_layer_table, attention_output_layer_table,
    attention_table, select_layer_table, assertion_layer_table, fill_layer_table,
    quantize_layer_table, dequantize_layer_table, dynamic_quantize_layer_table, scatter_layer_table,
    einsum_layer_table, one_hot_layer_table, grid_sample_layer_table, nms_layer_table,
    reverse_sequence_layer_table, normalization_layer_table, squeeze_layer_table,
    unsqueeze_layer_table, cumulative_layer_table, rotary_embedding_layer_table,
    kv_cache_update_layer_table, mo_e_layer_table, dist_collective_layer_table;

}  // namespace opwright::tensorrt
