#pragma once

/// \file
/// TensorRT's name for version.h; see NvInfer.h.

#include "version.h"
