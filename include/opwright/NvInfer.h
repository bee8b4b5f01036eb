#pragma once

/// \file
/// For sources written for TensorRT. They compile with `<prefix>/include/opwright` as an include
/// path, where they find this file and its neighbours under TensorRT's names. Give the path as
/// `-isystem` (as CMake does for Opwright::opwright), so that the compiler finds the sources' own
/// headers with names like logger.h first.

#include "NvInferLegacyDims.h"
#include "NvInferRuntime.h"
#include "attention_layers.h"
#include "builder.h"
#include "layers.h"
#include "network.h"
