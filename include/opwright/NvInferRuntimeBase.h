#pragma once

/// \file
/// TensorRT's name for types.h, logger.h and allocator.h; see NvInfer.h.

// Sources for TensorRT count on its headers to bring the CUDA runtime's with them.
#if defined(__has_include)
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#endif
#endif

#include "allocator.h"
#include "logger.h"
#include "types.h"
