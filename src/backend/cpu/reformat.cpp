#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/dnnl_kernel.h"
#include "backend/cpu/dnnl_memory.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/error.h"
#include "base/half.h"
#include "base/parallel.h"
#include "operators/movement.h"

namespace opwright {
namespace {

constexpr int64_t kGrain = 16384;  ///< elements that are worth a thread

/// The shape as [batch, channels, all other axes]. All formats keep these three apart.
Shape collapse(const Shape& shape) {
  if (shape.rank() < 3) return {1, 1, shape.numel()};
  return {shape[0], shape[1], shape.numel(2, shape.rank())};
}

/// A type of the same size as `type` that oneDNN moves where bits are only moved, or `type` itself.
DataType carrier(DataType type) {
  switch (type) {
    case DataType::kUINT8:
    case DataType::kBOOL:
    case DataType::kFP8:
    case DataType::kE8M0:
      return DataType::kINT8;
    default:
      return type;
  }
}

/// Whether oneDNN's conversion is the one that the library defines: between floating types, or
/// none.
bool is_dnnl_conversion(DataType from, DataType to) {
  const auto is_float = [](DataType type) {
    return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
  };
  if (is_float(from) && is_float(to)) return true;
  return from == to && from != DataType::kINT64 && bits(from) >= 8;
}

bool is_dnnl_format(TensorFormat format) {
  const FormatLayout layout = layout_of(format);
  if (layout.channels_last) return layout.block == 1;
  return layout.block == 1 || layout.block == 4 || layout.block == 16 || layout.block == 32;
}

dnnl::memory::desc collapsed_desc(const Shape& shape, const PortType& type) {
  return dnnl_desc(collapse(shape), carrier(type.dtype), type.format);
}

dnnl::reorder::primitive_desc make_desc(const Shape& shape, const PortType& from,
                                        const PortType& to) {
  return {dnnl_engine(),          collapsed_desc(shape, from),
          dnnl_engine(),          collapsed_desc(shape, to),
          workspace_attributes(), /*allow_empty=*/true};
}

class ReorderKernel final : public DnnlKernel {
 public:
  ReorderKernel(const NoParams&, const KernelArgs& args) : DnnlKernel(args) {}

 private:
  void build(DnnlProgram& program, std::span<const Shape> inputs, std::span<const Shape>) override {
    program.copy(program.input(0, collapsed_desc(inputs[0], input_type(0))),
                 program.output(0, collapsed_desc(inputs[0], output_type(0))));
    const auto desc = make_desc(inputs[0], input_type(0), output_type(0));
    program.description = desc.impl_info_str();
  }
};

/// Layout of an image. Channel c at spatial position s lies at (c / block) * block_stride + s *
/// stride + c % block.
struct ImageLayout {
  int64_t block, block_stride, stride, size;
};

ImageLayout image_layout(TensorFormat format, int64_t channels, int64_t spatial) {
  const FormatLayout layout = layout_of(format);
  const int64_t padded = (channels + layout.block - 1) / layout.block * layout.block;
  if (layout.channels_last) return {padded, 0, padded, padded * spatial};
  return {layout.block, layout.block * spatial, layout.block, padded * spatial};
}

template <class T>
void relayout(const T* from, const ImageLayout& in, T* to, const ImageLayout& out, const Shape& s) {
  constexpr int64_t kTile = 64;
  const int64_t channels = s[1], spatial = s[2];
  const int64_t blocks = out.size / (spatial * out.block), tiles = (spatial + kTile - 1) / kTile;
  const int64_t grain = kGrain / (kTile * out.block) + 1;
  parallel_for(s[0] * blocks * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % tiles * kTile, last = std::min(first + kTile, spatial);
      const int64_t block = task / tiles % blocks, image = task / tiles / blocks;
      const int64_t first_channel = block * out.block;
      const int64_t valid = std::min(out.block, channels - first_channel);
      const T* source = from + image * in.size;
      T* target = to + image * out.size + block * out.block_stride;
      for (int64_t position = first; position < last; ++position) {
        T* row = target + position * out.stride;
        for (int64_t i = 0; i < valid; ++i) {
          const int64_t channel = first_channel + i;
          row[i] = source[channel / in.block * in.block_stride + position * in.stride +
                          channel % in.block];
        }
        for (int64_t i = valid; i < out.block; ++i) row[i] = T{0};
      }
    }
  });
}

/// Reformats any type and format to any other: converts all elements, then moves them.
class LoopKernel final : public Kernel {
 public:
  explicit LoopKernel(const KernelArgs& args)
      : from_(args.candidate->inputs[0]),
        to_(args.candidate->outputs[0]),
        scale_(args.inputs[0].scale) {
    planned_ = workspace_for(args.inputs[0].max);
  }

  size_t workspace_size() const override { return planned_; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    elements_ = 0;
    require_countable(inputs);
    shape_ = collapse(inputs[0]);
    const int64_t elements = shape_.numel() == 0 ? 0 : stored_elements(shape_, from_.format);
    const size_t needed = workspace_for(inputs[0]);
    own_.resize(needed > planned_ ? needed : 0);
    elements_ = elements;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    if (elements_ == 0) return;
    const void* source = inputs[0];
    if (from_.dtype != to_.dtype) {
      void* converted = moves() ? (own_.empty() ? workspace : own_.data()) : outputs[0];
      convert_all(inputs[0], converted);
      source = converted;
    }
    if (source == outputs[0]) return;
    if (bits(to_.dtype) < 8 || !moves()) {
      std::memcpy(outputs[0], source, bytes_of(to_.dtype, elements_));
      return;
    }
    switch (bits(to_.dtype)) {
      case 8:
        return move<uint8_t>(source, outputs[0]);
      case 16:
        return move<uint16_t>(source, outputs[0]);
      case 32:
        return move<uint32_t>(source, outputs[0]);
      default:
        return move<uint64_t>(source, outputs[0]);
    }
  }

  std::string description() const override { return "loop"; }

 private:
  bool moves() const { return from_.format != to_.format; }

  static int64_t stored_elements(const Shape& collapsed, TensorFormat format) {
    return collapsed[0] * image_layout(format, collapsed[1], collapsed[2]).size;
  }

  size_t workspace_for(const Shape& shape) const {
    if (from_.dtype == to_.dtype || !moves() || shape.numel() == 0) return 0;
    return bytes_of(to_.dtype, stored_elements(collapse(shape), from_.format));
  }

  void convert_all(const void* from, void* to) const {
    const int64_t from_size = bits(from_.dtype) / 8, to_size = bits(to_.dtype) / 8;
    parallel_for(elements_, kGrain, [&](int64_t begin, int64_t end) {
      convert(static_cast<const std::byte*>(from) + begin * from_size, from_.dtype,
              static_cast<std::byte*>(to) + begin * to_size, to_.dtype, end - begin, scale_);
    });
  }

  template <class T>
  void move(const void* from, void* to) const {
    relayout(static_cast<const T*>(from), image_layout(from_.format, shape_[1], shape_[2]),
             static_cast<T*>(to), image_layout(to_.format, shape_[1], shape_[2]), shape_);
  }

  PortType from_, to_;
  float scale_;
  Shape shape_;
  int64_t elements_ = 0;  ///< elements of the input, padding included
  size_t planned_ = 0;
  std::vector<std::byte> own_;  ///< workspace for shapes beyond the planned ones
};

/// Whether oneDNN has a fast reorder for this.
bool use_dnnl(const PortDesc& port, const PortType& from, const PortType& to) {
  if (!is_dnnl_conversion(from.dtype, to.dtype)) return false;
  if (!is_dnnl_format(from.format) || !is_dnnl_format(to.format)) return false;
  for (const Shape& each : {port.opt, port.max})
    for (const int64_t extent : collapse(each))
      if (!fits_dnnl(extent)) return false;
  const Shape& shape = port.opt;
  if (shape.numel() == 0) return true;
  const auto desc = make_desc(shape, from, to);
  if (!desc) return false;
  const std::string_view implementation = desc.impl_info_str();
  // oneDNN's "simple" reorders move quickly and convert slowly.
  if (from.dtype != to.dtype && is_reference(implementation)) return false;
  return !implementation.starts_with("ref");
}

/// Types without a conversion on the CPU are only moved, and 4-bit types are only copied.
bool is_possible(const PortType& from, const PortType& to) {
  if (from == to) return true;
  if (from.dtype == to.dtype) return kWholeBytes.has(from.dtype);
  return kConvertible.has(from.dtype) && kConvertible.has(to.dtype);
}

/// The single candidate from the query's input type and format to those of its output.
std::vector<Candidate> reformat_candidates(const Operator&, const CandidateQuery& query) {
  const PortType from = query.inputs[0].type, to = query.outputs[0].type;
  if (!is_possible(from, to)) return {};
  const bool dnnl = use_dnnl(query.inputs[0], from, to);
  return {{{from}, {to}, 0, dnnl ? std::string(kDnnlTactic) : "loop"}};
}

std::vector<std::string> reformat_tactics() { return {std::string(kDnnlTactic), "loop"}; }

std::unique_ptr<Kernel> make_reformat(const Operator& op, const KernelArgs& args) {
  if (use_dnnl(args.inputs[0], args.candidate->inputs[0], args.candidate->outputs[0]))
    return make_dnnl_kernel<ReorderKernel, Reformat>(op, args);
  return std::make_unique<LoopKernel>(args);
}

void check_reformat(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  const PortDesc &from = args.inputs[0], &to = args.outputs[0];
  rules.require_that(is_possible(from.type, to.type), "the CPU cannot convert from ",
                     str(from.type), " to ", str(to.type));
  rules.require_that(has_shape_of(from, to), "output 0 must have the shape of input 0, ", from.max,
                     ", but has ", to.max);
}

const RegisteredKernels<Reformat> kReformatKernels({reformat_candidates, make_reformat,
                                                    check_reformat, -1, -1, reformat_tactics});

}  // namespace
}  // namespace opwright
