// Streams and the time at which their work runs. Each stream is a queue. Waiting for an operation
// first runs the work that it depends on, then the queue up to the operation, and nothing else.
// Work that nobody waits for does not run.

#include <condition_variable>

#include "driver/lock.h"
#include "driver/state.h"

namespace emulation {
namespace {

/// A stream holds no more work than this, as on a real device.
constexpr size_t kMaxPending = 1024;

/// Whether a thread runs work. Another waiting thread lets it finish, since host functions run
/// without the lock.
bool executing = false;
std::condition_variable_any& finished() {
  static auto* finished = new std::condition_variable_any;
  return *finished;
}

bool is_blocking(const Stream* stream) {
  return stream != &stream->context->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void run_up_to(const OperationPtr& wanted) {
  while (!wanted->done) {
    OperationPtr next = wanted->stream->pending.front();
    for (const OperationPtr& before : next->after) run_up_to(before);
    next->after.clear();
    Context* context = next->stream->context;
    if (!context->error) context->error = next->run();
    next->run = nullptr;
    next->done = true;
    next->stream->pending.pop_front();
  }
}

Stream* make_stream(unsigned flags, int priority) {
  auto made = std::make_unique<Stream>();
  made->context = current_context();
  made->flags = flags;
  made->priority = priority;
  made->id = state().next_id++;
  made->context->streams.push_back(made.get());
  return state().streams.add(std::move(made));
}

}  // namespace

Stream* find_stream(CUstream handle) {
  Context* context = current_context();
  if (!handle || handle == CU_STREAM_LEGACY) return &context->legacy;
  if (handle == CU_STREAM_PER_THREAD) return &context->per_thread;
  return state().streams.find(handle);
}

Stream* find_own_stream(CUstream handle) {
  Stream* stream = find_stream(handle);
  return stream && stream->context == current_context() ? stream : nullptr;
}

OperationPtr enqueue(Stream* stream, std::function<CUresult()> run) {
  while (stream->pending.size() >= kMaxPending) wait_for(stream->pending.front());
  auto operation = std::make_shared<Operation>();
  operation->run = std::move(run);
  operation->stream = stream;
  auto follow = [&](const Stream& other) {
    if (other.last && !other.last->done) operation->after.push_back(other.last);
  };
  if (stream == &stream->context->legacy) {
    for (const Stream* other : stream->context->streams) {
      if (is_blocking(other)) follow(*other);
    }
  } else if (is_blocking(stream)) {
    follow(stream->context->legacy);
  }
  stream->pending.push_back(operation);
  stream->last = operation;
  stream->queried = false;
  return operation;
}

CUresult wait_for(OperationPtr operation) {
  while (executing && !operation->done) finished().wait(driver_lock());
  if (!operation->done) {
    executing = true;
    run_up_to(operation);
    executing = false;
    finished().notify_all();
  }
  return operation->stream->context->error;
}

CUresult wait_for_stream(Stream* stream) {
  if (stream == &stream->context->legacy) enqueue(stream, [] { return CUDA_SUCCESS; });
  return stream->last ? wait_for(stream->last) : stream->context->error;
}

CUresult wait_for_context(Context* context) {
  // Copies the list, since streams may be added while host functions run.
  for (Stream* stream : std::vector<Stream*>(context->streams.begin(), context->streams.end())) {
    if (stream->last) wait_for(stream->last);
  }
  return context->error;
}

CUresult wait_for_all() {
  for (Device& device : state().devices) {
    if (device.primary) wait_for_context(device.primary);
  }
  return wait_for_context(current_context());
}

}  // namespace emulation

using namespace emulation;

namespace {

CUresult with_stream(const char* name, CUstream handle,
                     const std::function<CUresult(Stream*)>& body) {
  return call(name, [&] {
    Stream* stream = find_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    return stream->context->error ? stream->context->error : body(stream);
  });
}

CUresult wait_for_event(Stream* stream, Event* event) {
  if (event->capture && event->capture->ended) return CUDA_ERROR_CAPTURED_EVENT;
  if (event->capture) {
    // The stream joins the capture in which the event was recorded.
    if (stream->capture && stream->capture != event->capture) {
      invalidate(*stream->capture);
      return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->capture->streams.push_back(stream);
    }
    for (GraphNode* node : event->captured) stream->capture_last.push_back(node);
    return CUDA_SUCCESS;
  }
  if (stream->capture) {
    if (!event->recorded) return CUDA_SUCCESS;
    // A graph cannot wait for work outside of it.
    invalidate(*stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (!event->recorded) return CUDA_SUCCESS;
  OperationPtr operation = enqueue(stream, [] { return CUDA_SUCCESS; });
  if (!event->recorded->done) operation->after.push_back(event->recorded);
  return CUDA_SUCCESS;
}

/// A captured stream takes the function as a node.
CUresult add_host_function(Stream* stream, CUhostFn function, void* user) {
  if (stream->capture) {
    GraphNode node;
    node.type = CU_GRAPH_NODE_TYPE_HOST;
    node.host = {function, user};
    return add_captured(stream, std::move(node));
  }
  enqueue(stream, [=] { return run_host_function(function, user); });
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  return call(__func__, [&] {
    if (flags & ~CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *handle = reinterpret_cast<CUstream>(make_stream(flags, priority));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  return call(__func__, [&] {
    if (flags & ~CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *handle = reinterpret_cast<CUstream>(make_stream(flags, 0));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamDestroy(CUstream handle) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    if (!state().streams.find(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) invalidate(*stream->capture);
    // The stream's work still runs when a thread waits for the context.
    if (stream->pending.empty()) stream->context->streams.remove(stream);
    state().streams.remove(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    if (CUresult error = check_not_captured(stream)) return error;
    if (CUresult error = check_unsafe_call()) return error;
    if (CUresult error = check_legacy_use(stream)) return error;
    return wait_for_stream(stream);
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    if (CUresult error = check_not_captured(stream)) return error;
    if (CUresult error = check_unsafe_call()) return error;
    if (CUresult error = check_legacy_use(stream)) return error;
    // Work in flight is reported as not ready once.
    if (stream->last && !stream->last->done && !stream->queried) {
      stream->queried = true;
      return CUDA_ERROR_NOT_READY;
    }
    return wait_for_stream(stream);
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    Event* awaited = state().events.find(event);
    if (!awaited) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_legacy_use(stream)) return error;
    return wait_for_event(stream, awaited);
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    *context = reinterpret_cast<CUcontext>(stream->context);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    *device = stream->context->device;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    *flags = stream->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    *priority = stream->priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    *id = stream->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* user, unsigned) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    if (stream->capture) return check_not_captured(stream);
    if (CUresult error = check_legacy_use(stream)) return error;
    enqueue(stream, [=] {
      struct Bound {
        CUstreamCallback callback;
        CUstream stream;
        void* user;
      } bound{callback, handle, user};
      return run_host_function(
          [](void* data) {
            auto* bound = static_cast<Bound*>(data);
            bound->callback(bound->stream, CUDA_SUCCESS, bound->user);
          },
          &bound);
    });
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = check_legacy_use(stream)) return error;
    return add_host_function(stream, function, user);
  });
}

CUresult cuCtxSynchronize() {
  return call(__func__, [&] {
    if (CUresult error = check_no_capture(current_context())) return error;
    return wait_for_context(current_context());
  });
}

}  // extern "C"
