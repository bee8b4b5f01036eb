#pragma once

/// \file
/// All plugin interfaces. The classes mirror TensorRT's public ones: same names, same qualifiers,
/// virtual methods in the same order. New methods go to the end, or into a class of a new version.

#include "plugin_base.h"
#include "plugin_quick.h"
#include "plugin_v2.h"
#include "plugin_v3.h"
