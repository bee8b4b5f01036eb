// Capture of streams into graphs, and checks of calls that are forbidden meanwhile.

#include <algorithm>

#include "driver/state.h"

namespace emulation {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void end(Capture& capture) {
  capture.ended = true;
  for (Stream* stream : capture.streams) {
    stream->capture = nullptr;
    stream->capture_last.clear();
  }
  auto& captures = state().captures;
  captures.erase(std::find_if(captures.begin(), captures.end(),
                              [&](const auto& other) { return other.get() == &capture; }));
}

/// Whether work of the origin stream follows the work of every joined stream.
bool is_joined(const Capture& capture) {
  std::vector<const GraphNode*> reached(capture.origin->capture_last.begin(),
                                        capture.origin->capture_last.end());
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const GraphNode* before : reached[i]->after) {
      if (std::find(reached.begin(), reached.end(), before) == reached.end()) {
        reached.push_back(before);
      }
    }
  }
  for (const Stream* stream : capture.streams) {
    for (const GraphNode* node : stream->capture_last) {
      if (std::find(reached.begin(), reached.end(), node) == reached.end()) return false;
    }
  }
  return true;
}

CUresult with_stream(const char* name, CUstream handle,
                     const std::function<CUresult(Stream*)>& body) {
  return call(name, [&] {
    Stream* stream = find_stream(handle);
    return stream ? body(stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUstreamCaptureStatus status_of(const Stream* stream) {
  if (!stream->capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult capture_info(Stream* stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, size_t* count) {
  if (CUresult error = check_legacy_use(stream)) return error;
  *status = status_of(stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id) *id = stream->capture->id;
  if (graph) *graph = reinterpret_cast<CUgraph>(stream->capture->graph.get());
  if (dependencies) {
    *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_last.data());
  }
  if (count) *count = stream->capture_last.size();
  return CUDA_SUCCESS;
}

}  // namespace

void invalidate(Capture& capture) { capture.invalid = true; }

CUresult check_unsafe_call() {
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : state().captures) {
    bool own = capture->thread == std::this_thread::get_id();
    bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    bool forbidden = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                         ? global || (own && capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
                         : thread_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && own &&
                               capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    if (forbidden) {
      invalidate(*capture);
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

CUresult check_legacy_use(Stream* stream) {
  if (stream != &stream->context->legacy) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const Stream* other : stream->context->streams) {
    if (other->capture && !(other->flags & CU_STREAM_NON_BLOCKING)) {
      invalidate(*other->capture);
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return result;
}

CUresult check_not_captured(Stream* stream) {
  if (!stream->capture) return CUDA_SUCCESS;
  invalidate(*stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult check_no_capture(Context* context) {
  CUresult result = CUDA_SUCCESS;
  for (Stream* stream : context->streams) {
    if (CUresult error = check_not_captured(stream)) result = error;
  }
  return result;
}

CUresult add_captured(Stream* stream, GraphNode node) {
  Capture& capture = *stream->capture;
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  node.after = stream->capture_last;
  capture.graph->nodes.push_back(std::move(node));
  GraphNode& added = capture.graph->nodes.back();
  stream->capture_last = {&added};
  return CUDA_SUCCESS;
}

}  // namespace emulation

using namespace emulation;

extern "C" {

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    if (stream == &stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->origin = stream;
    capture->thread = std::this_thread::get_id();
    capture->id = state().next_id++;
    capture->graph = std::make_unique<Graph>();
    capture->streams.push_back(stream);
    stream->capture = capture;
    state().captures.push_back(capture);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    *graph = nullptr;
    std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
      invalidate(*capture);
      return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != std::this_thread::get_id()) {
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    bool joined = is_joined(*capture);
    end(*capture);
    if (capture->invalid || !joined) release_memory(*capture->graph);
    if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = reinterpret_cast<CUgraph>(state().graphs.add(std::move(capture->graph)));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    if (CUresult error = check_legacy_use(stream)) return error;
    *status = status_of(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    return capture_info(stream, status, id, graph, dependencies, count);
  });
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies,
                                const CUgraphEdgeData** edges, size_t* count) {
  return with_stream(__func__, handle, [&](Stream* stream) {
    if (edges) *edges = nullptr;
    return capture_info(stream, status, id, graph, dependencies, count);
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call(__func__, Needs::kInitialization, [&] {
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
