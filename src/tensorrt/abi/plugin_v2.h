#pragma once

#include "opwright/plugin.h"

/// \file
/// V2 plugins that were compiled for TensorRT 11, whose tables lack two slots of TensorRT 10's and
/// Opwright's, and the creators that make them.

namespace opwright::tensorrt {

/// Opwright's creator for a client's: the same one, or for a creator of V2 plugins one that adapts
/// its plugins. Adapters live as long as the process, and so does the code behind them.
IPluginCreatorInterface* adapted_creator(IPluginCreatorInterface* theirs, int major);
/// The client's creator for one of Opwright's.
IPluginCreatorInterface* original_creator(IPluginCreatorInterface* ours);

}  // namespace opwright::tensorrt
