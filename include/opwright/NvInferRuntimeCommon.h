#pragma once

/// \file
/// TensorRT's name for registry.h; see NvInfer.h.

#include "NvInferRuntimePlugin.h"
#include "registry.h"
