#pragma once

#include "opwright/logger.h"
#include "opwright/plugin_v2.h"
#include "opwright/runtime_callbacks.h"

/// \file
/// Interfaces that clients implement. Nearly all of Opwright's have TensorRT's tables, so that an
/// object of a client is one of Opwright's. The others have an adapter here.

namespace opwright::tensorrt {

template <class T>
inline constexpr bool is_received = false;
template <>
inline constexpr bool is_received<ILogger> = true;
template <>
inline constexpr bool is_received<IProfiler> = true;
template <>
inline constexpr bool is_received<IPluginV2> = true;

template <class T>
concept Received = is_received<T>;

/// Adapters live as long as the process, one for each address at which a client had an object.
template <Received T>
struct Adapter {
  /// Opwright's object for a client's; null for null.
  static T* adapt(void* theirs, int major);
  /// The client's object, or for one of Opwright's own one with the table of the client's version.
  static void* original(T* ours, int major);
};

// plugin_v2.cpp
template <>
IPluginV2* Adapter<IPluginV2>::adapt(void* theirs, int major);
template <>
void* Adapter<IPluginV2>::original(IPluginV2* ours, int major);

/// An ILoggerFinder with the table of that version, which gives the process's logger.
void* logger_finder(int major);

}  // namespace opwright::tensorrt
