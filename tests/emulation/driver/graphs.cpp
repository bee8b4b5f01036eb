// Graphs. Nodes stay in the order of their capture, which respects their dependencies.

#include <algorithm>

#include "driver/state.h"

namespace emulation {
namespace {

CUresult run_node(const GraphNode& node) {
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return run_kernel(node.kernel, node.arguments, node.is_early);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return run_copy(node.copied);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return run_set(node.set);
    case CU_GRAPH_NODE_TYPE_HOST:
      return run_host_function(node.host.fn, node.host.userData);
    default:
      return CUDA_SUCCESS;
  }
}

GraphNode* as_node(CUgraphNode handle) { return reinterpret_cast<GraphNode*>(handle); }

/// The addresses of a copy in host or device memory.
CUresult addresses_of(const CUDA_MEMCPY3D& copy, CUdeviceptr* to, CUdeviceptr* from) {
  if (copy.Height > 1 || copy.Depth > 1) return CUDA_ERROR_NOT_SUPPORTED;
  *to = copy.dstMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(copy.dstHost)
                                                 : copy.dstDevice;
  *from = copy.srcMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(copy.srcHost)
                                                   : copy.srcDevice;
  *to += copy.dstXInBytes;
  *from += copy.srcXInBytes;
  return CUDA_SUCCESS;
}

void copy_nodes(std::list<GraphNode>& to, const std::list<GraphNode>& from) {
  std::map<const GraphNode*, GraphNode*> copies;
  for (const GraphNode& node : from) {
    to.push_back(node);
    GraphNode& copy = to.back();
    copies[&node] = &copy;
    copy.original = const_cast<GraphNode*>(&node);
    copy.argument_addresses.clear();
    for (auto& argument : copy.arguments) copy.argument_addresses.push_back(argument.data());
    copy.kernel.kernelParams = copy.argument_addresses.data();
    for (GraphNode*& before : copy.after) before = copies.at(before);
  }
}

CUresult with_graph(const char* name, CUgraph handle, const std::function<CUresult(Graph*)>& body) {
  return call(name, [&] {
    Graph* graph = state().graphs.find(handle);
    return graph ? body(graph) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult with_executable(const char* name, CUgraphExec handle,
                         const std::function<CUresult(GraphExec*)>& body) {
  return call(name, [&] {
    GraphExec* executable = state().executables.find(handle);
    return executable ? body(executable) : CUDA_ERROR_INVALID_VALUE;
  });
}

/// Runs `body` on the executable's copy of the node, which must be of that type.
CUresult with_copy(const char* name, CUgraphExec handle, CUgraphNode node, CUgraphNodeType type,
                   const std::function<CUresult(GraphNode&)>& body) {
  return with_executable(name, handle, [&](GraphExec* executable) {
    for (GraphNode& copy : executable->graph.nodes) {
      if (copy.original != as_node(node)) continue;
      return copy.type == type ? body(copy) : CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult instantiate(const char* name, CUgraphExec* handle, CUgraph graph) {
  return with_graph(name, graph, [&](Graph* source) {
    if (CUresult error = check_unsafe_call()) return error;
    auto made = std::make_unique<GraphExec>();
    made->context = current_context();
    copy_nodes(made->graph.nodes, source->nodes);
    // Captured allocations live as long as the executable that uses them.
    made->graph.memory.swap(source->memory);
    *handle = reinterpret_cast<CUgraphExec>(state().executables.add(std::move(made)));
    return CUDA_SUCCESS;
  });
}

CUresult get_dependencies(CUgraphNode node, CUgraphNode* dependencies, size_t* count) {
  const auto& after = as_node(node)->after;
  if (dependencies) {
    for (size_t i = 0; i < std::min(*count, after.size()); ++i) {
      dependencies[i] = reinterpret_cast<CUgraphNode>(after[i]);
    }
  }
  *count = after.size();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_nodes(const std::list<GraphNode>& nodes) {
  for (const GraphNode& node : nodes) {
    if (CUresult error = run_node(node)) return error;
  }
  return CUDA_SUCCESS;
}

CUresult set_kernel(GraphNode& node, const CUDA_KERNEL_NODE_PARAMS& launch) {
  if (CUresult error = check_launch(launch)) return error;
  node.arguments = copy_arguments(launch);
  node.argument_addresses.clear();
  for (auto& argument : node.arguments) node.argument_addresses.push_back(argument.data());
  node.kernel = launch;
  node.kernel.kernelParams = node.argument_addresses.data();
  node.kernel.extra = nullptr;
  return CUDA_SUCCESS;
}

GraphNode copy_node(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  GraphNode node;
  node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node.copy.dstMemoryType = node.copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  node.copy.dstDevice = to;
  node.copy.srcDevice = from;
  node.copy.WidthInBytes = bytes;
  node.copy.Height = node.copy.Depth = 1;
  node.copied = make_copy(to, from, bytes);
  return node;
}

}  // namespace emulation

using namespace emulation;

extern "C" {

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  return call(__func__, [&] {
    *graph = reinterpret_cast<CUgraph>(state().graphs.add(std::make_unique<Graph>()));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return instantiate(__func__, executable, graph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  parameters->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return instantiate(__func__, executable, graph);
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return with_executable(__func__, handle, [&](GraphExec* executable) {
    Stream* stream = find_own_stream(stream_handle);
    if (!stream || executable->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_legacy_use(stream)) return error;
    if (stream->capture) {
      for (GraphNode copy : executable->graph.nodes) {
        for (size_t i = 0; i < copy.arguments.size(); ++i) {
          copy.argument_addresses[i] = copy.arguments[i].data();
        }
        if (CUresult error = add_captured(stream, std::move(copy))) return error;
        GraphNode& added = stream->capture->graph->nodes.back();
        added.kernel.kernelParams = added.argument_addresses.data();
      }
      return CUDA_SUCCESS;
    }
    // Later changes of the executable do not affect this launch.
    enqueue(stream, [nodes = executable->graph.nodes] { return run_nodes(nodes); });
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream) {
  return with_executable(__func__, handle, [](GraphExec*) { return CUDA_SUCCESS; });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return with_executable(__func__, handle, [](GraphExec* executable) {
    release_memory(executable->graph);
    state().executables.remove(executable);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return with_graph(__func__, handle, [](Graph* graph) {
    release_memory(*graph);
    state().graphs.remove(graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return with_graph(__func__, handle, [&](Graph* graph) {
    size_t i = 0;
    if (nodes) {
      for (GraphNode& node : graph->nodes) {
        if (i < *count) nodes[i++] = reinterpret_cast<CUgraphNode>(&node);
      }
    }
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return call(__func__, [&] {
    *type = as_node(node)->type;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* dependencies,
                                    CUgraphEdgeData* edges, size_t* count) {
  return call(__func__, [&] {
    if (edges) std::fill_n(edges, std::min(*count, as_node(node)->after.size()), CUgraphEdgeData{});
    return get_dependencies(node, dependencies, count);
  });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* launch) {
  return call(__func__, [&] {
    if (as_node(node)->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
    *launch = as_node(node)->kernel;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* copy) {
  return call(__func__, [&] {
    if (as_node(node)->type != CU_GRAPH_NODE_TYPE_MEMCPY) return CUDA_ERROR_INVALID_VALUE;
    *copy = as_node(node)->copy;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* set) {
  return call(__func__, [&] {
    if (as_node(node)->type != CU_GRAPH_NODE_TYPE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
    *set = as_node(node)->set;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* host) {
  return call(__func__, [&] {
    if (as_node(node)->type != CU_GRAPH_NODE_TYPE_HOST) return CUDA_ERROR_INVALID_VALUE;
    *host = as_node(node)->host;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* launch) {
  return with_copy(__func__, executable, node, CU_GRAPH_NODE_TYPE_KERNEL,
                   [&](GraphNode& copy) { return set_kernel(copy, *launch); });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMCPY3D* changed, CUcontext) {
  return with_copy(__func__, executable, node, CU_GRAPH_NODE_TYPE_MEMCPY, [&](GraphNode& copy) {
    CUdeviceptr to, from;
    if (CUresult error = addresses_of(*changed, &to, &from)) return error;
    if (CUresult error = check_copy(to, from, changed->WidthInBytes)) return error;
    GraphNode other = copy_node(to, from, changed->WidthInBytes);
    copy.copy = other.copy;
    copy.copied = other.copied;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* set, CUcontext) {
  return with_copy(__func__, executable, node, CU_GRAPH_NODE_TYPE_MEMSET, [&](GraphNode& copy) {
    if (CUresult error = check_set(*set)) return error;
    copy.set = *set;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle,
                           CUgraphExecUpdateResultInfo* info) {
  return with_executable(__func__, handle, [&](GraphExec* executable) {
    Graph* graph = state().graphs.find(graph_handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    *info = {};
    std::list<GraphNode>& nodes = executable->graph.nodes;
    auto same = [](const GraphNode& a, const GraphNode& b) { return a.type == b.type; };
    if (!std::equal(nodes.begin(), nodes.end(), graph->nodes.begin(), graph->nodes.end(), same)) {
      info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    auto originals = nodes.begin();
    std::list<GraphNode> updated;
    copy_nodes(updated, graph->nodes);
    // The executable still accepts the nodes of the graph that it was made of.
    for (GraphNode& node : updated) node.original = (originals++)->original;
    nodes = std::move(updated);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
