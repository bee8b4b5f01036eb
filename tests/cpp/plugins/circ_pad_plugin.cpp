// Circular padding as a plugin for the CPU, written as one would write it for TensorRT: it knows
// nothing but NvInfer.h. Field `pads` (INT32): pads[2i] and pads[2i+1] are the extents to add
// before and after dimension i, counted from the last.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "NvInfer.h"

namespace {

using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::DimsExprs;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginCapabilityType;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginFieldType;
using nvinfer1::PluginTensorDesc;
using nvinfer1::TensorFormat;

constexpr char const* kName = "circ_pad_plugin";
constexpr char const* kVersion = "1";
constexpr char const* kNamespace = "";

enum Tactic : int32_t { kElements = 1, kRows = 2 };

/// The non-negative remainder of a division by b > 0.
int64_t mod(int64_t a, int64_t b) {
  int64_t const r = a % b;
  return r < 0 ? r + b : r;
}

/// Where an output's elements come from. The dimensions are those of the two tensors.
struct Geometry {
  int32_t rank = 0;
  int64_t in[Dims::MAX_DIMS];
  int64_t out[Dims::MAX_DIMS];
  int64_t before[Dims::MAX_DIMS];
  int64_t stride[Dims::MAX_DIMS];  ///< Of the input, in elements.
  int64_t count = 0;               ///< Elements of the output.
};

/// Goes on to the next index in C order over the first `rank` dimensions of `out`.
void advance(int64_t* index, Geometry const& g, int32_t rank) {
  for (int32_t k = rank - 1; k >= 0; --k) {
    if (++index[k] < g.out[k]) return;
    index[k] = 0;
  }
}

/// The offset of the input element that an output element with this index comes from, counting the
/// first `rank` dimensions.
int64_t source_offset(int64_t const* index, Geometry const& g, int32_t rank) {
  int64_t offset = 0;
  for (int32_t k = 0; k < rank; ++k) {
    offset += mod(index[k] - g.before[k], g.in[k]) * g.stride[k];
  }
  return offset;
}

template <typename T>
void pad_elements(T const* input, T* output, Geometry const& g) {
  int64_t index[Dims::MAX_DIMS] = {};
  for (int64_t i = 0; i < g.count; ++i) {
    output[i] = input[source_offset(index, g, g.rank)];
    advance(index, g, g.rank);
  }
}

template <typename T>
void pad_rows(T const* input, T* output, Geometry const& g) {
  int32_t const last = g.rank - 1;
  int64_t const width = g.out[last];
  int64_t const period = g.in[last];
  int64_t const first = mod(-g.before[last], period);
  int64_t index[Dims::MAX_DIMS] = {};
  for (int64_t row = 0; row < g.count / width; ++row, output += width) {
    T const* const source = input + source_offset(index, g, last);
    int64_t from = first;
    for (int64_t x = 0; x < width;) {
      int64_t const n = std::min(period - from, width - x);
      std::memcpy(output + x, source + from, static_cast<size_t>(n) * sizeof(T));
      x += n;
      from = 0;
    }
    advance(index, g, last);
  }
}

template <typename T>
void pad(void const* input, void* output, Geometry const& g, int32_t tactic) {
  if (tactic == kElements || g.rank == 0) {
    pad_elements(static_cast<T const*>(input), static_cast<T*>(output), g);
  } else {
    pad_rows(static_cast<T const*>(input), static_cast<T*>(output), g);
  }
}

class CircPadPlugin final : public nvinfer1::IPluginV3,
                            public nvinfer1::IPluginV3OneCore,
                            public nvinfer1::IPluginV3OneBuild,
                            public nvinfer1::IPluginV3OneRuntime {
 public:
  explicit CircPadPlugin(std::vector<int32_t> pads) : pads_(std::move(pads)) {}
  CircPadPlugin(CircPadPlugin const& other)
      : IPluginV3(other),
        IPluginV3OneCore(other),
        IPluginV3OneBuild(other),
        IPluginV3OneRuntime(other),
        pads_(other.pads_),
        tactic_(other.tactic_),
        geometry_(other.geometry_) {}

  // IPluginV3
  nvinfer1::IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    switch (type) {
      case PluginCapabilityType::kCORE:
        return static_cast<nvinfer1::IPluginV3OneCore*>(this);
      case PluginCapabilityType::kBUILD:
        return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
      case PluginCapabilityType::kRUNTIME:
        return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
  }
  CircPadPlugin* clone() noexcept override {
    try {
      return new CircPadPlugin(*this);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  // IPluginV3OneCore
  char const* getPluginName() const noexcept override { return kName; }
  char const* getPluginVersion() const noexcept override { return kVersion; }
  char const* getPluginNamespace() const noexcept override { return kNamespace; }

  // IPluginV3OneBuild
  int32_t getNbOutputs() const noexcept override { return 1; }
  int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) noexcept override {
    return 0;
  }
  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* in_out, int32_t,
                                 int32_t) noexcept override {
    PluginTensorDesc const& desc = in_out[pos].desc;
    if (desc.format != TensorFormat::kLINEAR) return false;
    if (pos > 0) return desc.type == in_out[0].desc.type;
    return desc.type == DataType::kFLOAT || desc.type == DataType::kHALF;
  }
  int32_t getOutputDataTypes(DataType* output_types, int32_t, DataType const* input_types,
                             int32_t) const noexcept override {
    output_types[0] = input_types[0];
    return 0;
  }
  int32_t getOutputShapes(DimsExprs const* inputs, int32_t nb_inputs, DimsExprs const*, int32_t,
                          DimsExprs* outputs, int32_t nb_outputs,
                          nvinfer1::IExprBuilder& builder) noexcept override {
    int32_t const padded = static_cast<int32_t>(pads_.size() / 2);
    if (nb_inputs != 1 || nb_outputs != 1 || padded > inputs[0].nbDims) return -1;
    outputs[0] = inputs[0];
    for (int32_t i = 0; i < padded; ++i) {
      nvinfer1::IDimensionExpr const*& extent = outputs[0].d[inputs[0].nbDims - 1 - i];
      extent = builder.operation(nvinfer1::DimensionOperation::kSUM, *extent,
                                 *builder.constant(int64_t{pads_[2 * i]} + pads_[2 * i + 1]));
    }
    return 0;
  }
  int32_t getNbTactics() noexcept override { return 2; }
  int32_t getValidTactics(int32_t* tactics, int32_t nb_tactics) noexcept override {
    if (nb_tactics != 2) return -1;
    tactics[0] = kElements;
    tactics[1] = kRows;
    return 0;
  }
  // Pads matter to the time only in as far as they change the output's shape, which is known.
  char const* getTimingCacheID() noexcept override { return ""; }

  // IPluginV3OneRuntime
  int32_t setTactic(int32_t tactic) noexcept override {
    if (tactic != 0 && tactic != kElements && tactic != kRows) return -1;
    tactic_ = tactic;
    return 0;
  }
  int32_t onShapeChange(PluginTensorDesc const* in, int32_t nb_inputs, PluginTensorDesc const* out,
                        int32_t nb_outputs) noexcept override {
    if (nb_inputs != 1 || nb_outputs != 1) return -1;
    Geometry g;
    g.rank = in[0].dims.nbDims;
    if (g.rank < static_cast<int32_t>(pads_.size() / 2) || out[0].dims.nbDims != g.rank) return -1;
    int64_t stride = 1;
    g.count = 1;
    for (int32_t k = g.rank - 1; k >= 0; --k) {
      size_t const i = static_cast<size_t>(g.rank - 1 - k);
      g.in[k] = in[0].dims.d[k];
      g.out[k] = out[0].dims.d[k];
      g.before[k] = 2 * i < pads_.size() ? pads_[2 * i] : 0;
      g.stride[k] = stride;
      stride *= g.in[k];
      g.count *= g.out[k];
    }
    if (stride == 0 && g.count > 0) return -1;  // Nothing to repeat.
    geometry_ = g;
    return 0;
  }
  int32_t enqueue(PluginTensorDesc const* input_desc, PluginTensorDesc const*,
                  void const* const* inputs, void* const* outputs, void*,
                  cudaStream_t) noexcept override {
    if (geometry_.count == 0) return 0;
    if (input_desc[0].type == DataType::kFLOAT) {
      pad<uint32_t>(inputs[0], outputs[0], geometry_, tactic_);
    } else {
      pad<uint16_t>(inputs[0], outputs[0], geometry_, tactic_);
    }
    return 0;
  }
  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override {
    return clone();
  }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override {
    field_ = PluginField("pads", pads_.data(), PluginFieldType::kINT32,
                         static_cast<int32_t>(pads_.size()));
    fields_.nbFields = 1;
    fields_.fields = &field_;
    return &fields_;
  }

 private:
  std::vector<int32_t> pads_;
  int32_t tactic_ = 0;
  Geometry geometry_;
  PluginField field_;
  PluginFieldCollection fields_;
};

class CircPadPluginCreator final : public nvinfer1::IPluginCreatorV3One {
 public:
  CircPadPluginCreator() {
    fields_.nbFields = 1;
    fields_.fields = &field_;
  }

  nvinfer1::IPluginV3* createPlugin(char const*, PluginFieldCollection const* fc,
                                    nvinfer1::TensorRTPhase) noexcept override {
    for (int32_t i = 0; fc != nullptr && i < fc->nbFields; ++i) {
      PluginField const& field = fc->fields[i];
      if (std::strcmp(field.name, "pads") != 0) continue;
      if (field.type != PluginFieldType::kINT32 || field.length < 0 || field.length % 2 != 0 ||
          field.length > 2 * Dims::MAX_DIMS) {
        return nullptr;
      }
      auto const* const values = static_cast<int32_t const*>(field.data);
      if (std::any_of(values, values + field.length, [](int32_t v) { return v < 0; })) {
        return nullptr;
      }
      try {
        return new CircPadPlugin(std::vector<int32_t>(values, values + field.length));
      } catch (std::bad_alloc const&) {
        return nullptr;
      }
    }
    return nullptr;
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return &fields_; }
  char const* getPluginName() const noexcept override { return kName; }
  char const* getPluginVersion() const noexcept override { return kVersion; }
  char const* getPluginNamespace() const noexcept override { return kNamespace; }

 private:
  PluginField field_{"pads", nullptr, PluginFieldType::kINT32, 0};
  PluginFieldCollection fields_;
};

REGISTER_TENSORRT_PLUGIN(CircPadPluginCreator);

}  // namespace
