#include "backend/gpu/dist_collective.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/device/peers.cuh"
#include "backend/gpu/source.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// How two ranks' elements `a` and `b` become one.
std::string combination(ReduceOperation operation, bool is_float) {
  const auto of_unsigned = [&](std::string_view sign) {
    return is_float ? str("a ", sign, " b")
                    : str("(Sum)((unsigned long long)a ", sign, " (unsigned long long)b)");
  };
  switch (operation) {
    case ReduceOperation::kPROD:
      return of_unsigned("*");
    case ReduceOperation::kMAX:
      return "a != a || a > b ? a : b";
    case ReduceOperation::kMIN:
      return "a != a || a < b ? a : b";
    default:
      return of_unsigned("+");
  }
}

/// What device code needs to reduce the elements of `ranks` ranks.
ConfigWriter config_of(const DistCollectiveParams& params, DataType type) {
  const bool is_float = is_floating(type);
  ConfigWriter config;
  config.type("Element", storage_type(type));
  config.type("Value", register_type(type));
  config.type("Sum", is_float ? "float" : "long long");
  config.number("kRanks", params.participants());
  config.function("Sum combine(Sum a, Sum b)",
                  str("return ", combination(params.reduce_op, is_float), ";\n"));
  config.function("Sum finish(Sum sum)", params.reduce_op == ReduceOperation::kAVG
                                             ? "return sum / (Sum)kRanks;\n"
                                             : "return sum;\n");
  return config;
}

/// Packets of one rank in one half of the memory.
size_t places(int ranks) { return most_bytes_between_peers(ranks) / peers::Packet::kBytes; }

}  // namespace

GeneratedKernel generate_rank_reduction(const DistCollectiveParams& params,
                                        const KernelArgs& args) {
  KernelSource source("rank_reduction", args);
  source.add_declarations(include("rank_reduction.cuh") +
                          config_of(params, args.inputs[0].type.dtype).write());
  const Expr count = source.dims(0)[1];
  const std::string elements = source.value(count);
  return source.finish(str("reduce_ranks<Config>(in0, ", elements, ", out0);\n"),
                       blocks_for(count, kThreads), kThreads);
}

size_t most_bytes_between_peers(int ranks) {
  const auto others = static_cast<size_t>(std::max(ranks - 1, 1));
  constexpr size_t kData = peers::Packet::kBytes;
  return std::min<size_t>(peers::AllReduce::kMostBytes,
                          peers::AllReduce::kMostSent / others / kData * kData);
}

size_t packet_bytes_between_peers(int ranks) {
  return 2 * static_cast<size_t>(ranks) * places(ranks) * sizeof(peers::Packet);
}

bool can_reduce_between_peers(const DistCollectiveParams& params, DataType type) {
  return params.op == CollectiveOperation::kALL_REDUCE && params.groups.empty() &&
         params.participants() > 1 && params.participants() <= peers::Table::kRanks &&
         is_floating(type);
}

GeneratedKernel generate_peer_all_reduce(const DistCollectiveParams& params,
                                         const KernelArgs& args) {
  using peers::AllReduce, peers::Packet;
  const DataType type = args.inputs[0].type.dtype;
  KernelSource source("peer_all_reduce", args);
  source.set_input_type(1, "Peers");
  source.leave_waiting();
  ConfigWriter config = config_of(params, type);
  config.number("kPlaces", static_cast<int64_t>(places(static_cast<int>(params.participants()))));
  source.add_declarations(include("peer_all_reduce.cuh") + config.write());
  const Expr count = source.dims(0)[0];
  const std::string elements = source.value(count);
  return source.finish(str("all_reduce_of_peers<Config>(in0, in1, ", elements, ", out0);\n"),
                       blocks_for(count, AllReduce::kThreads * Packet::kBytes / element_size(type)),
                       AllReduce::kThreads);
}

namespace {

std::vector<Candidate> dist_collective_candidates(const Operator& op, const CandidateQuery& query) {
  const DistCollectiveParams& params = static_cast<const DistCollective&>(op).params();
  if (!can_exchange(params, query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "NCCL")};
}

/// The library computes all of them, so there is nothing to generate or to make here.
const RegisteredKernels<DistCollective> kDistCollectiveKernels(
    {.candidates = dist_collective_candidates, .generate = nullptr, .make = nullptr});

}  // namespace
}  // namespace opwright::gpu
