#pragma once

#include <deque>
#include <span>
#include <variant>
#include <vector>

#include "backend/cuda/driver.h"
#include "backend/device.h"

namespace opwright::cuda {

/// A captured graph, made ready to run. It keeps the arguments of all of its nodes, so that
/// addresses among them can follow memory that moves.
class CudaGraph final : public DeviceGraph {
 public:
  /// Takes ownership of the graph, also when it throws. The graph is of the current context.
  explicit CudaGraph(CUgraph graph);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(Queue queue) override;
  /// Rewrites the addresses in the nodes' arguments. Kernels that the engine launches itself get
  /// the beginning of each tensor, and so do their tensor maps. Copies and fills begin at their
  /// addresses. In other kernels every 8-byte word of an argument that lies in moved memory is
  /// taken for an address in it. Returns false where such a word could also be the end of a block.
  /// Returns false where memory may be referred to in ways that arguments do not show: host
  /// functions, child graphs, memory nodes, copies from the host, tensor maps. Returns false with
  /// drivers before CUDA 12.4, which do not tell an argument's size.
  bool move(std::span<const Move> moves) override;
  int size() const override { return static_cast<int>(nodes_.size()); }

 private:
  struct KernelNode {
    CUDA_KERNEL_NODE_PARAMS params{};
    std::vector<CUdeviceptr> words;  ///< all arguments; each begins at a new word
    std::vector<void*> arguments;
    /// A tensor map among the arguments, and the argument with its tensor's address: indices of
    /// words.
    struct Map {
      size_t first, address;
    };
    std::vector<Map> maps;
  };
  struct Node {
    CUgraphNode handle = nullptr;
    std::variant<KernelNode, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS> params;
  };
  /// The kind of address that a word may be.
  enum class Meaning {
    kBeginning,  ///< the beginning of a tensor
    kStart,      ///< the beginning of memory that is copied or filled
    kAnything    ///< any address, also the end of a block, or no address at all
  };
  /// Eight bytes of a node's arguments that may be an address.
  struct Reference {
    void* word;
    size_t node;
    Meaning meaning;
  };
  struct Change {
    void* word;
    CUdeviceptr before, after;
    size_t node;
  };

  void read_nodes();
  void read_kernel(CUgraphNode handle);
  /// Finds the argument with the address of the tensor map that begins at word `first`. False where
  /// there is none.
  static bool read_map(KernelNode& kernel, size_t first, std::span<const size_t> pointers);
  /// Gives the kernel's tensor maps the addresses that its arguments have.
  static CUresult update_maps(KernelNode& kernel);
  void read_copy(CUgraphNode handle);
  void read_fill(CUgraphNode handle);
  /// Fills `changes_`; false where the moves are ambiguous.
  bool find_changes(std::span<const Move> moves);
  /// Gives the nodes of changes [0, count) their arguments. Returns the number of changes whose
  /// nodes took them.
  size_t update_nodes(size_t count);
  CUresult update(Node& node);

  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  CUcontext context_ = nullptr;
  std::deque<Node> nodes_;  // references point into them
  std::vector<Reference> references_;
  std::vector<Change> changes_;
  bool can_move_ = true;
};

}  // namespace opwright::cuda
