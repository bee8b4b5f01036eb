#pragma once

/// \file
/// For sources that include it for the plugin interfaces; see NvInfer.h. The structures are the
/// parameters of NVIDIA's own plugins. Opwright lacks these plugins, but they compile with it.

#include "NvInferRuntimePlugin.h"

namespace nvinfer1 {
namespace plugin {

/// Parameters of the plugin PriorBox_TRT. Pointers are borrowed, here and below; sizes are in
/// pixels.
struct PriorBoxParameters {
  float* minSize;
  float* maxSize;
  float* aspectRatios;
  int32_t numMinSize;       ///< Elements of minSize.
  int32_t numMaxSize;       ///< Elements of maxSize.
  int32_t numAspectRatios;  ///< Elements of aspectRatios.
  bool flip;                ///< Whether each aspect ratio counts as its inverse, too.
  bool clip;                ///< Whether boxes are cut at the image's border.
  float variance[4];
  int32_t imgH;  ///< 0: the input's.
  int32_t imgW;  ///< 0: the input's.
  float stepH;
  float stepW;
  float offset;  ///< Of a box's centre from its cell's corner, in steps.
};

/// Parameters of the plugin RPROI_TRT.
struct RPROIParams {
  int32_t poolingH;
  int32_t poolingW;
  int32_t featureStride;  ///< Pixels of the image per pixel of the features.
  int32_t preNmsTop;      ///< Boxes before the suppression.
  int32_t nmsMaxOut;      ///< Boxes after the suppression.
  int32_t anchorsRatioCount;
  int32_t anchorsScaleCount;
  float iouThreshold;
  float minBoxSize;
  float spatialScale;  ///< Factor from the image's coordinates to those of the features.
};

/// Parameters of the plugin GridAnchor_TRT, for one feature map.
struct GridAnchorParameters {
  float minSize;
  float maxSize;
  float* aspectRatios;
  int32_t numAspectRatios;  ///< Elements of aspectRatios.
  int32_t H;                ///< Height of the feature map.
  int32_t W;                ///< Width of the feature map.
  float variance[4];
};

/// Meaning of a box's four numbers.
enum class CodeTypeSSD : int32_t {
  CORNER = 0,
  CENTER_SIZE = 1,
  CORNER_SIZE = 2,
  TF_CENTER = 3,  ///< Centre and size, y before x.
};

/// Parameters of the plugin NMS_TRT of TensorRT 10 and before.
struct DetectionOutputParameters {
  bool shareLocation;  ///< Whether boxes are the same for all classes.
  bool varianceEncodedInTarget;
  int32_t backgroundLabelId;  ///< -1: there is no background.
  int32_t numClasses;
  int32_t topK;
  int32_t keepTopK;
  float confidenceThreshold;
  float nmsThreshold;
  CodeTypeSSD codeType;
  int32_t inputOrder[3];  ///< Numbers of the inputs with locations, confidences and prior boxes.
  bool confSigmoid;
  bool isNormalized;
  bool isBatchAgnostic{true};
};

/// Parameters of the plugin BatchedNMS_TRT of TensorRT 10 and before.
struct NMSParameters {
  bool shareLocation;         ///< Whether boxes are the same for all classes.
  int32_t backgroundLabelId;  ///< -1: there is no background.
  int32_t numClasses;
  int32_t topK;
  int32_t keepTopK;
  float scoreThreshold;
  float iouThreshold;
  bool isNormalized;
};

/// The classes of the plugin Region_TRT as a tree of `n` nodes in `groups` groups. The nodes of a
/// group have the same parent.
struct softmaxTree {
  int32_t* leaf;
  int32_t n;
  int32_t* parent;
  int32_t* child;
  int32_t* group;  ///< The group of each node.
  char** name;
  int32_t groups;
  int32_t* groupSize;
  int32_t* groupOffset;  ///< The first node of each group.
};

/// Parameters of the plugin Region_TRT.
struct RegionParameters {
  int32_t num;  ///< Boxes for each cell.
  int32_t coords;
  int32_t classes;
  softmaxTree* smTree;  ///< Null: the classes are no tree.
};

}  // namespace plugin
}  // namespace nvinfer1
