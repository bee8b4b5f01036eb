// Device memory, pools and pinned host memory.
//
// Device memory is a range of addresses that the host may not touch. The emulator opens each
// allocation by itself while it works on them. For the whole range the system would visit every
// page that was ever used. Gaps between allocations are never accessible. An allocation ends (up to
// 256 bytes) where its last page ends, so that a kernel that overruns it faults.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "driver/state.h"

namespace emulation {
namespace {

constexpr size_t kReserved = size_t{1} << 38;
constexpr size_t kAlignment = 256;
/// Gap between allocations, larger than any kernel's tile overruns.
constexpr size_t kGap = size_t{1} << 20;
constexpr size_t kFilled = size_t{64} << 20;
constexpr int kGarbage = 0xcd;

struct Arena {
  char* begin = nullptr;
  size_t page = sysconf(_SC_PAGESIZE);
  /// Place from which the next range is searched, so that addresses are not reused soon.
  char* cursor = nullptr;
  std::map<CUdeviceptr, Allocation> live;
  std::map<CUdevice, size_t> used;
  std::map<CUdeviceptr, size_t> pinned;
  /// Entries of `pinned` that are managed memory, which is host memory that a device can access.
  std::set<CUdeviceptr> managed;
  int open = 0;

  Arena() {
    begin = static_cast<char*>(
        mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (begin == MAP_FAILED) std::abort();
    cursor = begin;
  }

  bool contains(CUdeviceptr address) const {
    return address - reinterpret_cast<CUdeviceptr>(begin) < kReserved;
  }
  size_t round(size_t bytes, size_t to) const { return (bytes + to - 1) / to * to; }
  /// The bytes of the pages of an allocation.
  size_t pages(size_t bytes) const { return round(round(bytes, kAlignment), page); }
  char* first_page(const Allocation& made) const {
    return begin + (made.address - reinterpret_cast<CUdeviceptr>(begin)) / page * page;
  }
  /// Finds a range of that length with an inaccessible gap before and behind it.
  char* find_range(size_t bytes) {
    for (int wraps = 0; wraps < 2; cursor = begin, ++wraps) {
      while (cursor + bytes + 2 * kGap <= begin + kReserved) {
        char* end = cursor + bytes + 2 * kGap;
        auto next = live.lower_bound(reinterpret_cast<CUdeviceptr>(end));
        if (next == live.begin()) return cursor + kGap;
        const Allocation& before = std::prev(next)->second;
        char* behind = first_page(before) + pages(before.bytes);
        if (behind <= cursor) return cursor + kGap;
        cursor = behind;
      }
    }
    return nullptr;
  }
};

Arena& arena() {
  static auto* arena = new Arena;
  return *arena;
}

void protect(const Arena& arena, int protection) {
  for (const auto& [address, made] : arena.live)
    mprotect(arena.first_page(made), arena.pages(made.bytes), protection);
}

CUresult allocate_now(size_t bytes, CUdeviceptr* address) {
  Arena& memory = arena();
  Context* context = current_context();
  size_t length = memory.pages(bytes);
  size_t& used = memory.used[context->device];
  if (length > state().memory_limit || used > state().memory_limit - length) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  char* range = memory.find_range(length);
  if (!range ||
      mmap(range, length, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (length <= kFilled) std::memset(range, kGarbage, length);
  mprotect(range, length, PROT_NONE);
  memory.cursor = range + length;
  used += length;
  Allocation made;
  made.address = reinterpret_cast<CUdeviceptr>(range + length) - memory.round(bytes, kAlignment);
  made.bytes = bytes;
  made.device = context->device;
  made.context = context;
  made.id = state().next_id++;
  *address = made.address;
  memory.live[made.address] = made;
  return CUDA_SUCCESS;
}

/// What CUipcMemHandle holds.
struct SharedMemory {
  uint64_t magic = 0;
  int process = 0, file = 0, device = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(SharedMemory) <= sizeof(CUipcMemHandle));
constexpr uint64_t kShared = 0x6970636d656d6f72;

/// Puts a file without a name under the pages of an allocation, with their content.
bool share(Allocation& made) {
  const Arena& memory = arena();
  const size_t length = memory.pages(made.bytes);
  const int file = memfd_create("emulated device memory", MFD_CLOEXEC);
  if (file < 0) return false;
  char* const range = memory.first_page(made);
  const OpenMemory open;
  if (ftruncate(file, static_cast<off_t>(length)) != 0 ||
      pwrite(file, range, length, 0) != static_cast<ssize_t>(length) ||
      mmap(range, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    close(file);
    return false;
  }
  made.file = file;
  return true;
}

/// Marks the allocation of a stream-ordered free, so that a second free is detected.
CUresult mark_freeing(CUdeviceptr address) {
  auto found = arena().live.find(address);
  if (found == arena().live.end() || found->second.freeing) return CUDA_ERROR_INVALID_VALUE;
  found->second.freeing = true;
  return CUDA_SUCCESS;
}

CUmemoryPool pool_of(CUdevice device) {
  return reinterpret_cast<CUmemoryPool>(&state().devices[device]);
}

CUresult find_pool(CUmemoryPool pool, CUdevice* device) {
  for (*device = 0; is_device(*device); ++*device) {
    if (pool_of(*device) == pool) return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate_pinned(void** address, size_t bytes) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = check_unsafe_call()) return error;
  if (posix_memalign(address, 4096, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  arena().pinned[reinterpret_cast<CUdeviceptr>(*address)] = bytes;
  return CUDA_SUCCESS;
}

bool is_pinned(CUdeviceptr address, size_t bytes) {
  const auto& pinned = arena().pinned;
  auto found = pinned.upper_bound(address);
  return found != pinned.begin() && address - (--found)->first < found->second &&
         bytes <= found->second - (address - found->first);
}

bool has_access(const Context& context, CUdevice device) {
  return context.device == device ||
         std::find(context.peers.begin(), context.peers.end(), device) != context.peers.end();
}

CUresult attribute_of(CUdeviceptr pointer, CUpointer_attribute attribute, void* data) {
  const Allocation* device = find_allocation(pointer);
  bool pinned = is_pinned(pointer, 1);
  if (!device && !pinned) return CUDA_ERROR_INVALID_VALUE;
  bool managed =
      pinned && arena().managed.count(std::prev(arena().pinned.upper_bound(pointer))->first);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) =
          reinterpret_cast<CUcontext>(device ? device->context : current_context());
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = device || managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (device && !has_access(*current_context(), device->device))
        return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(data) = pointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (device) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(data) = pointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = device ? device->device : current_context()->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = device ? device->id : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) =
          device ? device->address : std::prev(arena().pinned.upper_bound(pointer))->first;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) =
          device ? device->bytes : std::prev(arena().pinned.upper_bound(pointer))->second;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<bool*>(data) = managed;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<bool*>(data) = true;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

OpenMemory::OpenMemory() {
  if (arena().open++ == 0) protect(arena(), PROT_READ | PROT_WRITE);
}

OpenMemory::~OpenMemory() {
  if (--arena().open == 0) protect(arena(), PROT_NONE);
}

const Allocation* find_allocation(CUdeviceptr address) {
  const auto& live = arena().live;
  auto found = live.upper_bound(address);
  if (found == live.begin()) return nullptr;
  const Allocation& candidate = std::prev(found)->second;
  return address - candidate.address < candidate.bytes ? &candidate : nullptr;
}

Place place_of(CUdeviceptr address, size_t bytes) {
  if (arena().contains(address)) {
    const Allocation* found = find_allocation(address);
    bool inside = found && bytes <= found->bytes - (address - found->address);
    return inside ? Place::kDevice : Place::kInvalid;
  }
  if (is_pinned(address, bytes)) return Place::kPinned;
  return address ? Place::kPageable : Place::kInvalid;
}

CUdeviceptr forbidden_address(CUdeviceptr address) {
  // The arena's last pages are never allocated in practice. The low bits keep the alignment.
  return reinterpret_cast<CUdeviceptr>(arena().begin) + kReserved - 2 * arena().page +
         address % arena().page;
}

CUresult allocate(size_t bytes, CUdeviceptr* address) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = allocate_now(bytes, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  // Frees that are pending in streams may release enough memory.
  if (CUresult error = wait_for_all()) return error;
  return allocate_now(bytes, address);
}

void release(CUdeviceptr address) {
  Arena& memory = arena();
  const Allocation& freed = memory.live.at(address);
  size_t length = memory.pages(freed.bytes);
  char* range = memory.first_page(freed);
  mmap(range, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (freed.file >= 0) close(freed.file);
  if (!freed.is_imported) memory.used[freed.device] -= length;
  memory.live.erase(address);
}

void release_all(const Context* context) {
  std::vector<CUdeviceptr> owned;
  for (const auto& [address, made] : arena().live) {
    if (made.context == context) owned.push_back(address);
  }
  for (CUdeviceptr address : owned) release(address);
}

void release_memory(Graph& graph) {
  for (CUdeviceptr address : graph.memory) {
    if (arena().live.count(address)) release(address);
  }
  graph.memory.clear();
}

}  // namespace emulation

using namespace emulation;

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return call(__func__, [&] {
    if (CUresult error = check_unsafe_call()) return error;
    return allocate(bytes, address);
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned) {
  return call(__func__, [&] {
    void* memory = nullptr;
    if (CUresult error = allocate_pinned(&memory, bytes)) return error;
    *address = reinterpret_cast<CUdeviceptr>(memory);
    arena().managed.insert(*address);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFree(CUdeviceptr address) {
  return call(__func__, [&] {
    if (!address) return CUDA_SUCCESS;
    if (CUresult error = check_unsafe_call()) return error;
    if (arena().managed.erase(address)) {
      CUresult result = wait_for_context(current_context());
      arena().pinned.erase(address);
      std::free(reinterpret_cast<void*>(address));
      return result;
    }
    if (CUresult error = mark_freeing(address)) return error;
    // Waits as the real driver does, which makes it safe to free memory in use.
    CUresult result = wait_for_context(find_allocation(address)->context);
    release(address);
    return result;
  });
}

// Memory that another process maps. It lies in a file that the other process opens through /proc.

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return call(__func__, [&] {
    const auto found = arena().live.find(address);
    if (found == arena().live.end() || found->second.is_imported) return CUDA_ERROR_INVALID_VALUE;
    Allocation& made = found->second;
    if (made.file < 0 && !share(made)) return CUDA_ERROR_OUT_OF_MEMORY;
    const SharedMemory shared{kShared, getpid(), made.file, made.device, made.bytes};
    *handle = {};
    std::memcpy(handle, &shared, sizeof(shared));
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return call(__func__, [&] {
    SharedMemory shared;
    std::memcpy(static_cast<void*>(&shared), &handle, sizeof(shared));
    if (shared.magic != kShared || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
      return CUDA_ERROR_INVALID_VALUE;
    if (shared.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    if (!is_device(shared.device)) return CUDA_ERROR_INVALID_DEVICE;
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", shared.process, shared.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return CUDA_ERROR_MAP_FAILED;
    Arena& memory = arena();
    const size_t length = memory.pages(shared.bytes);
    char* const range = memory.find_range(length);
    if (!range || mmap(range, length, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
      close(file);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory.cursor = range + length;
    Allocation made;
    made.address =
        reinterpret_cast<CUdeviceptr>(range + length) - memory.round(shared.bytes, kAlignment);
    made.bytes = shared.bytes, made.device = shared.device, made.context = current_context();
    made.id = state().next_id++;
    made.file = file, made.is_imported = true;
    *address = made.address;
    memory.live[made.address] = made;
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return call(__func__, [&] {
    const auto found = arena().live.find(address);
    if (found == arena().live.end() || !found->second.is_imported) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = wait_for_context(found->second.context);
    release(address);
    return result;
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  return call(__func__, [&] {
    Stream* stream = find_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_legacy_use(stream)) return error;
    if (!stream->capture) {
      if (CUresult error = check_unsafe_call()) return error;
    }
    if (CUresult error = allocate(bytes, address)) return error;
    if (stream->capture) {
      stream->capture->graph->memory.push_back(*address);
      GraphNode node;
      node.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
      return add_captured(stream, std::move(node));
    }
    enqueue(stream, [] { return CUDA_SUCCESS; });
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return call(__func__, [&] {
    Stream* stream = find_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!address) return CUDA_SUCCESS;
    if (CUresult error = check_legacy_use(stream)) return error;
    if (!stream->capture) {
      if (CUresult error = check_unsafe_call()) return error;
    }
    if (CUresult error = mark_freeing(address)) return error;
    if (stream->capture) {
      GraphNode node;
      node.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
      return add_captured(stream, std::move(node));
    }
    enqueue(stream, [address] {
      if (arena().live.count(address)) release(address);
      return CUDA_SUCCESS;
    });
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                 CUstream handle) {
  CUdevice device;
  if (CUresult error = find_pool(pool, &device)) return error;
  return cuMemAllocAsync(address, bytes, handle);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return call(__func__, Needs::kInitialization, [&] {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *pool = pool_of(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute, void*) {
  return call(__func__, Needs::kInitialization, [&] {
    CUdevice device;
    return find_pool(pool, &device);
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return call(__func__, Needs::kInitialization, [&] {
    CUdevice device;
    if (CUresult error = find_pool(pool, &device)) return error;
    if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      *static_cast<int*>(value) = 1;
    } else {
      *static_cast<cuuint64_t*>(value) =
          attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? 0 : arena().used[device];
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return call(__func__, Needs::kInitialization, [&] {
    CUdevice device;
    return find_pool(pool, &device);
  });
}

CUresult cuMemAllocHost(void** address, size_t bytes) {
  return call(__func__, [&] { return allocate_pinned(address, bytes); });
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  return call(__func__, [&] { return allocate_pinned(address, bytes); });
}

CUresult cuMemFreeHost(void* address) {
  return call(__func__, [&] {
    if (CUresult error = check_unsafe_call()) return error;
    if (!arena().pinned.count(reinterpret_cast<CUdeviceptr>(address))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = wait_for_context(current_context());
    arena().pinned.erase(reinterpret_cast<CUdeviceptr>(address));
    std::free(address);
    return result;
  });
}

CUresult cuMemHostRegister(void* address, size_t bytes, unsigned) {
  return call(__func__, [&] {
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (is_pinned(reinterpret_cast<CUdeviceptr>(address), 1)) {
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    arena().pinned[reinterpret_cast<CUdeviceptr>(address)] = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostUnregister(void* address) {
  return call(__func__, [&] {
    return arena().pinned.erase(reinterpret_cast<CUdeviceptr>(address))
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  });
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* address, unsigned) {
  return call(__func__, [&] {
    *device = reinterpret_cast<CUdeviceptr>(address);
    return is_pinned(*device, 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return call(__func__, [&] {
    *total = state().memory_limit;
    *free = *total - arena().used[current_context()->device];
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return call(__func__, [&] {
    const Allocation* found = find_allocation(address);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = found->address;
    if (bytes) *bytes = found->bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return call(__func__, [&] { return attribute_of(pointer, attribute, data); });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) {
  return call(__func__, [&] {
    for (unsigned i = 0; i < count; ++i) {
      // A pointer that CUDA does not know has no attributes, which is not an error here.
      if (attribute_of(pointer, attributes[i], data[i])) {
        bool ordinal = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        bool flag = attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                    attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED;
        bool word = ordinal || attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        std::memset(data[i], ordinal ? 0xfe : 0, flag ? 1 : word ? 4 : 8);
        if (ordinal) *static_cast<int*>(data[i]) = -2;
      }
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
