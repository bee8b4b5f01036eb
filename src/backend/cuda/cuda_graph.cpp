#include "backend/cuda/cuda_graph.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda/modules.h"

namespace opwright::cuda {
namespace {

CUdeviceptr load(const void* word) {
  CUdeviceptr address = 0;
  std::memcpy(&address, word, sizeof(address));
  return address;
}
void store(void* word, CUdeviceptr address) { std::memcpy(word, &address, sizeof(address)); }

bool is_on_device(CUmemorytype type, CUdeviceptr address) {
  if (type != CU_MEMORYTYPE_UNIFIED) return type == CU_MEMORYTYPE_DEVICE;
  unsigned found = 0;
  return driver().cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
             CUDA_SUCCESS &&
         found == CU_MEMORYTYPE_DEVICE;
}

}  // namespace

CudaGraph::CudaGraph(CUgraph graph) : graph_(graph) {
  try {
    check(driver().cuCtxGetCurrent(&context_), "asking for the current CUDA context");
    check(driver().cuGraphInstantiate(&executable_, graph_, 0), "making a CUDA graph ready to run");
    read_nodes();
  } catch (...) {
    if (executable_ != nullptr) driver().cuGraphExecDestroy(executable_);
    driver().cuGraphDestroy(graph_);
    throw;
  }
}

CudaGraph::~CudaGraph() {
  driver().cuGraphExecDestroy(executable_);
  driver().cuGraphDestroy(graph_);
}

void CudaGraph::launch(Queue queue) {
  check(driver().cuGraphLaunch(executable_, static_cast<CUstream>(queue)),
        "launching a CUDA graph of ", nodes_.size(), " kernels, copies and fills");
}

void CudaGraph::read_nodes() {
  size_t count = 0;
  check(driver().cuGraphGetNodes(graph_, nullptr, &count), "reading a CUDA graph");
  std::vector<CUgraphNode> handles(count);
  check(driver().cuGraphGetNodes(graph_, handles.data(), &count), "reading a CUDA graph");
  for (const CUgraphNode handle : handles) {
    CUgraphNodeType type{};
    check(driver().cuGraphNodeGetType(handle, &type), "reading a node of a CUDA graph");
    switch (type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        read_kernel(handle);
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        read_copy(handle);
        break;
      case CU_GRAPH_NODE_TYPE_MEMSET:
        read_fill(handle);
        break;
      case CU_GRAPH_NODE_TYPE_EMPTY:
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        break;
      default:
        can_move_ = false;
    }
  }
}

void CudaGraph::read_kernel(CUgraphNode handle) {
  KernelNode kernel;
  check(driver().cuGraphKernelNodeGetParams(handle, &kernel.params),
        "reading a kernel of a CUDA graph");
  const CUfunction function = kernel.params.func;
  if (driver().cuFuncGetParamInfo == nullptr || function == nullptr ||
      kernel.params.extra != nullptr)
    can_move_ = false;
  const bool is_own = function != nullptr && is_found(function);
  std::vector<size_t> first;           // word of each argument
  std::vector<size_t> pointers, maps;  // words of arguments that may be a pointer or a tensor map
  CUresult result = CUDA_SUCCESS;
  while (can_move_) {
    size_t offset = 0, size = 0;
    result = driver().cuFuncGetParamInfo(function, first.size(), &offset, &size);
    if (result != CUDA_SUCCESS) break;
    // A tensor map encodes its tensor's address, and so does a structure that holds one.
    constexpr size_t kAlignmentOfTensorMaps = 64;
    const bool is_map =
        is_own && size == sizeof(CUtensorMap) && offset % kAlignmentOfTensorMaps == 0;
    if (size >= sizeof(CUtensorMap) && offset % kAlignmentOfTensorMaps == 0 && !is_map)
      can_move_ = false;
    first.push_back(kernel.words.size());
    if (is_map) maps.push_back(first.back());
    if (size == sizeof(CUdeviceptr)) pointers.push_back(first.back());
    kernel.words.resize(kernel.words.size() +
                        (size + sizeof(CUdeviceptr) - 1) / sizeof(CUdeviceptr));
    std::memcpy(&kernel.words[first.back()], kernel.params.kernelParams[first.size() - 1], size);
  }
  // The query for the argument behind the last one must fail in this way. Any other result means
  // that the arguments are not known.
  can_move_ = can_move_ && result == CUDA_ERROR_INVALID_VALUE;

  for (const size_t map : maps) can_move_ = can_move_ && read_map(kernel, map, pointers);
  Node& node = nodes_.emplace_back(Node{handle, std::move(kernel)});
  auto& kept = std::get<KernelNode>(node.params);
  for (const size_t word : first) kept.arguments.push_back(&kept.words[word]);
  kept.params.kernelParams = kept.arguments.data();
  const Meaning meaning = is_own ? Meaning::kBeginning : Meaning::kAnything;
  const auto is_of_map = [&](size_t word) {
    return std::any_of(kept.maps.begin(), kept.maps.end(), [&](const KernelNode::Map& map) {
      return word - map.first < sizeof(CUtensorMap) / sizeof(CUdeviceptr);
    });
  };
  for (size_t i = 0; i < kept.words.size(); ++i)
    if (!is_of_map(i)) references_.push_back({&kept.words[i], nodes_.size() - 1, meaning});
}

bool CudaGraph::read_map(KernelNode& kernel, size_t first, std::span<const size_t> pointers) {
  // The driver's encoding of a map is private. So a copy gets each pointer as its address: the copy
  // with the right one equals the map.
  for (const size_t pointer : pointers) {
    CUtensorMap copy;
    std::memcpy(&copy, &kernel.words[first], sizeof copy);
    auto* const address = reinterpret_cast<void*>(kernel.words[pointer]);
    if (driver().cuTensorMapReplaceAddress(&copy, address) != CUDA_SUCCESS ||
        std::memcmp(&copy, &kernel.words[first], sizeof copy) != 0)
      continue;
    kernel.maps.push_back({first, pointer});
    return true;
  }
  return false;
}

CUresult CudaGraph::update_maps(KernelNode& kernel) {
  for (const KernelNode::Map& map : kernel.maps) {
    CUtensorMap made;
    std::memcpy(&made, &kernel.words[map.first], sizeof made);
    auto* const address = reinterpret_cast<void*>(kernel.words[map.address]);
    const CUresult result = driver().cuTensorMapReplaceAddress(&made, address);
    if (result != CUDA_SUCCESS) return result;
    std::memcpy(&kernel.words[map.first], &made, sizeof made);
  }
  return CUDA_SUCCESS;
}

void CudaGraph::read_copy(CUgraphNode handle) {
  CUDA_MEMCPY3D copy{};
  check(driver().cuGraphMemcpyNodeGetParams(handle, &copy), "reading a copy of a CUDA graph");
  auto& kept = std::get<CUDA_MEMCPY3D>(nodes_.emplace_back(Node{handle, copy}).params);
  const size_t node = nodes_.size() - 1;
  const bool is_plain =
      copy.Height <= 1 && copy.Depth <= 1 && copy.srcXInBytes == 0 && copy.dstXInBytes == 0;
  // Host memory that a copy reads, perhaps a table of addresses, is right only for the old
  // addresses.
  if (!is_plain || !is_on_device(copy.srcMemoryType, copy.srcDevice)) {
    can_move_ = false;
    return;
  }
  references_.push_back({&kept.srcDevice, node, Meaning::kStart});
  if (copy.dstMemoryType == CU_MEMORYTYPE_HOST)
    references_.push_back({&kept.dstHost, node, Meaning::kStart});
  else
    references_.push_back({&kept.dstDevice, node, Meaning::kStart});
}

void CudaGraph::read_fill(CUgraphNode handle) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  check(driver().cuGraphMemsetNodeGetParams(handle, &fill), "reading a fill of a CUDA graph");
  auto& kept = std::get<CUDA_MEMSET_NODE_PARAMS>(nodes_.emplace_back(Node{handle, fill}).params);
  references_.push_back({&kept.dst, nodes_.size() - 1, Meaning::kStart});
}

bool CudaGraph::find_changes(std::span<const Move> moves) {
  changes_.clear();
  for (const Reference& reference : references_) {
    const CUdeviceptr before = load(reference.word);
    const Move* found = nullptr;
    const auto distance = [](const Move& move) {
      return reinterpret_cast<CUdeviceptr>(move.to) - reinterpret_cast<CUdeviceptr>(move.from);
    };
    for (const Move& move : moves) {
      const CUdeviceptr offset = before - reinterpret_cast<CUdeviceptr>(move.from);
      if (reference.meaning == Meaning::kBeginning && offset != 0) continue;
      // The word is the block's end, or the address of memory behind it.
      if (reference.meaning == Meaning::kAnything && offset == move.bytes && distance(move) != 0)
        return false;
      if (offset >= move.bytes) continue;
      if (found != nullptr && distance(*found) != distance(move)) return false;
      found = &move;
    }
    if (found == nullptr || distance(*found) == 0) continue;
    changes_.push_back({reference.word, before, before + distance(*found), reference.node});
  }
  return true;
}

bool CudaGraph::move(std::span<const Move> moves) {
  if (!can_move_ || !find_changes(moves)) return false;
  for (const Change& change : changes_) store(change.word, change.after);
  const size_t updated = update_nodes(changes_.size());
  if (updated == changes_.size()) return true;
  for (const Change& change : changes_) store(change.word, change.before);
  require(update_nodes(updated) == updated, "a CUDA graph took new addresses only in part");
  return false;
}

size_t CudaGraph::update_nodes(size_t count) {
  // Changes of one node are neighbours in the list.
  for (size_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == changes_.size() || changes_[i + 1].node != changes_[i].node;
    if (!is_last) continue;
    if (update(nodes_[changes_[i].node]) == CUDA_SUCCESS) continue;
    while (i > 0 && changes_[i - 1].node == changes_[i].node) --i;
    return i;
  }
  return count;
}

CUresult CudaGraph::update(Node& node) {
  if (auto* kernel = std::get_if<KernelNode>(&node.params)) {
    if (const CUresult result = update_maps(*kernel); result != CUDA_SUCCESS) return result;
    return driver().cuGraphExecKernelNodeSetParams(executable_, node.handle, &kernel->params);
  }
  if (const auto* copy = std::get_if<CUDA_MEMCPY3D>(&node.params))
    return driver().cuGraphExecMemcpyNodeSetParams(executable_, node.handle, copy, context_);
  return driver().cuGraphExecMemsetNodeSetParams(
      executable_, node.handle, &std::get<CUDA_MEMSET_NODE_PARAMS>(node.params), context_);
}

}  // namespace opwright::cuda
