#pragma once

#include "opwright/builder.h"
#include "opwright/onnx_refitter.h"
#include "opwright/refitter.h"
#include "opwright/runtime.h"
#include "tensorrt/abi/facade.h"

/// \file
/// The kinds of objects that clients hold, by Opwright's classes.

namespace opwright::tensorrt {

extern const Kind host_memory_kind, runtime_kind, engine_kind, context_kind, inspector_kind,
    serialization_config_kind, runtime_config_kind, refitter_kind;
extern const Kind builder_kind, network_kind, config_kind, profile_kind, timing_cache_kind;
extern const Kind tensor_kind, loop_kind, conditional_kind, attention_kind;
extern const Kind parser_kind, parser_refitter_kind, registry_kind;

/// The kind of a layer, which follows from its type.
const Kind& kind_of(const ILayer& layer);

inline const Kind& kind_of(const IHostMemory&) { return host_memory_kind; }
inline const Kind& kind_of(const IRuntime&) { return runtime_kind; }
inline const Kind& kind_of(const ICudaEngine&) { return engine_kind; }
inline const Kind& kind_of(const IExecutionContext&) { return context_kind; }
inline const Kind& kind_of(const IEngineInspector&) { return inspector_kind; }
inline const Kind& kind_of(const ISerializationConfig&) { return serialization_config_kind; }
inline const Kind& kind_of(const IRuntimeConfig&) { return runtime_config_kind; }
inline const Kind& kind_of(const IRefitter&) { return refitter_kind; }
inline const Kind& kind_of(const IBuilder&) { return builder_kind; }
inline const Kind& kind_of(const INetworkDefinition&) { return network_kind; }
inline const Kind& kind_of(const IBuilderConfig&) { return config_kind; }
inline const Kind& kind_of(const IOptimizationProfile&) { return profile_kind; }
inline const Kind& kind_of(const ITimingCache&) { return timing_cache_kind; }
inline const Kind& kind_of(const ITensor&) { return tensor_kind; }
inline const Kind& kind_of(const ILoop&) { return loop_kind; }
inline const Kind& kind_of(const IIfConditional&) { return conditional_kind; }
inline const Kind& kind_of(const IAttention&) { return attention_kind; }

/// For Kind::destroy.
template <class T>
void destroy(void* object) {
  delete static_cast<T*>(object);
}

}  // namespace opwright::tensorrt
