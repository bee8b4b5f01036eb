#pragma once

#include <algorithm>

#include "backend/candidates.h"
#include "backend/cpu/byte_epilogue.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/dnnl_kernel.h"
#include "backend/cpu/dnnl_post_ops.h"
#include "backend/cpu/dnnl_variant.h"
#include "backend/cpu/dnnl_weights.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/widened_product.h"
#include "base/error.h"
#include "operators/convolution.h"

/// \file
/// Code that convolution and transposed convolution share. `Traits` has the differences: the
/// operator `Op` and oneDNN's `Desc`; for a kernel tensor, the extents that oneDNN counts
/// (`weights_shape`) and the layout of its bytes in those (`plain_weights`); the implementations
/// that run bias and epilogue as steps of their own (`has_fast_epilogue`, `adds_in_parts`).
namespace opwright {

/// kIntegerLoop: a convolution of bytes, exact on any processor.
std::unique_ptr<Kernel> make_byte_loop(const ConvolutionParams& params, const KernelArgs& args);

/// Tactics of convolutions. Plans store these numbers.
enum ConvolutionTactic : int64_t {
  kFirstImplementation = 0,  ///< oneDNN's first choice, or the integer loop
  kOtherImplementation = 1,  ///< another implementation of oneDNN's for the same instructions
  kRowsOfChannels = 2,       ///< kDepthwiseRows
};

/// Computes each channel of [N, C, L] with its own taps, row by row. oneDNN would work on blocks of
/// channels.
inline constexpr std::string_view kDepthwiseRows = "depthwise rows";
bool takes_depthwise_rows(const ConvolutionParams& params, std::span<const PortDesc> inputs);
std::unique_ptr<Kernel> make_depthwise_rows(const ConvolutionParams& params,
                                            const KernelArgs& args);

inline bool is_slow_convolution(std::string_view implementation) {
  return is_reference(implementation) || implementation.find("gemm") != std::string_view::npos;
}

/// The parts of a convolution that oneDNN's primitive computes. The other parts follow as steps of
/// their own.
struct ConvolutionParts {
  ConvolutionParams params;
  bool has_bias = false;

  bool has_epilogue() const { return params.has_residual || params.activation.present(); }
  void drop_epilogue() { params.has_residual = false, params.activation = {}; }
};

template <class Desc>
struct SelectedConvolution : Selection<Desc> {
  ConvolutionParts parts;
};
/// Selects an implementation that includes bias and epilogue, or one without them where `Traits`
/// says that the first is slow or wrong with them. `select(parts)` selects an implementation for
/// these parts.
template <class Traits, class Select>
std::optional<SelectedConvolution<typename Traits::Desc>> select_convolution(ConvolutionParts parts,
                                                                             const Shape& kernel,
                                                                             const Select& select) {
  auto selected = select(parts);
  if (selected && parts.has_epilogue() && !Traits::has_fast_epilogue(selected->name)) {
    parts.drop_epilogue();
    selected = select(parts);
  }
  if (selected && (parts.has_bias || parts.has_epilogue()) &&
      Traits::adds_in_parts(selected->name, kernel)) {
    parts.drop_epilogue(), parts.has_bias = false;
    selected = select(parts);
  }
  if (!selected) return std::nullopt;
  return SelectedConvolution<typename Traits::Desc>{std::move(*selected), std::move(parts)};
}

/// Types of the kernel tensor and of the output, for an input of that type.
inline DataType weights_type(DataType input) { return kBytes.has(input) ? DataType::kINT8 : input; }
inline DataType sum_type_of(DataType input) { return kBytes.has(input) ? DataType::kINT32 : input; }

/// What becomes of the sums of a convolution of bytes.
struct ByteOutput {
  const ByteEpilogue* epilogue = nullptr;  ///< null: the sums are the result
  std::vector<DataType> inputs;            ///< types of the operator's inputs
  DataType result_of(DataType input) const {
    return epilogue != nullptr ? epilogue->result : sum_type_of(input);
  }
};
inline ByteOutput byte_output(const std::optional<ByteEpilogue>& epilogue,
                              std::span<const PortDesc> inputs) {
  ByteOutput result{epilogue ? &*epilogue : nullptr, {}};
  for (const PortDesc& port : inputs) result.inputs.push_back(port.type.dtype);
  return result;
}
/// The program's part of the convolution's epilogue; none where there is no program.
inline std::optional<ByteEpilogue> epilogue_of(const ConvolutionParams& params,
                                               std::span<const PortDesc> inputs) {
  if (!params.fused.present() || !kBytes.has(inputs[0].type.dtype)) return std::nullopt;
  return byte_epilogue(params.fused, inputs, inputs[1].opt[0]);
}

inline bool has_bias_port(const ConvolutionParams& params, std::span<const PortDesc> inputs) {
  return inputs.size() > 2 + (params.has_residual ? 1u : 0u) + params.fused.places.size() &&
         inputs[2].present;
}

template <class Traits>
class ConvolutionKernel final : public DnnlKernel {
 public:
  using Desc = typename Traits::Desc;
  ConvolutionKernel(const ConvolutionParams& params, const KernelArgs& args)
      : DnnlKernel(args),
        params_(params),
        has_bias_(has_bias_port(params, args.inputs)),
        residual_(params.has_residual ? static_cast<int>(args.inputs.size()) - 1 : -1),
        weights_(args, 1,
                 Traits::plain_weights(params, args.inputs[1].opt, args.inputs[1].type.dtype)) {
    if (has_bias_) bias_ = constant_as_float(args.inputs[2]);
    epilogue_ = epilogue_of(params, args.inputs);
    bytes_ = byte_output(epilogue_, args.inputs);
    if (kBytes.has(input_type(0).dtype)) require_byte_instructions(args);
  }

  std::vector<PackedInput> packed() const override { return weights_.packed(); }

 private:
  void build(DnnlProgram& program, std::span<const Shape> inputs,
             std::span<const Shape> outputs) override {
    // oneDNN would leave the output unwritten.
    require(inputs[0].numel() > 0 && inputs[1].numel() > 0, "Layer '", layer(),
            "': there is nothing to convolve in ", inputs[0], " with a kernel of ", inputs[1]);
    const SelectedConvolution<Desc> selected = select(inputs, outputs[0]);
    const Variant& variant = selected.variant;
    const PortType x_type = input_type(0), y_type = output_type(0);
    std::vector<std::pair<int, Operand>> arguments;
    const Operand x = program.input(0, dnnl_desc(inputs[0], x_type.dtype, x_type.format));
    arguments.push_back(
        {DNNL_ARG_SRC, program.as(x, dnnl_desc(inputs[0], variant.type, variant.input))});
    arguments.push_back(
        {DNNL_ARG_WEIGHTS,
         weights_.operand(program, Traits::plain_weights(params_, inputs[1], input_type(1).dtype),
                          selected.desc.weights_desc())});
    if (selected.parts.has_bias)
      arguments.push_back({DNNL_ARG_BIAS, bias(program, selected.desc.bias_desc())});
    if (epilogue_) {
      const Blob bias = Blob::copy(epilogue_->bias.data(), epilogue_->bias.size() * sizeof(float));
      arguments.push_back({DNNL_ARG_BIAS, program.constant(bias, selected.desc.bias_desc())});
      epilogue_->add_arguments(program, arguments, selected.desc.dst_desc(), [&](int input) {
        const PortType type = input_type(input);
        return dnnl_desc(outputs[0], type.dtype, type.format);
      });
    }
    if (params_.zero_point != 0) {
      const auto zero = static_cast<int32_t>(params_.zero_point);
      const dnnl::memory::desc desc({1}, dnnl::memory::data_type::s32, dnnl::memory::format_tag::a);
      arguments.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC,
                           program.constant(Blob::copy(&zero, sizeof(zero)), desc)});
    }
    const Operand y = program.output(0, dnnl_desc(outputs[0], y_type.dtype, y_type.format));
    const Operand result = program.staging(y, selected.desc.dst_desc());
    std::optional<Operand> residual;
    if (residual_ >= 0) {
      const PortType type = input_type(residual_);
      residual = program.input(residual_, dnnl_desc(outputs[0], type.dtype, type.format));
    }
    const bool adds_bias = has_bias_ && !selected.parts.has_bias;
    const bool adds_residual = residual && !selected.parts.params.has_residual;
    if (residual && !adds_residual) program.copy(*residual, result);
    // The residual may lie in the result's memory, so the sums need memory of their own.
    const Operand sums = adds_residual ? program.temporary(result.desc) : result;
    arguments.push_back({DNNL_ARG_DST, sums});
    program.add(selected.desc, arguments);
    const FusedActivation none;
    const FusedActivation& activation = selected.parts.has_epilogue() ? none : params_.activation;
    if (adds_bias) {
      Shape channels = outputs[0];
      for (int axis = 0; axis < channels.rank(); ++axis)
        if (axis != 1) channels[axis] = 1;
      add_sum(program, sums, bias(program, dnnl_desc(channels, DataType::kFLOAT)), sums,
              adds_residual ? none : activation);
    }
    if (adds_residual)
      add_sum(program, program.as(*residual, result.desc), sums, result, activation);
    if (!adds_bias && !adds_residual) add_activation(program, result, activation);
    program.copy(result, y);
    program.description = selected.name;
  }

  /// The bias in the layout of `wanted`.
  Operand bias(DnnlProgram& program, const dnnl::memory::desc& wanted) const {
    if (bias_) return program.constant(bias_.data(), wanted);
    return program.as(program.input(2, with_type(wanted, dnnl_type(input_type(2).dtype))), wanted);
  }

  SelectedConvolution<Desc> select(std::span<const Shape> inputs, const Shape& output) const {
    const auto search = [&](const dnnl::memory::desc* weights) {
      const auto make = [&](const ConvolutionParts& parts, const Variant& variant) {
        return Traits::make_desc(parts.params, inputs, output, parts.has_bias, variant,
                                 weights ? *weights
                                         : dnnl_any(Traits::weights_shape(params_, inputs[1]),
                                                    weights_type(variant.type)),
                                 bytes_);
      };
      return select_convolution<Traits>(
          {params_, has_bias_}, inputs[1], [&](const ConvolutionParts& parts) {
            return select_implementation<Desc>(
                input_type(0), output_type(0), candidate().tactic_name, is_slow_convolution,
                [&](const Variant& variant) { return make(parts, variant); });
          });
    };
    std::optional<SelectedConvolution<Desc>> selected;
    if (weights_.packed_desc()) selected = search(&*weights_.packed_desc());
    if (!selected || !selected->fast) {
      auto other = search(nullptr);
      if (!selected || (other && other->fast)) selected = std::move(other);
    }
    if (!selected)
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", layer(), "': oneDNN has no ",
                Traits::Op::kKind, " of ", inputs[0], " with a kernel of ", inputs[1], ".");
    return std::move(*selected);
  }

  ConvolutionParams params_;
  bool has_bias_;
  int residual_;
  DnnlWeights weights_;
  Blob bias_;  ///< FP32; empty when the bias is not a constant
  std::optional<ByteEpilogue> epilogue_;
  ByteOutput bytes_;
};

/// Ports of a candidate: constants keep the network's type, all other ports have `type`.
inline Candidate make_convolution_candidate(const ConvolutionParams& params,
                                            const CandidateQuery& query, DataType type,
                                            TensorFormat input, TensorFormat output) {
  Candidate candidate;
  for (const PortDesc& port : query.inputs)
    candidate.inputs.push_back({port.is_constant || kBytes.has(type) ? port.type.dtype : type});
  candidate.inputs[0] = {type, input};
  if (params.has_residual) candidate.inputs.back() = {type, output};
  candidate.outputs = {{sum_type_of(type), output}};
  if (!params.fused.present()) return candidate;
  candidate.outputs = {{params.fused.result, output}};
  const size_t first = query.inputs.size() - params.fused.places.size();
  for (size_t i = 0; i < params.fused.places.size(); ++i)
    if (params.fused.places[i] == static_cast<int64_t>(FusedPlace::kElement))
      candidate.inputs[first + i].format = output;
  return candidate;
}

/// Adds convolutions of bytes that every processor runs, the faster one first. They are for those
/// who want all tactics, and where there is nothing faster.
template <class Traits>
void add_slow_byte_convolutions(const ConvolutionParams& params, const CandidateQuery& query,
                                bool nothing, std::vector<Candidate>& found) {
  const auto add = [&](TensorFormat format, std::string_view tactic) {
    if (!found.empty() && !query.all_tactics) return;
    found.push_back(
        make_convolution_candidate(params, query, query.inputs[0].type.dtype, format, format));
    found.back().tactic_name = tactic;
  };
  if (Traits::kTakesBytes && !nothing && offers_widened(params.fused, query) &&
      takes_widened(params, query.inputs))
    add(TensorFormat::kHWC, kWidenedBytes);
  if (!params.fused.present()) add(TensorFormat::kLINEAR, kIntegerLoop);
}

template <class Traits>
std::vector<Candidate> convolution_candidates(const Operator& op, const CandidateQuery& query) {
  const ConvolutionParams& params = static_cast<const typename Traits::Op&>(op).params();
  const DataType given = query.inputs[0].type.dtype;
  if (!(kDnnlFloats | kBytes).has(given)) return {};
  const bool bytes = kBytes.has(given), is_fused = params.fused.present();
  if (is_fused && (!bytes || !Traits::kTakesBytes)) return {};
  const std::optional<ByteEpilogue> epilogue = epilogue_of(params, query.inputs);
  const ByteOutput byte_result = byte_output(epilogue, query.inputs);
  const std::vector<Shape> inputs = opt_shapes(query.inputs);
  const Shape output = query.outputs[0].opt;
  const bool has_bias = has_bias_port(params, query.inputs);
  const bool nothing = inputs[0].numel() == 0 || output.numel() == 0;

  constexpr TensorFormat kLinear = TensorFormat::kLINEAR;
  std::vector<std::pair<TensorFormat, TensorFormat>> formats = {{kLinear, kLinear}};
  for (const TensorFormat format : cpu_device().formats(inputs[0].rank())) {
    formats.push_back({format, format});
    // The first convolution of an image network reads few channels in the image's own format.
    if (inputs[0][1] <= 4 && params.groups == 1) formats.push_back({kLinear, format});
  }

  std::vector<Candidate> found;
  if (bytes && (nothing || !cpu_device().features().int8 || (is_fused && !epilogue))) {
    add_slow_byte_convolutions<Traits>(params, query, nothing, found);
    return found;
  }
  if (Traits::kTakesRows && !nothing && takes_depthwise_rows(params, query.inputs)) {
    found.push_back(make_convolution_candidate(params, query, given, kLinear, kLinear));
    found.back().tactic = kRowsOfChannels;
    found.back().tactic_name = kDepthwiseRows;
  }
  for (const DataType type : bytes ? std::vector{given} : offered_types(query, given)) {
    for (const auto& [input_format, output_format] : formats) {
      Candidate candidate =
          make_convolution_candidate(params, query, type, input_format, output_format);
      const PortType x = candidate.inputs[0], y = candidate.outputs[0];
      const auto make = [&](const ConvolutionParts& parts, const Variant& variant) {
        return Traits::make_desc(
            parts.params, inputs, output, parts.has_bias, variant,
            dnnl_any(Traits::weights_shape(params, inputs[1]), weights_type(variant.type)),
            byte_result);
      };
      if (nothing) {
        if (input_format == kLinear && output_format == kLinear) found.push_back(candidate);
        continue;
      }
      const ConvolutionParts all = {params, has_bias};
      const auto best =
          select_convolution<Traits>(all, inputs[1], [&](const ConvolutionParts& parts) {
            return select_implementation<typename Traits::Desc>(
                x, y, {}, is_slow_convolution,
                [&](const Variant& variant) { return make(parts, variant); });
          });
      if (!best || (!best->fast && (input_format != kLinear || output_format != kLinear))) continue;
      if (bytes && !best->fast) continue;
      candidate.tactic_name = best->name;
      found.push_back(candidate);
      if (!variant_suffix(best->variant, x, y).empty()) continue;

      // oneDNN's order is a guess, so another implementation for the same instructions is timed,
      // too.
      const std::string isa = best->name.substr(std::min(best->name.find(':'), best->name.size()));
      for_each_implementation(
          make(all, best->variant), [&](const typename Traits::Desc&, const std::string& name) {
            if (name == best->name || is_slow_convolution(name) || !name.ends_with(isa))
              return true;
            candidate.tactic = kOtherImplementation;
            candidate.tactic_name = name;
            found.push_back(candidate);
            return false;
          });
    }
  }
  if (bytes) add_slow_byte_convolutions<Traits>(params, query, nothing, found);
  return found;
}

template <class Traits>
void check_convolution(const Operator& op, const KernelArgs& args) {
  const ConvolutionParams& params = static_cast<const typename Traits::Op&>(op).params();
  const PortRules rules(op, args);
  const auto own = args.inputs.size() - std::min(args.inputs.size(), params.fused.places.size());
  rules.require_ports(2, 3 + (params.has_residual ? 1 : params.fused.places.size()));
  const PortRules::Port x = rules.input(0), y = rules.output(0);
  const bool bytes = Traits::kTakesBytes && kBytes.has(x.desc.type.dtype);
  rules.require(x, bytes ? kBytes : kDnnlFloats, kImageFormats);
  const bool is_fused = params.fused.present();
  const bool is_widened = args.candidate->tactic_name == kWidenedBytes;
  if (is_widened) {
    rules.require_that(bytes && args.packed.empty() && takes_widened(params, args.inputs),
                       "bytes are widened for constant weights, without a bias");
    rules.require_that(has_widened_formats(args.inputs, args.outputs[0]),
                       "widened bytes are HWC, or LINEAR in front of several channels");
  }
  if (is_fused) {
    rules.require_that(bytes && own >= 2 && !params.has_residual &&
                           (is_widened || epilogue_of(params, args.inputs).has_value()) &&
                           args.candidate->tactic_name != kIntegerLoop,
                       "on a CPU only convolutions of bytes run a fused program, one of scales, a "
                       "bias, activations and a residual");
    rules.require(y, {params.fused.result}, kImageFormats);
    for (size_t i = own; i < args.inputs.size(); ++i) {
      rules.require(rules.input(i), kConvertible, kImageFormats);
      if (params.fused.places[i - own] == static_cast<int64_t>(FusedPlace::kElement))
        rules.require_format(rules.input(i), {y.desc.type.format});
      else
        rules.require_format(rules.input(i), kLinear);
    }
  } else {
    rules.require(y, bytes ? Types{DataType::kINT32} : kDnnlFloats, kImageFormats);
  }
  // convolution_candidates() combines types and formats in this way.
  rules.require_that(
      (is_fused || sum_type_of(x.desc.type.dtype) == y.desc.type.dtype) &&
          (x.desc.type.format == y.desc.type.format || x.desc.type.format == TensorFormat::kLINEAR),
      "output 0 must have the type of input 0, ", str(x.desc.type),
      ", and its format unless that is LINEAR, but is ", str(y.desc.type));
  const size_t residual = params.has_residual ? rules.inputs() - 1 : own;
  if (params.has_residual) {
    rules.require_that(residual >= 2 && rules.has_input(residual), "the residual, input ", residual,
                       ", is missing");
    rules.require_same(rules.input(residual), y);
  }
  for (size_t i = 1; i < residual; ++i)
    if (rules.has_input(i))
      rules.require(rules.input(i), bytes ? Types{DataType::kINT8} : kDnnlFloats);
  rules.require_that(!bytes ||
                         (!rules.has_input(own > 2 ? 2 : own) && !params.activation.present()) ||
                         (is_fused && own == 2),
                     "convolutions of bytes take neither a bias, a residual nor an activation");
  if (args.candidate->tactic_name == kDepthwiseRows) {
    rules.require_that(Traits::kTakesRows && takes_depthwise_rows(params, args.inputs) &&
                           args.packed.empty() && y.desc.type.dtype == DataType::kFLOAT,
                       "rows are convolved where each channel has its own taps, in FP32");
    rules.require_format(x, kLinear), rules.require_format(y, kLinear);
  }
  if (args.candidate->tactic_name == kIntegerLoop) {
    rules.require_that(bytes && args.packed.empty(),
                       "the integer loop convolves bytes and packs nothing");
    rules.require_format(x, kLinear), rules.require_format(y, kLinear);
  }
}

/// The kernel of an engine that was built for instructions that this processor lacks. Null where
/// there is none for its ports.
template <class Traits>
std::unique_ptr<Kernel> make_widened_instead(const ConvolutionParams& params,
                                             const KernelArgs& given) {
  if (!Traits::kTakesBytes || !kBytes.has(given.inputs[0].type.dtype) ||
      cpu_device().features().int8 || !takes_widened(params, given.inputs) ||
      !has_widened_formats(given.inputs, given.outputs[0]))
    return nullptr;
  std::vector<PortDesc> inputs(given.inputs.begin(), given.inputs.end());
  inputs[1].constant =
      plain_constant(given, 1, dnnl_dims(Traits::weights_shape(params, inputs[1].opt)),
                     dnnl::memory::data_type::s8);
  KernelArgs args = given;
  args.inputs = inputs;
  return make_widened(params, args);
}

template <class Traits>
std::unique_ptr<Kernel> make_convolution(const Operator& op, const KernelArgs& args) {
  const ConvolutionParams& params = static_cast<const typename Traits::Op&>(op).params();
  const std::string& tactic = args.candidate->tactic_name;
  if (tactic == kIntegerLoop) return make_byte_loop(params, args);
  if (tactic == kWidenedBytes) return make_widened(params, args);
  if (tactic == kDepthwiseRows) return make_depthwise_rows(params, args);
  if (auto kernel = make_widened_instead<Traits>(params, args)) return kernel;
  return make_dnnl_kernel<ConvolutionKernel<Traits>, typename Traits::Op>(op, args);
}

template <class Traits>
std::vector<std::string> convolution_tactics() {
  std::vector<std::string> names = {std::string(kDnnlTactic)};
  if (Traits::kTakesBytes)
    names.insert(names.end(), {std::string(kWidenedBytes), std::string(kIntegerLoop)});
  if (Traits::kTakesRows) names.emplace_back(kDepthwiseRows);
  return names;
}

template <class Traits>
KernelEntry convolution_entry() {
  return {convolution_candidates<Traits>,
          make_convolution<Traits>,
          check_convolution<Traits>,
          /*packed_input=*/1,
          -1,
          convolution_tactics<Traits>};
}

}  // namespace opwright
