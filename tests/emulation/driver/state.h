#pragma once

// The emulated driver's state. Everything here is used under the lock that call() holds.

#include <cuda.h>

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "driver/kernel_image.h"

namespace emulation {

struct Context;
struct Stream;
struct Graph;

/// Work on a stream. It runs when something waits for it.
struct Operation {
  std::function<CUresult()> run;
  Stream* stream = nullptr;
  uint64_t number = 0;
  std::vector<std::shared_ptr<Operation>> after;
  bool done = false;
};
using OperationPtr = std::shared_ptr<Operation>;

enum class Place { kDevice, kPinned, kPageable, kInvalid };

/// A copy, with the places of its memory at the time of the call.
struct Copy {
  CUdeviceptr to = 0, from = 0;
  size_t bytes = 0;
  Place to_place = Place::kInvalid, from_place = Place::kInvalid;
};

struct GraphNode {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<GraphNode*> after;
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  bool is_early = false;  ///< programmatic stream serialization
  std::vector<std::vector<char>> arguments;
  std::vector<void*> argument_addresses;
  CUDA_MEMCPY3D copy = {};
  Copy copied;
  CUDA_MEMSET_NODE_PARAMS set = {};
  CUDA_HOST_NODE_PARAMS host = {};
  GraphNode* original = nullptr;
};

struct Graph {
  std::list<GraphNode> nodes;
  /// Memory that captured allocations own.
  std::vector<CUdeviceptr> memory;
};

struct GraphExec {
  Graph graph;
  Context* context = nullptr;
};

struct Capture {
  CUstreamCaptureMode mode;
  Stream* origin = nullptr;
  std::thread::id thread;
  uint64_t id = 0;
  bool invalid = false, ended = false;
  std::unique_ptr<Graph> graph;
  std::vector<Stream*> streams;
};

struct Stream {
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::deque<OperationPtr> pending;
  OperationPtr last;
  bool queried = false;
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> capture_last;
  uint64_t id = 0;
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  OperationPtr recorded;
  bool queried = false;
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> captured;
};

struct Module;

struct Function {
  Module* module = nullptr;
  const Entry* entry = nullptr;
  std::string name;
  int max_dynamic_shared = 0;  ///< bytes of dynamic shared memory that a launch may ask for
  bool allows_large_cluster = false;
};

struct Module {
  Context* context = nullptr;
  void* library = nullptr;
  const Table* table = nullptr;
  /// Bytes of static shared memory, and the loader's number of the library that contains it.
  size_t static_shared = 0, thread_local_id = 0;
  /// Bytes of dynamic shared memory where a block may have `most` bytes in all.
  int dynamic_shared(int most) const { return most - static_cast<int>(static_shared); }
  int architecture = 0;
  std::list<Function> functions;
};

struct Context {
  CUdevice device = 0;
  unsigned flags = 0;
  uint64_t id = 0;
  bool primary = false;
  CUresult error = CUDA_SUCCESS;
  Stream legacy, per_thread;
  std::list<Stream*> streams;
  /// Devices whose memory the context may access.
  std::vector<CUdevice> peers;
};

struct Device {
  Context* primary = nullptr;
  int primary_uses = 0;
  unsigned primary_flags = 0;
};

struct Allocation {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUdevice device = 0;
  Context* context = nullptr;
  uint64_t id = 0;
  bool freeing = false;
  int file = -1;  ///< what other processes map; -1: none
  bool is_imported = false;
};

/// The objects of one handle type. Destroyed objects stay in memory, so that a stale handle is
/// recognized.
template <typename T>
class Handles {
 public:
  T* add(std::unique_ptr<T> object) {
    T* address = object.get();
    objects_[address] = {std::move(object), true};
    return address;
  }
  T* find(const void* handle) const {
    auto found = objects_.find(handle);
    return found != objects_.end() && found->second.live ? found->second.object.get() : nullptr;
  }
  void remove(const T* object) { objects_.at(object).live = false; }
  std::vector<T*> all() const {
    std::vector<T*> live;
    for (const auto& [address, slot] : objects_) {
      if (slot.live) live.push_back(slot.object.get());
    }
    return live;
  }

 private:
  struct Slot {
    std::unique_ptr<T> object;
    bool live;
  };
  std::map<const void*, Slot> objects_;
};

struct State {
  bool initialized = false;
  std::vector<Device> devices;
  int architecture = 90;
  size_t memory_limit = 0;
  Handles<Context> contexts;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Module> modules;
  Handles<Graph> graphs;
  Handles<GraphExec> executables;
  std::vector<std::shared_ptr<Capture>> captures;
  uint64_t next_id = 1;
};
State& state();

// calls.cpp: the frame of every exported function.
enum class Needs { kNothing, kInitialization, kContext };
/// Counts the call, applies injected faults, takes the lock and checks what the call needs.
CUresult call(const char* name, Needs needs, const std::function<CUresult()>& body);
inline CUresult call(const char* name, const std::function<CUresult()>& body) {
  return call(name, Needs::kContext, body);
}

// contexts.cpp
Context* current_context();
Context* make_context(CUdevice device, unsigned flags);
void destroy_context(Context* context);
inline bool is_device(CUdevice device) {
  return device >= 0 && device < static_cast<int>(state().devices.size());
}

// memory.cpp
/// The place of the bytes; kInvalid if they are not all inside one live allocation of the device.
Place place_of(CUdeviceptr address, size_t bytes);
const Allocation* find_allocation(CUdeviceptr address);
CUresult allocate(size_t bytes, CUdeviceptr* address);
void release(CUdeviceptr address);
/// Frees the memory of captured allocations.
void release_memory(Graph& graph);
void release_all(const Context* context);
/// An inaccessible address with the alignment of this one.
CUdeviceptr forbidden_address(CUdeviceptr address);
/// Lets the host access device memory while an object lives.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
};

// streams.cpp
/// The stream of a handle; null if there is none (CUDA_ERROR_INVALID_HANDLE).
Stream* find_stream(CUstream handle);
/// The stream of a handle if it belongs to the current context, as kernels, memsets and event
/// records require; else null.
Stream* find_own_stream(CUstream handle);
/// Adds work to the stream.
OperationPtr enqueue(Stream* stream, std::function<CUresult()> run);
/// Runs the operation and everything that it depends on.
CUresult wait_for(OperationPtr operation);
CUresult wait_for_stream(Stream* stream);
CUresult wait_for_context(Context* context);
CUresult wait_for_all();

// capture.cpp
/// The error of a call that is unsafe while this thread captures.
CUresult check_unsafe_call();
/// The error of work on the legacy stream while a blocking stream of the context is captured.
CUresult check_legacy_use(Stream* stream);
/// Breaks the capture if the stream of a synchronizing call is captured, and returns the error.
CUresult check_not_captured(Stream* stream);
CUresult check_no_capture(Context* context);
/// Adds a node to the graph that the stream is captured into.
CUresult add_captured(Stream* stream, GraphNode node);
void invalidate(Capture& capture);

// copies.cpp, launch.cpp: work that both nodes and streams run.
Copy make_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult run_copy(const Copy& copy);
CUresult run_set(const CUDA_MEMSET_NODE_PARAMS& set);
CUresult check_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult check_set(const CUDA_MEMSET_NODE_PARAMS& set);
CUresult check_launch(const CUDA_KERNEL_NODE_PARAMS& launch);
CUresult run_kernel(const CUDA_KERNEL_NODE_PARAMS& launch,
                    const std::vector<std::vector<char>>& arguments, bool is_early);
/// Copies the arguments of a launch that was checked.
std::vector<std::vector<char>> copy_arguments(const CUDA_KERNEL_NODE_PARAMS& launch);
CUresult run_host_function(CUhostFn function, void* user);

// graphs.cpp
CUresult run_nodes(const std::list<GraphNode>& nodes);
/// Copies the arguments of a launch into the node.
CUresult set_kernel(GraphNode& node, const CUDA_KERNEL_NODE_PARAMS& launch);
GraphNode copy_node(CUdeviceptr to, CUdeviceptr from, size_t bytes);

// modules.cpp
void release_modules(const Context* context);
Function* find_function(CUfunction handle);

}  // namespace emulation
