#include "backend/gpu/product_cost.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "backend/gpu/source.h"
#include "backend/gpu/warpgroup_product.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Threads of a multiprocessor, its registers, and the most of them that a thread has.
constexpr double kMostThreads = 2048, kRegisters = 65536, kMostRegisters = 255;
/// Bytes of shared memory that a multiprocessor reserves for a block.
constexpr double kReserved = 1024;
/// Instructions that a multiprocessor begins in a cycle, one for each thread of a warp.
constexpr double kIssued = 4 * kWarp;

double quotient(double a, double b) { return std::ceil(a / b); }

class ProductTime {
 public:
  ProductTime(const ProductTactic& tactic, const ProductWork& work, const GpuRates& rates)
      : tile_(tactic.tile),
        parts_(tactic.parts),
        work_(work),
        rates_(rates),
        is_group_(tile_.unit == ProductUnit::kWarpGroup),
        is_rows_(tile_.unit == ProductUnit::kRows || tile_.unit == ProductUnit::kStreamedRows),
        warps_(1.0 * tile_.warps_m * tile_.warps_n) {
    const ProductSize& size = work.size;
    const auto count = [](int64_t extent, double of_tile) {
      return quotient(static_cast<double>(extent), of_tile);
    };
    tasks_ = count(size.m, tile_.m) * count(size.n, tile_.n) * static_cast<double>(size.batches) *
             parts_;
    const double depth = is_rows_ ? tile_.k * warps_ : tile_.k;
    steps_ = std::max(1.0, quotient(count(size.k, depth), parts_));
    tasks_of_one_ = quotient(tasks_, rates.multiprocessors);
    port_ = std::min(rates.port, rates.cache / std::min(tasks_, rates.multiprocessors));
  }

  double milliseconds() const {
    if (tasks_ == 0) return rates_.start / rates_.clock;
    const double begin =
        is_group_ ? rates_.group_latency + rates_.group_tile : rates_.latency + rates_.tile;
    const double step = is_rows_ ? row_step() : tile_step();
    const auto [results, results_alone] = results_cycles();
    // What the units of a multiprocessor have to do for all of its tiles.
    const double busy = begin + norm({tasks_of_one_ * steps_ * step, tasks_of_one_ * results});
    // What blocks, or warpgroups that take turns, do one after another.
    const double at_once =
        std::clamp(blocks_at_once(), 1.0, tasks_of_one_) * (tile_.takes_turns ? 2 : 1);
    const double rounds = quotient(tasks_of_one_, at_once);
    const double waits = rounds * (steps_ * step_alone(step) + results_alone) +
                         (tile_.is_persistent ? begin : rounds * begin);
    double cycles = std::max(busy, waits);
    if (parts_ > 1) cycles += is_group_ ? rounds * merging() : merging();
    return (rates_.start + norm({cycles, work_.bytes / memory_rate()})) / rates_.clock;
  }

 private:
  /// The cycles of several units that work at the same time and delay each other.
  double norm(std::initializer_list<double> cycles) const {
    const double most = std::max(cycles);
    if (most <= 0) return 0;
    double sum = 0;
    for (const double each : cycles) sum += std::pow(each / most, rates_.overlap);
    return most * std::pow(sum, 1 / rates_.overlap);
  }
  double element_bytes() const { return bits(work_.type) / 8.0; }
  double memory_rate() const {
    return work_.bytes < rates_.cache_bytes ? rates_.cache : rates_.memory;
  }
  /// Blocks for which a multiprocessor has room.
  double blocks_at_once() const {
    if (is_group_) return WarpGroupMemory(tile_, work_.type).blocks;
    // A thread's registers are its sums, and about as many others whatever the tile.
    constexpr double kOthers = 72;
    const double threads = kWarp * warps_;
    const double registers = std::min(kMostRegisters, tile_.m * tile_.n / threads + kOthers);
    const double memory =
        is_rows_ ? 0 : static_cast<double>(shared_bytes(tile_, work_.type, true, true));
    return std::floor(std::min({kMostThreads / threads, kRegisters / (threads * registers),
                                rates_.shared_bytes / (memory + kReserved)}));
  }
  /// Cycles of a step of one tile in a multiprocessor that computes several.
  double tile_step() const {
    const double m = tile_.m, n = tile_.n, k = tile_.k;
    const bool is_scalar = tile_.unit == ProductUnit::kScalar;
    double rate = is_scalar ? rates_.scalar : is_group_ ? rates_.group : rates_.tensor;
    if (!is_scalar) rate *= 16.0 / bits(work_.type);
    // So many sums of a thread leave no registers for anything else.
    constexpr int kManySums = 128;
    if (is_group_ && m * n > kManySums * kWarp * warps_) rate /= rates_.spill;
    // Each warp, or warpgroup, reads its rows and columns from shared memory.
    const double readers_m = is_group_ ? tile_.warps_m / 4.0 : tile_.warps_m;
    const double read = (m * tile_.warps_n + n * readers_m) * k * element_bytes();
    const double copied = (m + n) * k * element_bytes();
    double instructions =
        is_scalar ? 0 : rates_.loop * kWarp * warps_ * (tile_.takes_turns ? 2 : 1);
    if (!(is_group_ && work_.has_boxes))
      instructions += m * k * instructions_of(work_.a) + n * k * instructions_of(work_.b);
    return norm({2 * m * n * k / rate, is_scalar ? 0 : (read + copied) / rates_.shared,
                 copied / port_, instructions / kIssued});
  }
  /// Instructions of a thread that copies an element.
  double instructions_of(OperandCopy copy) const {
    switch (copy) {
      case OperandCopy::kVectors:
        return rates_.vector_copy / vector_of(work_.type);
      case OperandCopy::kWindows:
        return rates_.window_copy / vector_of(work_.type);
      case OperandCopy::kElements:
        break;
    }
    return rates_.element_copy;
  }
  double row_step() const {
    const double bytes = (tile_.n + tile_.m) * tile_.k * warps_ * element_bytes();
    const double busy = std::min(tasks_, rates_.multiprocessors);
    return std::max(bytes / port_, bytes * busy / memory_rate());
  }
  /// Cycles of a step of one tile that nothing else delays. A block waits for what it reads, unless
  /// it has begun to read it early enough.
  double step_alone(double step) const {
    const double ahead = is_rows_ ? tile_.stages : std::max(1, tile_.stages - 1);
    return is_group_ ? std::max(step + rates_.group_step, rates_.group_latency / ahead)
                     : std::max(step + rates_.step, rates_.latency / ahead);
  }
  /// Cycles of a tile's results in a multiprocessor that computes several tiles, and in one that
  /// computes one.
  std::pair<double, double> results_cycles() const {
    if (is_rows_) return {0, 0};
    // The blocks of a cluster share a tile's results.
    const double count = 1.0 * tile_.m * tile_.n / (is_group_ ? parts_ : 1);
    const double moved = count * work_.bytes_of_result * rates_.results / port_;
    // Instructions of an addition in the program, with its operands.
    constexpr double kOperation = 2.5;
    const double instructions = count * (rates_.result + kOperation * work_.operations);
    return {norm({moved, instructions / kIssued}),
            norm({moved, instructions / (kWarp * warps_ * rates_.issue)})};
  }
  double merging() const {
    const double bytes = 1.0 * tile_.m * tile_.n * 4;
    return is_group_ ? rates_.cluster + bytes * rates_.cluster_reads / rates_.port
                     : rates_.merge + bytes * (1 + parts_) / rates_.port;
  }

  const ProductTile& tile_;
  const int parts_;
  const ProductWork& work_;
  const GpuRates& rates_;
  const bool is_group_, is_rows_;
  const double warps_;
  double tasks_ = 0, steps_ = 0;  ///< tiles or parts of tiles, and the steps along k of each
  double tasks_of_one_ = 0;       ///< tasks of a multiprocessor
  double port_ = 0;  ///< bytes per cycle that a multiprocessor gets from the second-level cache
};

}  // namespace

double operations_of(const FusedProgram& program, const FusedActivation& activation) {
  double sum = 0;
  const auto add = [&](int32_t op) {
    const OperationFacts* const facts = facts_of(op);
    sum += facts != nullptr ? facts->cost : 1;
  };
  if (program.present())
    for (const PointwiseInstruction& instruction : decode(program.program)) add(instruction.op);
  return sum + (activation.present() ? 1 : 0);
}

void set_bytes(ProductWork& work, const Candidate& candidate, const CandidateQuery& query) {
  const auto bytes_of = [](const PortDesc& port, PortType type) {
    return static_cast<double>(port.opt.numel()) * bits(type.dtype) / 8;
  };
  const PortDesc& output = query.outputs[0];
  work.bytes = bytes_of(output, candidate.outputs[0]);
  work.bytes_of_result = bits(candidate.outputs[0].dtype) / 8.0;
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    const PortDesc& port = query.inputs[i];
    if (!port.present) continue;
    work.bytes += bytes_of(port, candidate.inputs[i]);
    if (i > 1 && port.opt == output.opt)
      work.bytes_of_result += bits(candidate.inputs[i].dtype) / 8.0;
  }
}

double simple_ms(double bytes, double products, const GpuRates& rates) {
  // Loads, addresses and the epilogue take as many instructions again as the multiply-adds.
  constexpr double kInstructions = 2;
  const double rate = bytes < rates.cache_bytes ? rates.cache : rates.memory;
  const double cycles =
      std::max(bytes / rate, kInstructions * 2 * products / (rates.scalar * rates.multiprocessors));
  return (rates.start + rates.tile + cycles) / rates.clock;
}

double product_ms(const ProductTactic& tactic, const ProductWork& work, const GpuRates& rates) {
  return ProductTime(tactic, work, rates).milliseconds();
}

}  // namespace opwright::gpu
