#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "network/network.h"
#include "operators/builtin.h"
#include "operators/reduce.h"

namespace opwright {

template <>
inline constexpr auto kEnumeration<CollectiveOperation> = enumeration<CollectiveOperation>(
    "CollectiveOperation", "What ranks exchange.",
    {
        {"ALL_REDUCE", CollectiveOperation::kALL_REDUCE,
         "Each rank gets the reduction of all ranks' tensors."},
        {"ALL_GATHER", CollectiveOperation::kALL_GATHER,
         "Each rank gets the tensors of all ranks, one after the other along the first axis."},
        {"BROADCAST", CollectiveOperation::kBROADCAST, "Each rank gets the root's tensor."},
        {"REDUCE", CollectiveOperation::kREDUCE,
         "The root gets the reduction of all ranks' tensors."},
        {"REDUCE_SCATTER", CollectiveOperation::kREDUCE_SCATTER,
         "Each rank gets its part, along the first axis, of the reduction."},
        {"ALL_TO_ALL", CollectiveOperation::kALL_TO_ALL,
         "Part i of rank j becomes part j of rank i; parts lie along the first axis."},
        {"GATHER", CollectiveOperation::kGATHER,
         "The root gets the tensors of all ranks, one after the other along the first axis."},
        {"SCATTER", CollectiveOperation::kSCATTER,
         "Each rank gets its part, along the first axis, of the root's tensor."},
    });

/// The most ranks of one collective operation.
inline constexpr int64_t kMaxRanks = 65536;

struct DistCollectiveParams {
  CollectiveOperation op = CollectiveOperation::kALL_REDUCE;
  ReduceOperation reduce_op = ReduceOperation::kNONE;
  int64_t root = -1;  ///< a rank of the communicator; used by those operations that have a root
  Ints groups;        ///< the ranks that take part, in their order; empty: all
  int64_t num_ranks = 1;
  template <class V>
  void visit(V& v) {
    v.internal("op", op), v.internal("reduce_op", reduce_op), v.internal("root", root),
        v.internal("groups", groups), v("num_ranks", num_ranks);
  }
  /// How many ranks take part.
  int64_t participants() const {
    return groups.empty() ? num_ranks : static_cast<int64_t>(groups.size());
  }
  bool reduces() const {
    return op == CollectiveOperation::kALL_REDUCE || op == CollectiveOperation::kREDUCE ||
           op == CollectiveOperation::kREDUCE_SCATTER;
  }
  bool has_root() const {
    return op == CollectiveOperation::kBROADCAST || op == CollectiveOperation::kREDUCE ||
           op == CollectiveOperation::kGATHER || op == CollectiveOperation::kSCATTER;
  }
  /// Whether the input has a part for each rank along its first axis.
  bool cuts() const {
    return op == CollectiveOperation::kREDUCE_SCATTER || op == CollectiveOperation::kALL_TO_ALL ||
           op == CollectiveOperation::kSCATTER;
  }
  /// Whether the output has the tensors of all ranks, one behind the other along the first axis.
  bool gathers() const {
    return op == CollectiveOperation::kALL_GATHER || op == CollectiveOperation::kGATHER;
  }
  /// Whether the output is one rank's part of the input.
  bool scatters() const { return cuts() && op != CollectiveOperation::kALL_TO_ALL; }
  /// What is wrong with the parameters; empty: nothing.
  std::string fault() const;
};

/// Exchanges a tensor with the same step of engines in other processes, over the communicator of
/// the execution context. A rank that receives nothing gets zeros.
class DistCollective final : public BuiltinOperator<DistCollective, DistCollectiveParams> {
 public:
  static constexpr std::string_view kKind = "DistCollective";
  static constexpr LayerClass<class IDistCollectiveLayer> kLayer{
      LayerType::kDIST_COLLECTIVE, "IDistCollectiveLayer",
      "Exchanges a tensor with other ranks: engines that run the same network in other processes."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_pure() const override { return false; }
  bool communicates() const override { return true; }
  bool may_overwrite(int input, int count) const override;
};

/// Whether the operation can have elements of the type.
bool can_exchange(const DistCollectiveParams& params, DataType type);
/// Throws Error, naming the layer, where the first axis cannot be cut into parts for the ranks, or
/// the output's shape does not follow from the input's.
void check_collective_shapes(const DistCollectiveParams& params, std::string_view layer,
                             const Shape& input, const Shape& output);
/// Throws Error, saying how to set a communicator, where several ranks take part.
void require_alone(const DistCollectiveParams& params, std::string_view layer);
/// Throws Error, naming the layer, unless a communicator of `ranks` ranks has those of the
/// operation. `communicator` names it in the message.
void require_ranks(const DistCollectiveParams& params, std::string_view layer, int64_t ranks,
                   std::string_view communicator);
/// "ALL_REDUCE(SUM)".
std::string describe(const DistCollectiveParams& params);

/// Adds the layer; num_ranks is 1 until it is set.
TypedLayer<DistCollective>* add_dist_collective(Network& network, Tensor& input,
                                                CollectiveOperation op, ReduceOperation reduce_op,
                                                int64_t root, Ints groups);

}  // namespace opwright
