#pragma once

/// \file
/// TensorRT's name for runtime.h; see NvInfer.h.

#include "NvInferRuntimeCommon.h"
#include "communicator.h"
#include "refitter.h"
#include "run_queue.h"
#include "runtime.h"
