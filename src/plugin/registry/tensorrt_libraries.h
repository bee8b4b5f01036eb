#pragma once

#include "base/blob.h"
#include "opwright/plugin_base.h"

namespace opwright {

/// Loads Opwright's libraries for those of TensorRT's that a shared object needs, so that the
/// dynamic linker finds them by their names. Does nothing where the process has them.
/// \return the major version of TensorRT for which the object was compiled; 0 for none, and for an
/// object that was compiled with Opwright's headers.
int provide_tensorrt_libraries(const Blob& shared_object);

/// Whether a library that was compiled for that version of TensorRT, 0 for none, would get another
/// registry by getPluginRegistry() than its own: the program, or a library that it needs, has such
/// a function, and the dynamic linker takes that one first.
bool gets_another_registry(int tensorrt);

/// TensorRT's ILoggerFinder with the table of that version, which gives getLogger().
void* tensorrt_logger_finder(int major);

/// Opwright's creator for one that a library of that version exports.
IPluginCreatorInterface* tensorrt_creator(IPluginCreatorInterface* creator, int major);

}  // namespace opwright
