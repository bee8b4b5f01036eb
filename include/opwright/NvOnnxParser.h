#pragma once

/// \file
/// TensorRT's name for onnx_parser.h; see NvInfer.h.

#include "NvInfer.h"
#include "onnx_parser.h"
#include "onnx_refitter.h"

#define NV_ONNX_PARSER_MAJOR NV_TENSORRT_MAJOR
#define NV_ONNX_PARSER_MINOR NV_TENSORRT_MINOR
#define NV_ONNX_PARSER_PATCH NV_TENSORRT_PATCH
#define NV_ONNX_PARSER_VERSION NV_TENSORRT_VERSION
