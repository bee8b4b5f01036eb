#pragma once

#include <deque>
#include <span>
#include <variant>
#include <vector>

#include "backend/cuda/driver.h"
#include "backend/device.h"

namespace opwright::cuda {

/// A captured graph, made ready to run. Keeps the arguments of all of its nodes, so that those that
/// are addresses can follow memory that moves.
class CudaGraph final : public DeviceGraph {
 public:
  /// Takes the graph, also when it throws. Of the current context.
  explicit CudaGraph(CUgraph graph);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(Queue queue) override;
  /// What the engine launches itself is given the beginning of each tensor, and copies and fills
  /// begin at their addresses, and so do the tensors of its tensor maps. Of other kernels every
  /// aligned 8-byte word of an argument that lies in moved memory is taken for an address in it.
  /// False where such a word could also be the end of a block, where memory may be referred to in
  /// ways that arguments do not show (host functions, child graphs, memory nodes, copies from the
  /// host, tensor maps), and with drivers before CUDA 12.4, which do not tell an argument's size.
  bool move(std::span<const Move> moves) override;
  int size() const override { return static_cast<int>(nodes_.size()); }

 private:
  struct KernelNode {
    CUDA_KERNEL_NODE_PARAMS params{};
    std::vector<CUdeviceptr> words;  ///< all arguments, each from a word of its own on
    std::vector<void*> arguments;
    /// A tensor map among the arguments, and the one that is its tensor's address: words.
    struct Map {
      size_t first, address;
    };
    std::vector<Map> maps;
  };
  struct Node {
    CUgraphNode handle = nullptr;
    std::variant<KernelNode, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS> params;
  };
  /// What a word may be as an address.
  enum class Meaning {
    kBeginning,  ///< of a tensor
    kStart,      ///< of what is copied or filled
    kAnything    ///< also where something ends, or no address at all
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
  /// Finds the address of the tensor map that begins at that word. False where no argument is it.
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
