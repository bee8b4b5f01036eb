#pragma once

/// \file
/// TensorRT's name for the implementation behind its classes, which is here with the classes; see
/// NvInfer.h.

#include "NvInferRuntime.h"
