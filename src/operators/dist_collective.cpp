#include "operators/dist_collective.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/types.h"
#include "network/network.h"
#include "operators/infer.h"

namespace opwright {
namespace {

template <class E>
const char* name_of(E value) {
  for (const auto& each : kEnumeration<E>.values)
    if (each.value == value) return each.name;
  return nullptr;
}

}  // namespace

std::string DistCollectiveParams::fault() const {
  const char* const operation = name_of(op);
  if (operation == nullptr) return str("there is no CollectiveOperation ", static_cast<int>(op));
  const char* const reduction = name_of(reduce_op);
  if (reduction == nullptr) return str("there is no ReduceOperation ", static_cast<int>(reduce_op));
  if (reduces() != (reduce_op != ReduceOperation::kNONE))
    return str(operation,
               reduces() ? " reduces, and its reduce_op is NONE; expected SUM, PROD, "
                           "MAX, MIN or AVG"
                         : " does not reduce; expected the reduce_op NONE, not ",
               reduces() ? "" : reduction);
  if (num_ranks < 1 || num_ranks > kMaxRanks)
    return str("num_ranks is ", num_ranks, "; expected 1 to ", kMaxRanks);
  if (!groups.empty() && num_ranks != 1 && std::cmp_not_equal(groups.size(), num_ranks))
    return str("groups has ", groups.size(), " ranks, and num_ranks is ", num_ranks,
               "; num_ranks counts the ranks that take part");
  if (std::cmp_greater(groups.size(), kMaxRanks))
    return str("groups has ", groups.size(), " ranks; expected at most ", kMaxRanks);
  Ints sorted = groups;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && (sorted.front() < 0 || sorted.back() >= kMaxRanks))
    return str("groups has the rank ", sorted.front() < 0 ? sorted.front() : sorted.back(),
               "; expected 0 to ", kMaxRanks - 1);
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return str("groups has the rank ", *twice, " twice");
  if (!has_root()) return {};
  if (root < 0) return str(operation, " needs a root; expected a rank, not ", root);
  if (groups.empty() ? root >= num_ranks : std::ranges::find(groups, root) == groups.end())
    return str("the root ", root, " of ", operation, " is none of the ",
               groups.empty() ? num_ranks : static_cast<int64_t>(groups.size()),
               " ranks that take part");
  return {};
}

bool can_exchange(const DistCollectiveParams& params, DataType type) {
  switch (type) {
    case DataType::kFLOAT:
    case DataType::kHALF:
    case DataType::kBF16:
    case DataType::kINT8:
    case DataType::kUINT8:
    case DataType::kINT32:
    case DataType::kINT64:
      return true;
    case DataType::kBOOL:  // 0 and 1: both, one of them
      return !params.reduces() || params.reduce_op == ReduceOperation::kPROD ||
             params.reduce_op == ReduceOperation::kMAX || params.reduce_op == ReduceOperation::kMIN;
    case DataType::kFP8:
    case DataType::kE8M0:
      return !params.reduces();
    default:
      return false;
  }
}

std::string describe(const DistCollectiveParams& params) {
  const char* const operation = name_of(params.op);
  std::string text = operation == nullptr ? "?" : operation;
  if (params.reduces()) {
    const char* const reduction = name_of(params.reduce_op);
    text += str("(", reduction == nullptr ? "?" : reduction, ")");
  }
  return text;
}

void check_collective_shapes(const DistCollectiveParams& params, std::string_view layer,
                             const Shape& input, const Shape& output) {
  const int64_t ranks = params.participants();
  const bool changes = params.gathers() || params.cuts();
  require(!changes || input.rank() > 0, "Layer '", layer, "': ", describe(params),
          " works along the first axis, and its input is a scalar");
  require(!params.cuts() || input[0] % ranks == 0, "Layer '", layer, "': ", describe(params),
          " cuts the first axis of ", input, " into a part for each of ", ranks,
          " ranks; expected a multiple of ", ranks);
  Shape expected = input;
  if (params.gathers()) {
    require(!__builtin_mul_overflow(input[0], ranks, &expected[0]), "Layer '", layer, "': ", ranks,
            " tensors of shape ", input, " are too many elements");
  } else if (params.scatters()) {
    expected[0] = input[0] / ranks;
  }
  require(output == expected, "Layer '", layer, "': the output of ", describe(params),
          " has the shape ", output, "; expected ", expected);
}

void require_alone(const DistCollectiveParams& params, std::string_view layer) {
  if (params.participants() == 1) return;
  fail_with(ErrorCode::kINVALID_STATE, "Layer '", layer, "': ", describe(params), " works with ",
            params.participants(),
            " ranks, and the execution context has no communicator; give it one "
            "(set_communicator) before it runs");
}

void require_ranks(const DistCollectiveParams& params, std::string_view layer, int64_t ranks,
                   std::string_view communicator) {
  const bool fits =
      params.groups.empty()
          ? params.num_ranks == ranks
          : std::ranges::all_of(params.groups, [&](int64_t rank) { return rank < ranks; });
  if (fits) return;
  fail_with(ErrorCode::kINVALID_STATE, "Layer '", layer, "': ", describe(params), " works with ",
            params.groups.empty() ? str(params.num_ranks, " ranks")
                                  : std::string("groups with other ranks"),
            ", and ", communicator, " has ", ranks);
}

std::vector<OutputInfo> DistCollective::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"input"}, 1);
  const DistCollectiveParams& p = params();
  const std::string fault = p.fault();
  inference.require(fault.empty(), fault);
  const TensorInfo& x = inference.input(0);
  inference.require_type(0, can_exchange(p, x.dtype),
                         p.reduces() ? "a type that can be reduced: FP32, FP16, BF16 or an integer "
                                       "(BOOL with PROD, MAX or MIN)"
                                     : "a type whose elements are whole bytes");
  SymShape dims = x.dims;
  if (p.gathers() || p.cuts()) {
    inference.require_rank(0, 1, Dims::MAX_DIMS);
    const Expr ranks(p.participants());
    inference.require(
        !p.cuts() || !dims[0].is_constant() || dims[0].constant() % p.participants() == 0,
        inference.port(0), " has the shape ", str(x.dims), "; expected a multiple of ",
        p.participants(), " along the first axis, a part for each rank");
    if (p.gathers()) dims[0] = dims[0] * ranks;
    if (p.scatters()) dims[0] = floor_div(dims[0], ranks);
  }
  return {make_output(x.dtype, std::move(dims))};
}

bool DistCollective::may_overwrite(int, int) const {
  return params().op == CollectiveOperation::kALL_REDUCE ||
         params().op == CollectiveOperation::kBROADCAST ||
         params().op == CollectiveOperation::kREDUCE;
}

TypedLayer<DistCollective>* add_dist_collective(Network& network, Tensor& input,
                                                CollectiveOperation op, ReduceOperation reduce_op,
                                                int64_t root, Ints groups) {
  DistCollectiveParams params;
  params.op = op, params.reduce_op = reduce_op, params.root = root;
  params.groups = std::move(groups);
  // What num_ranks decides can be wrong only once it is set.
  DistCollectiveParams known = params;
  if (known.has_root() && known.groups.empty()) known.num_ranks = kMaxRanks;
  const std::string fault = known.fault();
  require(fault.empty(), "add_dist_collective: ", fault);
  return network.add<DistCollective>(std::move(params), {&input});
}

}  // namespace opwright
