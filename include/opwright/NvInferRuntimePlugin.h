#pragma once

/// \file
/// TensorRT's name for plugin.h; see NvInfer.h.

#include "NvInferPluginBase.h"
#include "plugin.h"
