#pragma once

/// \file
/// For sources written for TensorRT: they compile with `<prefix>/include/opwright` as an include
/// path, where this file and its neighbours are found under TensorRT's names. Give it as
/// `-isystem` (as CMake does for Opwright::opwright), so that the sources' own headers with names
/// like logger.h are found first. The headers hold the plugin and runtime interfaces; networks are
/// defined and built in Python or by the `opwright` program.

#include "NvInferRuntime.h"
