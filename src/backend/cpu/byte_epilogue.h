#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <vector>

#include "backend/cpu/dnnl_memory.h"
#include "backend/cpu/dnnl_program.h"
#include "network/operator.h"
#include "operators/fused_program.h"

namespace opwright {

/// The fused program of a convolution or product of bytes, in the form that oneDNN computes with
/// the sums: a factor and a summand of each channel, then steps. What multiplies and adds before
/// the first step is one factor and one summand, so that a result may differ from that of the
/// separate operations by some roundings of FP32.
struct ByteEpilogue {
  struct Step {
    dnnl::algorithm algorithm = dnnl::algorithm::undef;  ///< binary_add: adds a tensor
    float alpha = 0, beta = 0;
    int input = -1;  ///< the operator's input that is added
  };
  std::vector<float> scales;  ///< one, or one for each channel
  std::vector<float> bias;    ///< one for each channel
  std::vector<Step> steps;
  DataType result = DataType::kFLOAT;

  /// The attributes' part. `mask`: the axes of the channels in the weights. `added`: the layout of
  /// the result, in which tensors are added; their types are those of `inputs`.
  void append_to(dnnl::primitive_attr& attributes, int mask, const dnnl::memory::desc& added,
                 std::span<const DataType> inputs) const;
  /// The arguments but for the bias. `layout` describes the port of an added tensor of that input.
  template <class Layout>
  void add_arguments(DnnlProgram& program, std::vector<std::pair<int, Operand>>& arguments,
                     const dnnl::memory::desc& added, const Layout& layout) const {
    arguments.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales_operand(program)});
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].input < 0) continue;
      const dnnl::memory::desc port = layout(steps[i].input);
      const Operand given = program.input(steps[i].input, port);
      arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1,
                           program.as(given, with_type(added, port.get_data_type()))});
    }
  }

 private:
  Operand scales_operand(DnnlProgram& program) const;
};

/// The epilogue of a program behind sums of `channels` channels; none where oneDNN has no such
/// steps. `inputs`: the operator's, the program's last. What is no tensor of the result's shape
/// must be constant.
std::optional<ByteEpilogue> byte_epilogue(const FusedProgram& fused,
                                          std::span<const PortDesc> inputs, int64_t channels);

}  // namespace opwright
