// The binary interface: values of enumerators, layout of structures, places of virtual methods. The
// numbers are those of TensorRT 10's public headers.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "NvInferPlugin.h"

namespace {

using namespace nvinfer1;

TEST(Abi, Enumerators) {
  EXPECT_EQ(static_cast<int>(DataType::kFLOAT), 0);
  EXPECT_EQ(static_cast<int>(DataType::kHALF), 1);
  EXPECT_EQ(static_cast<int>(DataType::kINT8), 2);
  EXPECT_EQ(static_cast<int>(DataType::kINT32), 3);
  EXPECT_EQ(static_cast<int>(DataType::kBOOL), 4);
  EXPECT_EQ(static_cast<int>(DataType::kUINT8), 5);
  EXPECT_EQ(static_cast<int>(DataType::kFP8), 6);
  EXPECT_EQ(static_cast<int>(DataType::kBF16), 7);
  EXPECT_EQ(static_cast<int>(DataType::kINT64), 8);
  EXPECT_EQ(static_cast<int>(DataType::kINT4), 9);
  EXPECT_EQ(static_cast<int>(DataType::kFP4), 10);
  EXPECT_EQ(static_cast<int>(DataType::kE8M0), 11);
  EXPECT_EQ(EnumMax<DataType>(), 12);

  EXPECT_EQ(static_cast<int>(TensorFormat::kLINEAR), 0);
  EXPECT_EQ(static_cast<int>(TensorFormat::kCHW2), 1);
  EXPECT_EQ(static_cast<int>(TensorFormat::kHWC8), 2);
  EXPECT_EQ(static_cast<int>(TensorFormat::kCHW4), 3);
  EXPECT_EQ(static_cast<int>(TensorFormat::kCHW16), 4);
  EXPECT_EQ(static_cast<int>(TensorFormat::kCHW32), 5);
  EXPECT_EQ(static_cast<int>(TensorFormat::kDHWC8), 6);
  EXPECT_EQ(static_cast<int>(TensorFormat::kCDHW32), 7);
  EXPECT_EQ(static_cast<int>(TensorFormat::kHWC), 8);
  EXPECT_EQ(static_cast<int>(TensorFormat::kHWC16), 11);
  EXPECT_EQ(static_cast<int>(TensorFormat::kDHWC), 12);

  EXPECT_EQ(static_cast<int>(PluginFieldType::kFLOAT16), 0);
  EXPECT_EQ(static_cast<int>(PluginFieldType::kFLOAT32), 1);
  EXPECT_EQ(static_cast<int>(PluginFieldType::kFLOAT64), 2);
  EXPECT_EQ(static_cast<int>(PluginFieldType::kINT8), 3);
  EXPECT_EQ(static_cast<int>(PluginFieldType::kINT32), 5);
  EXPECT_EQ(static_cast<int>(PluginFieldType::kCHAR), 6);
  EXPECT_EQ(static_cast<int>(PluginFieldType::kDIMS), 7);
  EXPECT_EQ(static_cast<int>(PluginFieldType::kUNKNOWN), 8);
  EXPECT_EQ(static_cast<int>(PluginFieldType::kINT64), 10);

  EXPECT_EQ(static_cast<int>(DimensionOperation::kSUB), 4);
  EXPECT_EQ(static_cast<int>(DimensionOperation::kFLOOR_DIV), 7);
  EXPECT_EQ(static_cast<int>(DimensionOperation::kCEIL_DIV), 8);
  EXPECT_EQ(static_cast<int>(ProfilingVerbosity::kNONE), 1);
  EXPECT_EQ(static_cast<int>(ProfilingVerbosity::kDETAILED), 2);
  EXPECT_EQ(static_cast<int>(ILogger::Severity::kINTERNAL_ERROR), 0);
  EXPECT_EQ(static_cast<int>(ILogger::Severity::kVERBOSE), 4);
  EXPECT_EQ(static_cast<int>(ErrorCode::kFAILED_EXECUTION), 7);
}

static_assert(sizeof(Dims) == 72 && offsetof(Dims, nbDims) == 0 && offsetof(Dims, d) == 8, "");
static_assert(sizeof(Weights) == 24 && offsetof(Weights, values) == 8, "");
static_assert(sizeof(PluginTensorDesc) == 88 && offsetof(PluginTensorDesc, type) == 72 &&
                  offsetof(PluginTensorDesc, format) == 76 &&
                  offsetof(PluginTensorDesc, scale) == 80,
              "");
static_assert(sizeof(DynamicPluginTensorDesc) == 304 &&
                  offsetof(DynamicPluginTensorDesc, min) == 88 &&
                  offsetof(DynamicPluginTensorDesc, max) == 160 &&
                  offsetof(DynamicPluginTensorDesc, opt) == 232,
              "");
static_assert(sizeof(PluginField) == 24 && offsetof(PluginField, data) == 8 &&
                  offsetof(PluginField, type) == 16 && offsetof(PluginField, length) == 20,
              "");
static_assert(sizeof(PluginFieldCollection) == 16 && offsetof(PluginFieldCollection, fields) == 8,
              "");
static_assert(sizeof(DimsExprs) == 72 && offsetof(DimsExprs, d) == 8, "");
static_assert(sizeof(InterfaceInfo) == 16 && offsetof(InterfaceInfo, minor) == 12, "");
static_assert(sizeof(IDimensionExpr) == 16 && sizeof(IExprBuilder) == 16, "");

TEST(Abi, DimsHelpers) {
  Dims4 const d(1, 2, 3, 4);
  EXPECT_EQ(d.nbDims, 4);
  EXPECT_EQ(d.d[0], 1);
  EXPECT_EQ(d.d[3], 4);
  DimsHW hw(5, 7);
  hw.w() = 9;
  EXPECT_EQ(hw.nbDims, 2);
  EXPECT_EQ(hw.h(), 5);
  EXPECT_EQ(hw.d[1], 9);
  EXPECT_EQ(Dims3(1, 2, 3).d[2], 3);
}

/// The index of a virtual method in its class's table. In the Itanium C++ ABI a pointer to one
/// holds the offset in the table, marked by its lowest bit or, on Arm, by the next word's.
template <typename Method>
std::ptrdiff_t slot(Method method) {
  std::ptrdiff_t words[2];
  static_assert(sizeof(method) == sizeof(words), "");
  std::memcpy(words, &method, sizeof(words));
  return (words[0] & ~std::ptrdiff_t{1}) / static_cast<std::ptrdiff_t>(sizeof(void*));
}

TEST(Abi, VersionedInterface) {
  EXPECT_EQ(slot(&IVersionedInterface::getAPILanguage), 0);
  EXPECT_EQ(slot(&IVersionedInterface::getInterfaceInfo), 1);  // 2 and 3: destructors.
}

TEST(Abi, PluginV3) {
  EXPECT_EQ(slot(&IPluginV3::getCapabilityInterface), 4);
  EXPECT_EQ(slot(&IPluginV3::clone), 5);

  EXPECT_EQ(slot(&IPluginV3OneCore::getPluginName), 4);
  EXPECT_EQ(slot(&IPluginV3OneCore::getPluginVersion), 5);
  EXPECT_EQ(slot(&IPluginV3OneCore::getPluginNamespace), 6);

  EXPECT_EQ(slot(&IPluginV3OneBuild::configurePlugin), 4);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getOutputDataTypes), 5);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getOutputShapes), 6);
  EXPECT_EQ(slot(&IPluginV3OneBuild::supportsFormatCombination), 7);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getNbOutputs), 8);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getWorkspaceSize), 9);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getValidTactics), 10);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getNbTactics), 11);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getTimingCacheID), 12);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getFormatCombinationLimit), 13);
  EXPECT_EQ(slot(&IPluginV3OneBuild::getMetadataString), 14);
  EXPECT_EQ(slot(&IPluginV3OneBuildV2::getAliasedInput), 15);

  EXPECT_EQ(slot(&IPluginV3OneRuntime::setTactic), 4);
  EXPECT_EQ(slot(&IPluginV3OneRuntime::onShapeChange), 5);
  EXPECT_EQ(slot(&IPluginV3OneRuntime::enqueue), 6);
  EXPECT_EQ(slot(&IPluginV3OneRuntime::attachToContext), 7);
  EXPECT_EQ(slot(&IPluginV3OneRuntime::getFieldsToSerialize), 8);

  EXPECT_EQ(slot(&IPluginCreatorV3One::createPlugin), 4);
  EXPECT_EQ(slot(&IPluginCreatorV3One::getFieldNames), 5);
  EXPECT_EQ(slot(&IPluginCreatorV3One::getPluginName), 6);
  EXPECT_EQ(slot(&IPluginCreatorV3One::getPluginVersion), 7);
  EXPECT_EQ(slot(&IPluginCreatorV3One::getPluginNamespace), 8);
}

TEST(Abi, PluginV2) {
  EXPECT_EQ(slot(&IPluginV2::getTensorRTVersion), 0);
  EXPECT_EQ(slot(&IPluginV2::getPluginType), 1);
  EXPECT_EQ(slot(&IPluginV2::getNbOutputs), 3);
  EXPECT_EQ(slot(&IPluginV2::initialize), 7);
  EXPECT_EQ(slot(&IPluginV2::terminate), 8);
  EXPECT_EQ(slot(&IPluginV2::getSerializationSize), 11);
  EXPECT_EQ(slot(&IPluginV2::serialize), 12);
  EXPECT_EQ(slot(&IPluginV2::destroy), 13);
  EXPECT_EQ(slot(&IPluginV2::clone), 14);
  EXPECT_EQ(slot(&IPluginV2::setPluginNamespace), 15);
  EXPECT_EQ(slot(&IPluginV2::getPluginNamespace), 16);
  EXPECT_EQ(slot(&IPluginV2Ext::getOutputDataType), 19);
  EXPECT_EQ(slot(&IPluginV2Ext::attachToContext), 23);
  EXPECT_EQ(slot(&IPluginV2Ext::detachFromContext), 24);
  using V2 = IPluginV2DynamicExt;
  EXPECT_EQ(slot(static_cast<DimsExprs (V2::*)(int32_t, DimsExprs const*, int32_t, IExprBuilder&)>(
                &V2::getOutputDimensions)),
            25);
  EXPECT_EQ(slot(&V2::supportsFormatCombination), 26);
  EXPECT_EQ(slot(static_cast<void (V2::*)(DynamicPluginTensorDesc const*, int32_t,
                                          DynamicPluginTensorDesc const*, int32_t)>(
                &V2::configurePlugin)),
            27);
  EXPECT_EQ(
      slot(static_cast<size_t (V2::*)(PluginTensorDesc const*, int32_t, PluginTensorDesc const*,
                                      int32_t) const>(&V2::getWorkspaceSize)),
      28);
  EXPECT_EQ(
      slot(static_cast<int32_t (V2::*)(PluginTensorDesc const*, PluginTensorDesc const*,
                                       void const* const*, void* const*, void*, cudaStream_t)>(
          &V2::enqueue)),
      29);

  EXPECT_EQ(slot(&IPluginCreator::getPluginName), 4);
  EXPECT_EQ(slot(&IPluginCreator::getFieldNames), 6);
  EXPECT_EQ(slot(&IPluginCreator::createPlugin), 7);
  EXPECT_EQ(slot(&IPluginCreator::deserializePlugin), 8);
  EXPECT_EQ(slot(&IPluginCreator::getPluginNamespace), 10);
}

TEST(Abi, Registry) {
  using R = IPluginRegistry;
  EXPECT_EQ(slot(static_cast<bool (R::*)(IPluginCreator&, char const*)>(&R::registerCreator)), 0);
  EXPECT_EQ(slot(&R::getPluginCreatorList), 1);
  EXPECT_EQ(slot(&R::getPluginCreator), 2);  // 3 and 4: destructors.
  EXPECT_EQ(slot(&R::setErrorRecorder), 5);
  EXPECT_EQ(slot(&R::getErrorRecorder), 6);
  EXPECT_EQ(slot(static_cast<bool (R::*)(IPluginCreator const&)>(&R::deregisterCreator)), 7);
  EXPECT_EQ(slot(&R::isParentSearchEnabled), 8);
  EXPECT_EQ(slot(&R::setParentSearchEnabled), 9);
  EXPECT_EQ(slot(&R::loadLibrary), 10);
  EXPECT_EQ(slot(&R::deregisterLibrary), 11);
  EXPECT_EQ(
      slot(static_cast<bool (R::*)(IPluginCreatorInterface&, char const*)>(&R::registerCreator)),
      12);
  EXPECT_EQ(slot(&R::getAllCreators), 13);
  EXPECT_EQ(slot(&R::getCreator), 14);
  EXPECT_EQ(slot(static_cast<bool (R::*)(IPluginCreatorInterface const&)>(&R::deregisterCreator)),
            15);
  EXPECT_EQ(slot(&R::acquirePluginResource), 16);
  EXPECT_EQ(slot(&R::releasePluginResource), 17);
  EXPECT_EQ(slot(&R::getAllCreatorsRecursive), 18);
}

TEST(Abi, Callbacks) {
  EXPECT_EQ(slot(&ILogger::log), 0);
  EXPECT_EQ(slot(&IErrorRecorder::getNbErrors), 4);
  EXPECT_EQ(slot(&IErrorRecorder::reportError), 9);
  EXPECT_EQ(slot(&IErrorRecorder::decRefCount), 11);
  EXPECT_EQ(slot(&IGpuAllocator::allocate), 4);
  EXPECT_EQ(slot(&IGpuAllocator::reallocate), 5);
  EXPECT_EQ(slot(&IGpuAllocator::deallocate), 6);
  EXPECT_EQ(slot(&IGpuAllocator::allocateAsync), 7);
  EXPECT_EQ(slot(&IGpuAllocator::deallocateAsync), 8);
  EXPECT_EQ(slot(&IPluginResourceContext::getGpuAllocator), 0);
  EXPECT_EQ(slot(&IPluginResourceContext::getErrorRecorder), 1);
  EXPECT_EQ(slot(&apiv::VDimensionExpr::isConstant), 2);
  EXPECT_EQ(slot(&apiv::VDimensionExpr::isSizeTensor), 4);
  EXPECT_EQ(slot(&apiv::VExprBuilder::constant), 2);
  EXPECT_EQ(slot(&apiv::VExprBuilder::declareSizeTensor), 4);
}

}  // namespace
