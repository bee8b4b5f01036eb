#include "backend/cpu/pointwise_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "backend/candidates.h"
#include "backend/cpu/shape_checks.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

using enum PointwiseOp;

// Instructions that exist only in plans: find_quantize() of registers a, b and, unless it is -1, c,
// and find_scaled_sum() of registers a, b and c.
constexpr int32_t kQuantize = 50, kScaledSum = 51;

int operand_count(const PointwiseInstruction& instruction) {
  const int32_t op = instruction.op;
  if (op == opcode(kInput) || op == opcode(kConstant)) return 0;
  if (op == opcode(kSelect) || op == kScaledSum) return 3;
  if (op == kQuantize) return instruction.c < 0 ? 2 : 3;
  if (op == opcode(kRemainder)) return 2;
  return op >= opcode(kBinary) && op < opcode(kUnary) ? 2 : 1;
}

/// A very rough time of an instruction in units of an addition, used to decide where threads pay.
int64_t cost_of(int32_t op) {
  if (op == kQuantize || op == opcode(kRemainder)) return 4;
  if (op == kScaledSum) return 3;
  return rough_cost(op);
}

template <class T>
void fill(std::byte* to, double value, int64_t count) {
  // A constant outside of the type's range wraps around, as computed values do.
  if constexpr (std::is_floating_point_v<T>)
    std::fill_n(reinterpret_cast<T*>(to), count, static_cast<T>(value));
  else
    std::fill_n(reinterpret_cast<T*>(to), count, static_cast<T>(static_cast<int64_t>(value)));
}

}  // namespace

PointwisePlan::PointwisePlan(std::string_view layer, std::vector<PointwiseInstruction> program,
                             Ints results, std::span<const PortDesc> inputs,
                             std::span<const PortDesc> outputs)
    : layer_(layer), program_(std::move(program)), results_(std::move(results)) {
  for (const PortDesc& port : inputs) input_types_.push_back(port.type);
  for (const PortDesc& port : outputs) output_types_.push_back(port.type);
  for (size_t i = 0; i < program_.size(); ++i) {
    const PointwiseInstruction& instruction = program_[i];
    register_bytes_ = std::max(register_bytes_, element_size(instruction.type));
    if (instruction.op == opcode(kInput)) {
      require(static_cast<size_t>(instruction.a) < inputs.size() &&
                  register_type(input_types_[instruction.a].dtype) == instruction.type,
              "Layer '", layer_, "': instruction ", i, " of the pointwise program reads input ",
              instruction.a, " as ", name(instruction.type), ", which it does not have");
    } else if (instruction.op != opcode(kConstant)) {
      require(function_of(static_cast<int>(i)) != nullptr, "Layer '", layer_, "': the CPU has no ",
              "kernel for operation ", instruction.op, " of the pointwise program on ",
              name(program_[instruction.a].type));
    }
  }
  fuse_instructions();
}

void PointwisePlan::fuse_instructions() {
  const auto count = program_.size();
  std::vector<int> uses(count);
  const auto use = [&](auto&& operands) {
    for (const auto operand : operands) ++uses[static_cast<size_t>(operand)];
  };
  for (const PointwiseInstruction& instruction : program_) {
    const int operands[] = {instruction.a, instruction.b, instruction.c};
    use(std::span(operands, operand_count(instruction)));
  }
  use(results_);
  // The instruction that computes a register with a single reader, if it is `op`.
  const auto only = [&](int index, int32_t op) -> const PointwiseInstruction* {
    return program_[index].op == op && uses[index] == 1 ? &program_[index] : nullptr;
  };
  // Whether the register can be a zero point: the sum with it must be exact.
  const auto is_byte_value = [&](int index) {
    const PointwiseInstruction& instruction = program_[index];
    const double value = instruction.alpha;
    if (instruction.op == opcode(kCast)) return is_byte(program_[instruction.a].type);
    return instruction.op == opcode(kConstant) && value == std::trunc(value) &&
           std::abs(value) <= 255;
  };
  bool is_fused = false;
  for (PointwiseInstruction& instruction : program_) {
    if (instruction.op != opcode(ElementWiseOperation::kSUM) ||
        instruction.type != DataType::kFLOAT)
      continue;
    const auto turned = [&](int index) -> const PointwiseInstruction* {
      const auto* cast = only(index, opcode(kCast));
      return cast && program_[cast->a].type == DataType::kINT32 ? cast : nullptr;
    };
    for (const auto& [product, shift] :
         {std::pair(instruction.a, instruction.b), std::pair(instruction.b, instruction.a)}) {
      const auto* scaled = only(product, opcode(ElementWiseOperation::kPROD));
      const auto* first = scaled ? turned(scaled->a) : nullptr;
      const auto* second = scaled && !first ? turned(scaled->b) : nullptr;
      if (!first && !second) continue;
      const auto [sums, scale] =
          first ? std::pair(first->a, scaled->b) : std::pair(second->a, scaled->a);
      instruction = {kScaledSum, DataType::kFLOAT, sums, scale, shift};
      is_fused = true;
      break;
    }
  }
  for (PointwiseInstruction& instruction : program_) {
    const DataType type = instruction.type;
    if (instruction.op != opcode(kCast) || !is_byte(type)) continue;
    const auto* clip = only(instruction.a, opcode(ActivationType::kCLIP));
    const bool is_signed = type == DataType::kINT8;
    if (!clip || clip->type != DataType::kFLOAT || clip->alpha != (is_signed ? -128 : 0) ||
        clip->beta != (is_signed ? 127 : 255))
      continue;
    const auto* sum = only(clip->a, opcode(ElementWiseOperation::kSUM));
    if (sum && !is_byte_value(sum->b)) continue;
    const auto* round = only(sum ? sum->a : clip->a, opcode(UnaryOperation::kROUND));
    const auto* quotient = round ? only(round->a, opcode(ElementWiseOperation::kDIV)) : nullptr;
    if (!quotient) continue;
    instruction = {kQuantize, type, quotient->a, quotient->b, sum ? sum->b : -1};
    is_fused = true;
  }
  if (!is_fused) return;
  // Drops instructions whose results nothing reads any more.
  std::vector<int> places(count, -1);
  for (const int64_t result : results_) places[result] = 0;
  for (size_t i = count; i-- > 0;) {
    const PointwiseInstruction& instruction = program_[i];
    const int operands[] = {instruction.a, instruction.b, instruction.c};
    for (int k = 0; places[i] == 0 && k < operand_count(instruction); ++k) places[operands[k]] = 0;
  }
  int kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (places[i] < 0) continue;
    PointwiseInstruction instruction = program_[i];
    int32_t* const operands[] = {&instruction.a, &instruction.b, &instruction.c};
    for (int k = 0; k < operand_count(instruction); ++k) *operands[k] = places[*operands[k]];
    places[i] = kept;
    program_[kept++] = instruction;
  }
  program_.resize(kept);
  for (int64_t& result : results_) result = places[result];
}

TileFunction PointwisePlan::function_of(int index) const {
  const PointwiseInstruction& instruction = program_[index];
  if (instruction.op == opcode(kSelect)) return find_select(element_size(instruction.type));
  if (instruction.op == kQuantize) {
    const int32_t zero = instruction.c;
    const bool by_scalar = is_scalar(instruction.b) && (zero < 0 || is_scalar(zero));
    return find_quantize(instruction.type, zero >= 0, by_scalar);
  }
  if (instruction.op == kScaledSum) return find_scaled_sum();
  const DataType operand = program_[instruction.a].type;
  if (instruction.op == opcode(kCast)) return find_cast(operand, instruction.type);
  if (instruction.op == opcode(kToHalf)) return find_rounding(DataType::kHALF);
  if (instruction.op == opcode(kToBf16)) return find_rounding(DataType::kBF16);
  return operand == DataType::kFLOAT ? find_float_op(instruction.op)
                                     : find_integer_op(instruction.op, operand);
}

void PointwisePlan::set_shapes(std::span<const Shape> inputs, std::span<const Shape> outputs) {
  const Shape& shape = outputs[0];
  const TensorFormat format = output_types_[0].format;
  tiles_ = 0;
  require_countable(inputs), require_countable(outputs);
  require_filled(shape, format);
  for (const Shape& output : outputs)
    require(output == shape, "Layer '", layer_, "': the outputs of shapes ", shape, " and ", output,
            " must have the same");
  for (size_t i = 0; i < inputs.size(); ++i) {
    require_broadcast(static_cast<int>(i), inputs[i], shape);
    require(input_types_[i].format == TensorFormat::kLINEAR || inputs[i] == shape, "Layer '",
            layer_, "': input ", i, " of shape ", inputs[i], " is ", str(input_types_[i]),
            ", which is not broadcast to ", shape);
  }
  const Axes extents = physical_extents(shape, format);
  numel_ = 1;
  for (int i = 0; i < extents.count; ++i) numel_ *= extents[i];
  views_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    Axes strides;
    if (input_types_[i].format == format && inputs[i] == shape) {
      strides.count = extents.count;
      for (int64_t axis = extents.count - 1, stride = 1; axis >= 0; stride *= extents[axis--])
        strides[axis] = stride;
    } else {
      strides = broadcast_strides(inputs[i], shape, format);
    }
    views_.emplace_back(extents, strides);
  }
  if (numel_ == 0) return;

  int64_t limit = kMaxTile;
  while (!build(limit)) {
    limit /= 2;
    require(limit >= kMinTile, "Layer '", layer_, "': the pointwise program of ", program_.size(),
            " instructions keeps too many values alive at once; split it into several layers");
  }
  tiles_ = (numel_ + tile_ - 1) / tile_;
  int64_t cost = static_cast<int64_t>(inputs.size() + outputs.size());
  for (const PointwiseInstruction& instruction : program_) cost += cost_of(instruction.op);
  constexpr int64_t kCostOfThread = 1 << 17;
  grain_ = std::max<int64_t>(1, kCostOfThread / (cost * tile_));
}

void PointwisePlan::analyze(int64_t limit) {
  // Tiles begin at multiples of every period that fits, so repeated vectors are the same in all
  // tiles.
  int64_t unit = 1;
  const int count = static_cast<int>(program_.size());
  registers_.assign(count, {});
  for (int i = 0; i < count; ++i) {
    const PointwiseInstruction& instruction = program_[i];
    Register& result = registers_[i];
    if (instruction.op == opcode(kInput)) {
      const BroadcastView& view = views_[instruction.a];
      result.uniform = view.is_scalar();
      const int64_t period = std::max<int64_t>(1, view.period());
      if (period < numel_ && period <= limit && std::lcm(unit, period) <= limit) {
        unit = std::lcm(unit, period);
        result.invariant = true;
      }
    } else if (instruction.op == opcode(kConstant)) {
      result.uniform = result.invariant = true;
    } else {
      const int operands[] = {instruction.a, instruction.b, instruction.c};
      result.uniform = result.invariant = true;
      for (int k = 0; k < operand_count(instruction); ++k) {
        Register& operand = registers_[operands[k]];
        operand.last_use = i;
        result.uniform &= operand.uniform;
        result.invariant &= operand.invariant;
      }
    }
  }
  for (const int64_t result : results_) {
    // Results that no step computes are stored at the end.
    if (registers_[result].invariant || program_[result].op == opcode(kInput))
      registers_[result].last_use = count;
  }
  tile_ = limit / unit * unit;
  find_single(unit, limit);
}

bool PointwisePlan::takes_single(const PointwiseInstruction& instruction, int operand) const {
  if (instruction.op == kQuantize)
    return operand > 0 && is_scalar(instruction.b) &&
           (instruction.c < 0 || is_scalar(instruction.c));
  return operand == 1 && program_[instruction.a].type == DataType::kFLOAT &&
         find_float_op_by_scalar(instruction.op) != nullptr;
}

void PointwisePlan::find_single(int64_t unit, int64_t limit) {
  constexpr int64_t kShortestRun = 256;
  const auto run_of = [&](int index) -> int64_t {
    if (program_[index].op != opcode(kInput) || registers_[index].invariant) return 0;
    const int64_t run = views_[program_[index].a].run();
    return run >= kShortestRun ? run : 0;
  };
  const int count = static_cast<int>(program_.size());
  int64_t common = 0;
  for (int i = 0; i < count; ++i) common = std::gcd(common, run_of(i));
  if (common == 0) return;
  int64_t tile = std::min(limit, common) / unit * unit;
  while (tile > 0 && common % tile != 0) tile -= unit;
  if (tile < std::min(limit, kShortestRun)) return;
  tile_ = tile;

  const auto operands_of = [](PointwiseInstruction& instruction) {
    return std::array<int32_t*, 3>{&instruction.a, &instruction.b, &instruction.c};
  };
  for (int i = 0; i < count; ++i) {
    PointwiseInstruction& instruction = program_[i];
    Register& result = registers_[i];
    result.single = run_of(i) > 0;
    if (operand_count(instruction) == 0 || result.invariant) continue;
    result.single = true;
    for (int k = 0; k < operand_count(instruction); ++k)
      result.single &= is_scalar(*operands_of(instruction)[k]);
    const bool commutes = instruction.op == opcode(ElementWiseOperation::kSUM) ||
                          instruction.op == opcode(ElementWiseOperation::kPROD);
    if (commutes && registers_[instruction.a].single) std::swap(instruction.a, instruction.b);
  }
  for (const int64_t result : results_) registers_[result].single = false;
  // An operand with one element gets a whole tile of elements where its instruction has a whole
  // tile and cannot take a single element.
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = count - 1; i >= 0; --i) {
      PointwiseInstruction& instruction = program_[i];
      if (registers_[i].single) continue;
      for (int k = 0; k < operand_count(instruction); ++k) {
        Register& operand = registers_[*operands_of(instruction)[k]];
        if (!operand.single || takes_single(instruction, k)) continue;
        operand.single = false;
        changed = true;
      }
    }
  }
}

int PointwisePlan::take_slot() {
  if (!free_slots_.empty()) {
    const int slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  return slots_++;
}

void PointwisePlan::read(int index) {
  Register& target = registers_[index];
  Load& load = loads_[target.load];
  if (!load.view.is_dense() || load.convert) load.slot = target.slot = take_slot();
  if (!load.view.is_dense() && load.convert) load.raw_slot = take_slot();
  (target.invariant ? prologue_ : steps_).push_back({.a = target.load});
  if (load.raw_slot >= 0) free_slots_.push_back(load.raw_slot);
  target.load = -1;
}

void PointwisePlan::release_operands(int index) {
  const PointwiseInstruction& instruction = program_[index];
  const int operands[] = {instruction.a, instruction.b, instruction.c};
  for (int k = 0; k < operand_count(instruction); ++k) {
    Register& operand = registers_[operands[k]];
    if (operand.invariant || operand.last_use != index || operand.slot < 0) continue;
    free_slots_.push_back(operand.slot);
    operand.slot = -1;
  }
}

void PointwisePlan::emit(int index) {
  const PointwiseInstruction& instruction = program_[index];
  Register& result = registers_[index];
  if (instruction.op == opcode(kConstant)) {
    result.slot = result.pointer = take_slot();
    constants_.push_back({result.slot, instruction.type, instruction.alpha});
    return;
  }
  const int operands[] = {instruction.a, instruction.b, instruction.c};
  int pointers[3] = {};
  for (int k = 0; k < operand_count(instruction); ++k) {
    if (registers_[operands[k]].load >= 0) read(operands[k]);
    pointers[k] = registers_[operands[k]].pointer;
  }
  // A result is written directly into an output of its type.
  if (!result.invariant)
    for (size_t i = 0; i < results_.size() && result.pointer < 0; ++i)
      if (results_[i] == index && output_types_[i].dtype == instruction.type)
        result.pointer = first_output_ + static_cast<int>(i);
  if (result.pointer < 0) result.slot = result.pointer = take_slot();

  Step step{function_of(index), result.pointer, pointers[0],
            pointers[1],        pointers[2],    {instruction.alpha, instruction.beta}};
  step.single = result.single;
  if (operand_count(instruction) == 2 && instruction.op != kQuantize && is_scalar(instruction.b) &&
      program_[instruction.a].type == DataType::kFLOAT)
    if (const TileFunction by_scalar = find_float_op_by_scalar(instruction.op))
      step.function = by_scalar;
  (result.invariant ? prologue_ : steps_).push_back(step);
  if (result.invariant) return;

  release_operands(index);
  for (size_t i = 0; i < results_.size(); ++i)
    if (results_[i] == index && result.pointer != first_output_ + static_cast<int>(i))
      steps_.push_back({find_cast(instruction.type, output_types_[i].dtype),
                        first_output_ + static_cast<int>(i), result.pointer});
  if (result.last_use < 0 && result.slot >= 0) free_slots_.push_back(result.slot);
}

bool PointwisePlan::build(int64_t limit) {
  analyze(limit);
  loads_.clear(), constants_.clear(), prologue_.clear(), steps_.clear(), free_slots_.clear();
  slots_ = 0;
  const int count = static_cast<int>(program_.size());
  for (int i = 0; i < count; ++i) {
    if (program_[i].op != opcode(kInput) || registers_[i].last_use < 0) continue;
    const DataType type = input_types_[program_[i].a].dtype;
    Load load;
    load.input = program_[i].a;
    load.pointer = registers_[i].pointer = kMaxSlots + static_cast<int>(loads_.size());
    load.element_size = element_size(type);
    load.view = views_[load.input];
    load.single = registers_[i].single;
    if (type != program_[i].type) load.convert = find_cast(type, program_[i].type);
    registers_[i].load = static_cast<int>(loads_.size());
    loads_.push_back(load);
  }
  first_output_ = kMaxSlots + static_cast<int>(loads_.size());
  require(first_output_ + static_cast<int>(results_.size()) <= kMaxPointers, "Layer '", layer_,
          "': the pointwise program has more inputs and outputs than ", kMaxPointers - kMaxSlots);

  // Values that are the same for every tile keep their slots throughout. Constants are written
  // first, so they get their slots first.
  for (const bool constants : {true, false})
    for (int i = 0; i < count; ++i) {
      const bool wanted = registers_[i].invariant && registers_[i].last_use >= 0;
      if (!wanted || (program_[i].op == opcode(kConstant)) != constants) continue;
      if (program_[i].op != opcode(kInput))
        emit(i);
      else if (registers_[i].load >= 0)
        read(i);
    }
  free_slots_.clear();
  for (int i = 0; i < count; ++i)
    if (!registers_[i].invariant && program_[i].op != opcode(kInput)) emit(i);
  for (size_t i = 0; i < results_.size(); ++i) {
    const int64_t index = results_[i];
    if (!registers_[index].invariant && program_[index].op != opcode(kInput)) continue;
    if (registers_[index].load >= 0) read(static_cast<int>(index));
    steps_.push_back({find_cast(program_[index].type, output_types_[i].dtype),
                      first_output_ + static_cast<int>(i), registers_[index].pointer});
  }
  slot_bytes_ = (tile_ * register_bytes_ + 63) / 64 * 64;
  const int64_t bytes = slots_ * slot_bytes_;
  return slots_ <= kMaxSlots && bytes <= (limit > 256 ? kPreferredBytes : kScratchBytes);
}

PointwisePlan::Run::Run(const PointwisePlan& plan, void const* const* inputs, void* const* outputs)
    : plan_(plan), inputs_(inputs), outputs_(outputs) {
  pointers_[0] = scratch_;  // functions get this pointer for operands that they do not have
  for (int i = 0; i < plan.slots_; ++i) pointers_[i] = scratch_ + i * plan.slot_bytes_;
  const int64_t most = std::min(plan.tile_, plan.numel_);
  for (const Constant& constant : plan.constants_) {
    std::byte* slot = scratch_ + constant.slot * plan.slot_bytes_;
    switch (constant.type) {
      case DataType::kFLOAT:
        fill<float>(slot, constant.value, most);
        break;
      case DataType::kINT64:
        fill<int64_t>(slot, constant.value, most);
        break;
      case DataType::kINT32:
        fill<int32_t>(slot, constant.value, most);
        break;
      case DataType::kINT8:
        fill<int8_t>(slot, constant.value, most);
        break;
      default:
        fill<uint8_t>(slot, constant.value, most);
    }
  }
  run_steps(plan.prologue_, 0, most);
}

void PointwisePlan::Run::bring(const Load& load, int64_t first, int64_t count) {
  std::byte* values = load.slot < 0 ? nullptr : scratch_ + load.slot * plan_.slot_bytes_;
  std::byte* raw = load.raw_slot < 0 ? values : scratch_ + load.raw_slot * plan_.slot_bytes_;
  if (load.single) count = 1;
  const void* elements =
      load.input == 0 && own_ != nullptr
          ? own_ + (first - own_first_) * load.element_size
          : load.view.elements(inputs_[load.input], load.element_size, first, count, raw);
  if (load.convert) {
    load.convert(values, elements, nullptr, nullptr, count, nullptr);
    elements = values;
  }
  pointers_[load.pointer] = const_cast<void*>(elements);
}

void PointwisePlan::Run::run_steps(const std::vector<Step>& steps, int64_t first, int64_t count) {
  for (const Step& step : steps) {
    if (step.function)
      step.function(pointers_[step.out], pointers_[step.a], pointers_[step.b], pointers_[step.c],
                    step.single ? 1 : count, step.immediates);
    else
      bring(plan_.loads_[step.a], first, count);
  }
}

void PointwisePlan::Run::compute(int64_t first, int64_t end, const void* own) {
  own_ = static_cast<const std::byte*>(own), own_first_ = first;
  for (int64_t count = 0; first < end; first += count) {
    count = std::min(plan_.tile_, end - first);
    for (size_t i = 0; i < plan_.results_.size(); ++i)
      pointers_[plan_.first_output_ + i] =
          static_cast<std::byte*>(outputs_[i]) + first * element_size(plan_.output_types_[i].dtype);
    run_steps(plan_.steps_, first, count);
  }
}

}  // namespace opwright
