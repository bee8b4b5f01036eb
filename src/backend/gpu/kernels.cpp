#include "backend/gpu/kernels.h"

#include <unordered_map>

#include "operators/bit_cast.h"
#include "operators/convolution.h"
#include "operators/indexing.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"
#include "operators/pooling.h"
#include "operators/recurrence.h"
#include "operators/reduce.h"
#include "operators/sampling.h"
#include "operators/scatter.h"
#include "operators/selection.h"
#include "operators/source.h"
#include "operators/window_reduction.h"

namespace opwright::gpu {

const KernelEntry* find_entry(std::string_view kind) {
  static const std::unordered_map<std::string_view, KernelEntry> table = {
      {BitCast::kKind, bit_cast_kernels()},
      {ChannelShuffle::kKind, channel_shuffle_kernels()},
      {Concatenation::kKind, concatenation_kernels()},
      {Convolution::kKind, convolution_kernels()},
      {Cumulative::kKind, cumulative_kernels()},
      {Deconvolution::kKind, deconvolution_kernels()},
      {DeformableColumns::kKind, deformable_columns_kernels()},
      {Determinant::kKind, determinant_kernels()},
      {Fill::kKind, fill_kernels()},
      {Gather::kKind, gather_kernels()},
      {GridSample::kKind, grid_sample_kernels()},
      {IndexedMaxPooling::kKind, indexed_max_pooling_kernels()},
      {LpPooling::kKind, lp_pooling_kernels()},
      {Lrn::kKind, lrn_kernels()},
      {MatrixMultiply::kKind, matrix_multiply_kernels()},
      {Nms::kKind, nms_kernels()},
      {NonZero::kKind, nonzero_kernels()},
      {Normalization::kKind, normalization_kernels()},
      {OneHot::kKind, one_hot_kernels()},
      {Pointwise::kKind, pointwise_kernels()},
      {Pooling::kKind, pooling_kernels()},
      {Recurrence::kKind, recurrence_kernels()},
      {Reduce::kKind, reduce_kernels()},
      {Reformat::kKind, reformat_kernels()},
      {Reshape::kKind, reshape_kernels()},
      {Resize::kKind, resize_kernels()},
      {ReverseSequence::kKind, reverse_sequence_kernels()},
      {RoiAlign::kKind, roi_align_kernels()},
      {RoiPool::kKind, roi_pool_kernels()},
      {Scatter::kKind, scatter_kernels()},
      {Slice::kKind, slice_kernels()},
      {Softmax::kKind, softmax_kernels()},
      {TopK::kKind, topk_kernels()},
      {Transpose::kKind, transpose_kernels()},
      {Unique::kKind, unique_kernels()},
  };
  const auto found = table.find(kind);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace opwright::gpu
