#pragma once

/// \file
/// TensorRT's name for the declaration of initLibNvInferPlugins; see NvInfer.h.

#include "NvInfer.h"
#include "NvInferPluginUtils.h"
