#pragma once

#include <memory>
#include <vector>

#include "network/operator.h"

namespace opwright {

/// How the CPU runs the operators of one kind.
struct KernelEntry {
  /// Every way to run the operator for the query's ports; empty when there is none.
  std::vector<Candidate> (*candidates)(const Operator& op, const CandidateQuery& query);
  /// The kernel for `args.candidate`, which is one of the candidates.
  std::unique_ptr<Kernel> (*make)(const Operator& op, const KernelArgs& args);
  /// PlannedOperator::check(), where it goes beyond PortRules::require_sound(): whether `make` and
  /// the kernel can rely on what a plan says. What `candidates` lists passes.
  void (*check)(const Operator& op, const KernelArgs& args);
  /// The inputs that the kernel may have packed.
  int packed_input = -1, other_packed_input = -1;
};

// One function per kind of operator, defined in the file of that name and listed in cpu_device.cpp.
KernelEntry assertion_kernels();
KernelEntry bit_cast_kernels();
KernelEntry channel_shuffle_kernels();
KernelEntry concatenation_kernels();
KernelEntry convolution_kernels();
KernelEntry cumulative_kernels();
KernelEntry deconvolution_kernels();
KernelEntry deformable_columns_kernels();
KernelEntry determinant_kernels();
KernelEntry fill_kernels();
KernelEntry gather_kernels();
KernelEntry grid_sample_kernels();
KernelEntry indexed_max_pooling_kernels();
KernelEntry kv_cache_kernels();
KernelEntry lp_pooling_kernels();
KernelEntry lrn_kernels();
KernelEntry matrix_multiply_kernels();
KernelEntry nms_kernels();
KernelEntry nonzero_kernels();
KernelEntry normalization_kernels();
KernelEntry one_hot_kernels();
KernelEntry pointwise_kernels();
KernelEntry pooling_kernels();
KernelEntry recurrence_kernels();
KernelEntry reduce_kernels();
KernelEntry reformat_kernels();
KernelEntry reshape_kernels();
KernelEntry resize_kernels();
KernelEntry reverse_sequence_kernels();
KernelEntry roi_align_kernels();
KernelEntry roi_pool_kernels();
KernelEntry scatter_kernels();
KernelEntry slice_kernels();
KernelEntry softmax_kernels();
KernelEntry topk_kernels();
KernelEntry transpose_kernels();
KernelEntry unique_kernels();

}  // namespace opwright
