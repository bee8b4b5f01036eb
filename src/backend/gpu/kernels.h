#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "network/operator.h"
#include "plugin/compiled_kernel.h"

// The names of this library are in a namespace of their own: libopwright.so exports its own
// pointwise_kernels().
namespace opwright::gpu {

/// The source for one way to run an operator, and how it is launched.
struct GeneratedKernel {
  /// Defines `extern "C" __global__ void NAME(...)`, where NAME is launch.name; needs no headers.
  std::string source;
  /// All but `object`, which the device compiles from the source.
  KernelCode launch;
};

/// How GPUs run the operators of one kind.
struct KernelEntry {
  /// Every way to run the operator for the query's ports; empty when there is none.
  std::vector<Candidate> (*candidates)(const Operator& op, const CandidateQuery& query);
  /// The code of `args.candidate`, which is one of the candidates. Nothing where it needs no code
  /// of its own (a plain copy), and null where that is so for all of them.
  std::optional<GeneratedKernel> (*generate)(const Operator& op, const KernelArgs& args);
  /// The kernel of a candidate that has no code; null where all have.
  std::unique_ptr<Kernel> (*make)(const Operator& op, const KernelArgs& args);
  /// Throws Error unless `args` are such that `make` gives the kernel, and fit it: of what a plan
  /// stores, whose attributes nothing is compiled from. Null where `make` is.
  void (*check)(const Operator& op, const KernelArgs& args) = nullptr;
};

/// Null where GPUs have no kernels for that kind of operator.
const KernelEntry* find_entry(std::string_view kind);

// One function per kind of operator, defined in the file of that name and listed in kernels.cpp.
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

}  // namespace opwright::gpu
