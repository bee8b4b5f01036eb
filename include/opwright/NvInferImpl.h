#pragma once

/// \file
/// TensorRT's name for what lies behind its classes. Here that is with the classes; see NvInfer.h.

#include "NvInferRuntime.h"
