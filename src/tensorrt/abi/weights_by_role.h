#pragma once

#include <cstdint>
#include <string>

#include "opwright/network.h"
#include "opwright/refitter.h"

/// \file
/// Names of weights that a program named neither itself nor by an ONNX file. TensorRT calls them
/// after their layer and their role, as in "conv1 KERNEL". Opwright calls them after the output of
/// a constant layer that nobody named.

namespace opwright::tensorrt {

/// Which of an engine's weights a refitter lists.
enum class Listed { kAll, kMissing };

/// Writes up to `size` of TensorRT's names to `names`, unless that is null. Returns the number of
/// weights. The names stay.
int32_t list_weights(IRefitter& refitter, Listed which, int32_t size, char const** names);

/// Opwright's name for a name of TensorRT's; other names stay.
std::string own_name_of_weights(const IRefitter& refitter, const char* name);
std::string own_name_of_weights(const INetworkDefinition& network, const char* name);

/// What `call` returns for Opwright's name of the weights of a refitter or a network.
template <class T, class F>
auto by_own_name(const T& owner, char const* name, const F& call) {
  return call(name == nullptr ? nullptr : own_name_of_weights(owner, name).c_str());
}

/// Deletes a refitter and what is kept for it. For Kind::destroy.
void destroy_refitter(void* refitter);

}  // namespace opwright::tensorrt
