#pragma once

/// \file
/// TensorRT's name for types.h, logger.h and allocator.h; see NvInfer.h.

// Sources for TensorRT expect its headers to include the CUDA runtime's.
#if defined(__has_include)
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#endif
#endif

#include "allocator.h"
#include "logger.h"
#include "types.h"
