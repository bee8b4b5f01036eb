#include "backend/cpu/dnnl_weights.h"

#include "backend/cpu/dnnl_memory.h"
#include "base/error.h"
#include "base/half.h"

namespace opwright {
namespace {

Blob unpacked(const PackedInput& stored, const dnnl::memory::desc& row_major) {
  return Blob::make(row_major.get_size(), [&](void* bytes) {
    unpack_layout(stored.layout, row_major.get_dims(), stored.data.data(), stored.data.size(),
                  bytes);
  });
}

}  // namespace

DnnlWeights::DnnlWeights(const KernelArgs& args, int input, const dnnl::memory::desc& plain)
    : input_(input), plain_(plain), is_constant_(args.inputs[input].is_constant) {
  constant_ = args.inputs[input].constant;
  for (const PackedInput& stored : args.packed)
    if (stored.input == input) stored_ = stored;
  require(!is_constant_ || constant_ || stored_.data, "Layer '", args.layer,
          "': the weights of input ", input, " are missing from the engine; build it again.");
  require(!constant_ || constant_.size() >= plain_.get_size(), "Layer '", args.layer,
          "': the weights of input ", input, " have ", constant_.size(), " bytes instead of ",
          plain_.get_size(), ".");
}

Blob DnnlWeights::pack(const dnnl::memory::desc& wanted) const {
  const auto reordered = [&](const void* from, const dnnl::memory::desc& desc) {
    return Blob::make(wanted.get_size(),
                      [&](void* bytes) { reorder_now(from, desc, bytes, wanted); });
  };
  if (packed_desc_) return reordered(packed_.data(), *packed_desc_);
  if (constant_) return reordered(constant_.data(), plain_);

  const std::string layout = layout_text(wanted);
  if (!layout.empty() && layout == stored_.layout && stored_.data.size() == wanted.get_size())
    return stored_.data;
  // The stored weights are packed for another processor or version of oneDNN.
  const dnnl::memory::desc row_major = dense_desc(wanted.get_dims(), packed_type(stored_.layout));
  return reordered(unpacked(stored_, row_major).data(), row_major);
}

Operand DnnlWeights::operand(DnnlProgram& program, const dnnl::memory::desc& plain,
                             const dnnl::memory::desc& wanted) {
  if (!is_constant_) return program.as(program.input(input_, plain), wanted);
  if (packed_desc_ && *packed_desc_ == wanted) return program.constant(packed_.data(), wanted);
  Blob data = pack(wanted);
  if (packed_desc_) return program.constant(std::move(data), wanted);
  packed_ = std::move(data);
  packed_desc_ = wanted;
  constant_ = Blob();
  stored_ = PackedInput();
  return program.constant(packed_.data(), wanted);
}

std::vector<PackedInput> DnnlWeights::packed() const {
  const std::string layout = packed_desc_ ? layout_text(*packed_desc_) : std::string();
  if (layout.empty()) return {};
  return {{input_, packed_, layout}};
}

Blob plain_constant(const KernelArgs& args, int input, const dnnl::memory::dims& extents,
                    dnnl::memory::data_type type) {
  if (args.inputs[input].constant) return args.inputs[input].constant;
  for (const PackedInput& stored : args.packed) {
    if (stored.input != input) continue;
    require(packed_type(stored.layout) == type, "Layer '", args.layer,
            "': the packed weights of input ", input, " have another type than the input");
    return unpacked(stored, dense_desc(extents, type));
  }
  return {};
}

Blob constant_as_float(const PortDesc& port) {
  if (!port.constant) return {};
  if (port.type.dtype == DataType::kFLOAT) return port.constant;
  const int64_t count = port.opt.numel();
  return Blob::make(count * sizeof(float), [&](void* bytes) {
    convert(port.constant.data(), port.type.dtype, bytes, DataType::kFLOAT, count);
  });
}

}  // namespace opwright
