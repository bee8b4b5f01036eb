// Copies and fills.

#include <cstring>

#include "driver/state.h"

namespace emulation {
namespace {

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

enum Host { kNone = 0, kFrom = 1, kTo = 2, kBoth = 3 };

/// Checks the places of a copy. A device pointer argument must not be pageable host memory.
CUresult check_places(CUdeviceptr to, CUdeviceptr from, size_t bytes, Host host) {
  if (CUresult error = check_copy(to, from, bytes)) return error;
  if (!(host & kTo) && place_of(to, bytes) == Place::kPageable) return CUDA_ERROR_INVALID_VALUE;
  if (!(host & kFrom) && place_of(from, bytes) == Place::kPageable) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult copy(const char* name, CUdeviceptr to, CUdeviceptr from, size_t bytes, Host host,
              CUstream handle, bool synchronous) {
  return call(name, [&] {
    Stream* stream = find_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_legacy_use(stream)) return error;
    if (synchronous) {
      if (CUresult error = check_unsafe_call()) return error;
    }
    if (!bytes) return CUDA_SUCCESS;
    if (CUresult error = check_places(to, from, bytes, host)) return error;
    bool from_pageable = place_of(from, bytes) == Place::kPageable;
    bool to_pageable = place_of(to, bytes) == Place::kPageable;
    if (stream->capture) {
      // A copy with pageable memory waits for the stream.
      if (from_pageable || to_pageable) return check_not_captured(stream);
      return add_captured(stream, copy_node(to, from, bytes));
    }
    OperationPtr operation;
    Copy asked = make_copy(to, from, bytes);
    if (from_pageable) {
      auto source = reinterpret_cast<const char*>(from);
      std::vector<char> taken(source, source + bytes);
      operation = enqueue(stream, [asked, taken = std::move(taken)]() mutable {
        asked.from = address_of(taken.data());
        return run_copy(asked);
      });
    } else {
      operation = enqueue(stream, [asked] { return run_copy(asked); });
    }
    bool from_device = place_of(from, bytes) == Place::kDevice;
    bool to_device = place_of(to, bytes) == Place::kDevice;
    // No function waits for a copy within the device, whatever its name.
    bool waits = to_pageable || (synchronous && !(from_device && to_device));
    return waits ? wait_for(operation) : CUDA_SUCCESS;
  });
}

CUresult fill(const char* name, const CUDA_MEMSET_NODE_PARAMS& set, CUstream handle) {
  return call(name, [&] {
    Stream* stream = find_own_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_legacy_use(stream)) return error;
    if (!set.width) return CUDA_SUCCESS;
    if (CUresult error = check_set(set)) return error;
    if (stream->capture) {
      GraphNode node;
      node.type = CU_GRAPH_NODE_TYPE_MEMSET;
      node.set = set;
      return add_captured(stream, std::move(node));
    }
    enqueue(stream, [set] { return run_set(set); });
    return CUDA_SUCCESS;
  });
}

CUDA_MEMSET_NODE_PARAMS elements(CUdeviceptr to, unsigned value, unsigned size, size_t count) {
  return {to, count * size, value, size, count, 1};
}

}  // namespace

CUresult check_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  bool valid = place_of(to, bytes) != Place::kInvalid && place_of(from, bytes) != Place::kInvalid;
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_set(const CUDA_MEMSET_NODE_PARAMS& set) {
  bool size = set.elementSize == 1 || set.elementSize == 2 || set.elementSize == 4;
  if (!size || set.height != 1 || set.dst % set.elementSize) return CUDA_ERROR_INVALID_VALUE;
  Place place = place_of(set.dst, set.width * set.elementSize);
  return place == Place::kDevice || place == Place::kPinned ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
}

Copy make_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return {to, from, bytes, place_of(to, bytes), place_of(from, bytes)};
}

CUresult run_copy(const Copy& copy) {
  // The memory may have been freed since the call. Freed pinned memory would now be any host
  // memory.
  Copy present = make_copy(copy.to, copy.from, copy.bytes);
  if (present.to_place != copy.to_place || present.from_place != copy.from_place) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  OpenMemory open;
  std::memmove(reinterpret_cast<void*>(copy.to), reinterpret_cast<const void*>(copy.from),
               copy.bytes);
  return CUDA_SUCCESS;
}

CUresult run_set(const CUDA_MEMSET_NODE_PARAMS& set) {
  if (check_set(set)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  OpenMemory open;
  auto* to = reinterpret_cast<char*>(set.dst);
  for (size_t i = 0; i < set.width; ++i) {
    std::memcpy(to + i * set.elementSize, &set.value, set.elementSize);
  }
  return CUDA_SUCCESS;
}

}  // namespace emulation

using namespace emulation;

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(__func__, to, from, bytes, kBoth, nullptr, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(__func__, to, from, bytes, kBoth, stream, false);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return copy(__func__, to, address_of(from), bytes, kFrom, nullptr, true);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy(__func__, to, address_of(from), bytes, kFrom, stream, false);
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return copy(__func__, address_of(to), from, bytes, kTo, nullptr, true);
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(__func__, address_of(to), from, bytes, kTo, stream, false);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(__func__, to, from, bytes, kNone, nullptr, true);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(__func__, to, from, bytes, kNone, stream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return copy(__func__, to, from, bytes, kNone, nullptr, true);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                           CUstream stream) {
  return copy(__func__, to, from, bytes, kNone, stream, false);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  return fill(__func__, elements(to, value, 1, count), nullptr);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(__func__, elements(to, value, 1, count), stream);
}

CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) {
  return fill(__func__, elements(to, value, 2, count), nullptr);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill(__func__, elements(to, value, 2, count), stream);
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
  return fill(__func__, elements(to, value, 4, count), nullptr);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill(__func__, elements(to, value, 4, count), stream);
}

}  // extern "C"
