// Events.

#include "driver/state.h"

namespace emulation {
namespace {

CUresult with_event(const char* name, CUevent handle, const std::function<CUresult(Event*)>& body) {
  return call(name, [&] {
    Event* event = state().events.find(handle);
    return event ? body(event) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult record(const char* name, CUevent handle, CUstream stream_handle) {
  return with_event(name, handle, [&](Event* event) {
    Stream* stream = find_own_stream(stream_handle);
    if (!stream || event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_legacy_use(stream)) return error;
    event->queried = false;
    event->recorded = nullptr;
    event->time = nullptr;
    event->capture = stream->capture;
    event->captured = stream->capture_last;
    if (stream->capture) {
      return stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    }
    auto time = std::make_shared<std::chrono::steady_clock::time_point>();
    event->time = time;
    event->recorded = enqueue(stream, [time] {
      *time = std::chrono::steady_clock::now();
      return CUDA_SUCCESS;
    });
    return CUDA_SUCCESS;
  });
}

/// The error of synchronizing with an event of captured work.
CUresult check_uncaptured(Event* event) {
  if (!event->capture) return CUDA_SUCCESS;
  invalidate(*event->capture);
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult elapsed(const char* name, float* milliseconds, CUevent begin, CUevent end) {
  return call(name, [&] {
    Event* events[] = {state().events.find(begin), state().events.find(end)};
    for (Event* event : events) {
      if (!event || event->context != current_context() || !event->recorded ||
          event->flags & CU_EVENT_DISABLE_TIMING) {
        return CUDA_ERROR_INVALID_HANDLE;
      }
    }
    for (Event* event : events) {
      if (!event->recorded->done) return CUDA_ERROR_NOT_READY;
    }
    *milliseconds =
        std::chrono::duration<float, std::milli>(*events[1]->time - *events[0]->time).count();
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace emulation

using namespace emulation;

extern "C" {

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  return call(__func__, [&] {
    if (flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_unique<Event>();
    made->context = current_context();
    made->flags = flags;
    *handle = reinterpret_cast<CUevent>(state().events.add(std::move(made)));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy(CUevent handle) {
  return with_event(__func__, handle, [&](Event* event) {
    event->capture = nullptr;
    state().events.remove(event);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) { return record(__func__, event, stream); }

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
  return record(__func__, event, stream);
}

CUresult cuEventQuery(CUevent handle) {
  return with_event(__func__, handle, [&](Event* event) {
    if (CUresult error = check_uncaptured(event)) return error;
    if (CUresult error = check_unsafe_call()) return error;
    if (!event->recorded || event->recorded->done) return CUDA_SUCCESS;
    // Work in flight is reported as not ready once.
    if (!event->queried) {
      event->queried = true;
      return CUDA_ERROR_NOT_READY;
    }
    return wait_for(event->recorded);
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return with_event(__func__, handle, [&](Event* event) {
    if (CUresult error = check_uncaptured(event)) return error;
    if (CUresult error = check_unsafe_call()) return error;
    return event->recorded ? wait_for(event->recorded) : CUDA_SUCCESS;
  });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent begin, CUevent end) {
  return elapsed(__func__, milliseconds, begin, end);
}

#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return elapsed(__func__, milliseconds, begin, end);
}

}  // extern "C"
