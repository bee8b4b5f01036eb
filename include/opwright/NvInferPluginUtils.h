#pragma once

/// \file
/// Found by sources that include it for the plugin interfaces; see NvInfer.h. The parameter
/// structures of NVIDIA's own plugins are not in it, as those plugins are not in Opwright.

#include "NvInferRuntimePlugin.h"
