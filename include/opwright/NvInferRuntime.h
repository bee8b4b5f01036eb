#pragma once

/// \file
/// TensorRT's name for runtime.h; see NvInfer.h.

#include "NvInferRuntimeCommon.h"
#include "refitter.h"
#include "runtime.h"
