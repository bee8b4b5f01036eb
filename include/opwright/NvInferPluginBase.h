#pragma once

/// \file
/// TensorRT's name for plugin_base.h; see NvInfer.h.

#include "NvInferRuntimeBase.h"
#include "plugin_base.h"
