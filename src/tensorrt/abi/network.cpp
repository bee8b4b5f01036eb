#include <algorithm>
#include <vector>

#include "tensorrt/abi/slot.h"
#include "tensorrt/abi/weights_by_role.h"

namespace opwright::tensorrt {

namespace {

/// A client's list of tensors as a list of Opwright's; null for a null list.
class Tensors {
 public:
  Tensors(ITensor* const* faces, int32_t count) : null_(faces == nullptr) {
    for (int32_t i = 0; !null_ && i < count; ++i) {
      const auto* const face = reinterpret_cast<const Facade*>(faces[i]);
      ours_.push_back(face == nullptr ? nullptr : static_cast<ITensor*>(face->object()));
    }
  }
  operator ITensor* const*() const {
    static ITensor* const none = nullptr;
    if (null_) return nullptr;
    return ours_.empty() ? &none : ours_.data();
  }

 private:
  bool null_;
  std::vector<ITensor*> ours_;
};

/// The tensor's face ends with the tensor.
Slot remove_tensor() {
  const auto run = +[](Part* part, Facade* tensor) noexcept {
    void* const ours = tensor->object();
    static_cast<INetworkDefinition*>(part->object)->removeTensor(*static_cast<ITensor*>(ours));
    part->facade->forget(ours);
  };
  return {"removeTensor", reinterpret_cast<void*>(run), &typeid(void(ITensor&))};
}

}  // namespace

const Table network_definition_table = {
    "VNetworkDefinition",
    {
        OPWRIGHT_SAME(INetworkDefinition, addInput),
        OPWRIGHT_SAME(INetworkDefinition, markOutput),
        OPWRIGHT_SAME(INetworkDefinition, addActivation),
        OPWRIGHT_SAME(INetworkDefinition, addLRN),
        OPWRIGHT_SAME(INetworkDefinition, addScale),
        OPWRIGHT_SAME(INetworkDefinition, addSoftMax),
        OPWRIGHT_OTHER(INetworkDefinition, addConcatenation,
                       [](INetworkDefinition& self, ITensor* const* inputs, int32_t count) {
                         return self.addConcatenation(Tensors(inputs, count), count);
                       }),
        OPWRIGHT_SAME(INetworkDefinition, addElementWise),
        OPWRIGHT_SAME(INetworkDefinition, addUnary),
        OPWRIGHT_SAME(INetworkDefinition, addShuffle),
        OPWRIGHT_SAME(INetworkDefinition, getNbLayers),
        OPWRIGHT_SAME(INetworkDefinition, getLayer),
        OPWRIGHT_SAME(INetworkDefinition, getNbInputs),
        OPWRIGHT_SAME(INetworkDefinition, getInput),
        OPWRIGHT_SAME(INetworkDefinition, getNbOutputs),
        OPWRIGHT_SAME(INetworkDefinition, getOutput),
        OPWRIGHT_SAME(INetworkDefinition, addReduce),
        OPWRIGHT_OTHER(INetworkDefinition, addTopK,
                       [](INetworkDefinition& self, ITensor& input, TopKOperation op, int32_t k,
                          uint32_t axes) { return self.addTopK(input, op, k, axes); }),
        OPWRIGHT_SAME(INetworkDefinition, addGather),
        OPWRIGHT_SAME(INetworkDefinition, addRaggedSoftMax),
        OPWRIGHT_SAME(INetworkDefinition, addMatrixMultiply),
        OPWRIGHT_SAME(INetworkDefinition, addConstant),
        OPWRIGHT_SAME(INetworkDefinition, addIdentity),
        remove_tensor(),
        OPWRIGHT_SAME(INetworkDefinition, unmarkOutput),
        OPWRIGHT_OTHER(
            INetworkDefinition, addPluginV2,
            [](INetworkDefinition& self, ITensor* const* inputs, int32_t count, IPluginV2& plugin) {
              return self.addPluginV2(Tensors(inputs, count), count, plugin);
            }),
        OPWRIGHT_OTHER(INetworkDefinition, addPluginV3,
                       [](INetworkDefinition& self, ITensor* const* inputs, int32_t count,
                          ITensor* const* shapes, int32_t shape_count, IPluginV3& plugin) {
                         return self.addPluginV3(Tensors(inputs, count), count,
                                                 Tensors(shapes, shape_count), shape_count, plugin);
                       }),
        OPWRIGHT_SAME(INetworkDefinition, addSlice),
        OPWRIGHT_PROPERTY(INetworkDefinition, Name),
        OPWRIGHT_SAME(INetworkDefinition, addShape),
        OPWRIGHT_SAME(INetworkDefinition, hasImplicitBatchDimension),
        OPWRIGHT_SAME(INetworkDefinition, markOutputForShapes),
        OPWRIGHT_SAME(INetworkDefinition, unmarkOutputForShapes),
        OPWRIGHT_SAME(INetworkDefinition, addParametricReLU),
        OPWRIGHT_SAME(INetworkDefinition, addConvolutionNd),
        OPWRIGHT_SAME(INetworkDefinition, addPoolingNd),
        OPWRIGHT_SAME(INetworkDefinition, addDeconvolutionNd),
        OPWRIGHT_SAME(INetworkDefinition, addScaleNd),
        OPWRIGHT_SAME(INetworkDefinition, addResize),
        OPWRIGHT_SAME(INetworkDefinition, addLoop),
        OPWRIGHT_SAME(INetworkDefinition, addSelect),
        until_10(
            OPWRIGHT_OTHER(INetworkDefinition, addFill,
                           [](INetworkDefinition& self, Dims const& dimensions, FillOperation op) {
                             return self.addFill(dimensions, op, DataType::kFLOAT);
                           })),
        OPWRIGHT_SAME(INetworkDefinition, addPaddingNd),
        OPWRIGHT_SAME(INetworkDefinition, setWeightsName),
        OPWRIGHT_PROPERTY(INetworkDefinition, ErrorRecorder),
        until_10(OPWRIGHT_OTHER(INetworkDefinition, addDequantize,
                                [](INetworkDefinition& self, ITensor& input, ITensor& scale) {
                                  return self.addDequantize(input, scale);
                                })),
        until_10(OPWRIGHT_OTHER(INetworkDefinition, addQuantize,
                                [](INetworkDefinition& self, ITensor& input, ITensor& scale) {
                                  return self.addQuantize(input, scale);
                                })),
        OPWRIGHT_SAME(INetworkDefinition, addGatherV2),
        OPWRIGHT_SAME(INetworkDefinition, addIfConditional),
        OPWRIGHT_SAME(INetworkDefinition, addScatter),
        OPWRIGHT_OTHER(INetworkDefinition, addEinsum,
                       [](INetworkDefinition& self, ITensor* const* inputs, int32_t count,
                          char const* equation) {
                         return self.addEinsum(Tensors(inputs, count), count, equation);
                       }),
        OPWRIGHT_SAME(INetworkDefinition, addAssertion),
        OPWRIGHT_SAME(INetworkDefinition, addOneHot),
        OPWRIGHT_OTHER(
            INetworkDefinition, addNonZero,
            [](INetworkDefinition& self, ITensor& input) { return self.addNonZero(input); }),
        OPWRIGHT_SAME(INetworkDefinition, addGridSample),
        OPWRIGHT_OTHER(INetworkDefinition, addNMS,
                       [](INetworkDefinition& self, ITensor& boxes, ITensor& scores,
                          ITensor& most) { return self.addNMS(boxes, scores, most); }),
        OPWRIGHT_SAME(INetworkDefinition, addReverseSequence),
        OPWRIGHT_SAME(INetworkDefinition, addNormalization),
        OPWRIGHT_SAME(INetworkDefinition, addCast),
        OPWRIGHT_SAME(INetworkDefinition, getBuilder),
        OPWRIGHT_OTHER(INetworkDefinition, getFlags,
                       [](INetworkDefinition const& self) -> Mask<NetworkDefinitionCreationFlag> {
                         return {self.getFlags()};
                       }),
        OPWRIGHT_SAME(INetworkDefinition, getFlag),
        OPWRIGHT_OTHER(INetworkDefinition, addQuantizeV2,
                       [](INetworkDefinition& self, ITensor& input, ITensor& scale, DataType type) {
                         return self.addQuantize(input, scale, type);
                       }),
        OPWRIGHT_OTHER(INetworkDefinition, addDequantizeV2,
                       [](INetworkDefinition& self, ITensor& input, ITensor& scale, DataType type) {
                         return self.addDequantize(input, scale, type);
                       }),
        OPWRIGHT_OTHER(INetworkDefinition, addFillV2,
                       [](INetworkDefinition& self, Dims const& dimensions, FillOperation op,
                          DataType type) { return self.addFill(dimensions, op, type); }),
        OPWRIGHT_SAME(INetworkDefinition, markDebug),
        OPWRIGHT_SAME(INetworkDefinition, unmarkDebug),
        OPWRIGHT_SAME(INetworkDefinition, isDebugTensor),
        OPWRIGHT_OTHER(INetworkDefinition, markWeightsRefittable,
                       [](INetworkDefinition& self, char const* name) {
                         return by_own_name(self, name, [&](char const* own) {
                           return self.markWeightsRefittable(own);
                         });
                       }),
        OPWRIGHT_OTHER(INetworkDefinition, unmarkWeightsRefittable,
                       [](INetworkDefinition& self, char const* name) {
                         return by_own_name(self, name, [&](char const* own) {
                           return self.unmarkWeightsRefittable(own);
                         });
                       }),
        OPWRIGHT_OTHER(INetworkDefinition, areWeightsMarkedRefittable,
                       [](INetworkDefinition const& self, char const* name) {
                         return by_own_name(self, name, [&](char const* own) {
                           return self.areWeightsMarkedRefittable(own);
                         });
                       }),
        OPWRIGHT_OTHER(INetworkDefinition, addSqueeze,
                       [](INetworkDefinition& self, ITensor& input, ITensor& axes) {
                         return self.addSqueeze(input, axes);
                       }),
        OPWRIGHT_SAME(INetworkDefinition, addUnsqueeze),
        OPWRIGHT_SAME(INetworkDefinition, addDynamicQuantize),
        OPWRIGHT_SAME(INetworkDefinition, addCumulative),
        OPWRIGHT_SAME(INetworkDefinition, markUnfusedTensorsAsDebugTensors),
        OPWRIGHT_SAME(INetworkDefinition, unmarkUnfusedTensorsAsDebugTensors),
        OPWRIGHT_OTHER(
            INetworkDefinition, addTopKV2,
            [](INetworkDefinition& self, ITensor& input, TopKOperation op, int32_t k, uint32_t axes,
               DataType type) { return self.addTopK(input, op, k, axes, type); }),
        OPWRIGHT_OTHER(INetworkDefinition, addNonZeroV2,
                       [](INetworkDefinition& self, ITensor& input, DataType type) {
                         return self.addNonZero(input, type);
                       }),
        OPWRIGHT_OTHER(INetworkDefinition, addNMSV2,
                       [](INetworkDefinition& self, ITensor& boxes, ITensor& scores, ITensor& most,
                          DataType type) { return self.addNMS(boxes, scores, most, type); }),
        OPWRIGHT_SAME(INetworkDefinition, addAttention),
        OPWRIGHT_SAME(INetworkDefinition, addRotaryEmbedding),
        OPWRIGHT_SAME(INetworkDefinition, addDynamicQuantizeV2),
        OPWRIGHT_SAME(INetworkDefinition, addKVCacheUpdate),
        OPWRIGHT_SAME(INetworkDefinition, addNormalizationV2),
        OPWRIGHT_SAME(INetworkDefinition, addMoE),
        OPWRIGHT_SAME(INetworkDefinition, addDistCollective),
        since_11(OPWRIGHT_SAME(INetworkDefinition, addAttentionV2)),
        since_11_4(OPWRIGHT_OTHER(INetworkDefinition, addSqueezeV2,
                                  [](INetworkDefinition& self, ITensor& input, ITensor* axes) {
                                    return self.addSqueeze(input, axes);
                                  })),
    }};

const Table tensor_table = {
    "VTensor",
    {
        OPWRIGHT_PROPERTY(ITensor, Name),
        OPWRIGHT_PROPERTY(ITensor, Dimensions),
        until_10(OPWRIGHT_SAME(ITensor, setType)),
        OPWRIGHT_SAME(ITensor, getType),
        until_10(OPWRIGHT_SAME(ITensor, setDynamicRange)),
        OPWRIGHT_SAME(ITensor, isNetworkInput),
        OPWRIGHT_SAME(ITensor, isNetworkOutput),
        OPWRIGHT_OTHER(ITensor, setBroadcastAcrossBatch, [](ITensor&, bool) {}),
        OPWRIGHT_OTHER(ITensor, getBroadcastAcrossBatch, [](ITensor const&) { return false; }),
        OPWRIGHT_OTHER(ITensor, getLocation,
                       [](ITensor const&) { return TensorLocation::kDEVICE; }),
        OPWRIGHT_OTHER(ITensor, setLocation,
                       [](ITensor&, TensorLocation location) {
                         if (location != TensorLocation::kDEVICE) lacks("ITensor::setLocation");
                       }),
        until_10(OPWRIGHT_SAME(ITensor, dynamicRangeIsSet)),
        until_10(OPWRIGHT_SAME(ITensor, resetDynamicRange)),
        until_10(OPWRIGHT_SAME(ITensor, getDynamicRangeMin)),
        until_10(OPWRIGHT_SAME(ITensor, getDynamicRangeMax)),
        OPWRIGHT_PROPERTY(ITensor, AllowedFormats),
        OPWRIGHT_SAME(ITensor, isShapeTensor),
        OPWRIGHT_SAME(ITensor, isExecutionTensor),
        OPWRIGHT_PROPERTY(ITensor, DimensionName),
    }};

const Kind network_kind = {{&network_definition_table}, destroy<INetworkDefinition>};
const Kind tensor_kind = {{&tensor_table}};

}  // namespace opwright::tensorrt
