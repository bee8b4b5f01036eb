#pragma once

/// \file
/// For sources written for TensorRT: they compile with `<prefix>/include/opwright` as an include
/// path, where this file and its neighbours are found under TensorRT's names. Give it as
/// `-isystem` (as CMake does for Opwright::opwright), so that the sources' own headers with names
/// like logger.h are found first.

#include "NvInferLegacyDims.h"
#include "NvInferRuntime.h"
#include "attention_layers.h"
#include "builder.h"
#include "layers.h"
#include "network.h"
