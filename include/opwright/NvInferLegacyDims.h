#pragma once

/// \file
/// TensorRT's name for a part of types.h; see NvInfer.h.

#include "NvInferRuntimeBase.h"
