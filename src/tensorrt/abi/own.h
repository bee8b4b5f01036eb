#pragma once

#include "tensorrt/forward.h"

/// libopwright.so's function of that name. A plain call may reach TensorRT's function of the same
/// name, which calls this library in turn.
#define OPWRIGHT_OWN(name) (*::opwright::tensorrt::find<decltype(::name)>(#name))
