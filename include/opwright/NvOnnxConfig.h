#pragma once

/// \file
/// TensorRT's name for onnx_config.h; see NvInfer.h.

#include "NvInfer.h"
#include "onnx_config.h"
