#include "operators/fused_program.h"

#include <algorithm>

#include "base/types.h"
#include "operators/infer.h"

namespace opwright {
namespace {

constexpr int64_t place_number(FusedPlace place) { return static_cast<int64_t>(place); }

/// The type of the program's register for elements of that type.
DataType register_of(DataType type) { return is_floating(type) ? DataType::kFLOAT : type; }

}  // namespace

int64_t fused_place(std::span<const Expr> dims, std::span<const Expr> shape, int channel_axis) {
  if (dims.size() > shape.size()) return -1;
  const size_t missing = shape.size() - dims.size();
  const auto is_one = [](const Expr& extent) { return extent == Expr(1); };
  if (std::all_of(dims.begin(), dims.end(), is_one)) return place_number(FusedPlace::kScalar);
  if (missing == 0 && std::equal(dims.begin(), dims.end(), shape.begin()))
    return place_number(FusedPlace::kElement);
  bool is_channel = true;
  for (size_t i = 0; i < dims.size(); ++i)
    is_channel =
        is_channel && (static_cast<int>(i + missing) == channel_axis ? dims[i] == shape[i + missing]
                                                                     : is_one(dims[i]));
  if (is_channel) return place_number(FusedPlace::kChannel);
  size_t first = 0;
  while (is_one(dims[first])) ++first;
  return std::equal(dims.begin() + first, dims.end(), shape.begin() + first + missing)
             ? place_number(FusedPlace::kRepeated)
             : -1;
}

void FusedProgram::check(const Inference& inference, DataType sums, std::span<const Expr> shape,
                         int channel_axis, int matrix) const {
  if (!present()) {
    inference.require(places.empty(), "a fused program without code has no inputs, but ",
                      places.size(), " places of inputs are given");
    return;
  }
  const std::vector<PointwiseInstruction> instructions = decode(program);
  inference.require(program.results.size() == 1, "a fused program has one result, but ",
                    program.results.size(), " are given");
  inference.require(instructions[program.results[0]].type == register_of(result),
                    "the result of the fused program does not fit ", name(result));
  const int first = inference.count() - inputs();
  inference.require(first >= 2, "the fused program has ", inputs(), " inputs of ",
                    inference.count());
  for (const PointwiseInstruction& i : instructions) {
    if (i.op != opcode(PointwiseOp::kInput)) continue;
    inference.require(i.a <= inputs(), "the fused program reads its input ", i.a, ", but has ",
                      inputs() + 1);
    const DataType type = i.a == 0 ? sums
                          : inference.optional(first + i.a - 1)
                              ? inference.input(first + i.a - 1).dtype
                              : DataType::kFLOAT;
    inference.require(i.type == register_of(type), "the fused program reads its input ", i.a,
                      ", which is ", name(type), ", as ", name(i.type));
  }
  for (int i = 0; i < inputs(); ++i) {
    const int input = first + i;
    inference.require(inference.optional(input) != nullptr, inference.port(input),
                      " belongs to the fused program and must be there");
    const SymShape& dims = inference.input(input).dims;
    const int64_t place = places[i];
    if (matrix >= 0 && place == place_number(FusedPlace::kProduct)) {
      inference.require_same_type(input, matrix);
      const SymShape& like = inference.input(matrix).dims;
      inference.require_rank(input, static_cast<int>(like.size()), static_cast<int>(like.size()));
      for (size_t axis = 0; axis < like.size(); ++axis)
        inference.require_extent(input, static_cast<int>(axis), like[axis], "both matrices have");
      continue;
    }
    inference.require_broadcasts_to(input, shape);
    const int missing = static_cast<int>(shape.size() - dims.size());
    inference.require(
        place >= place_number(FusedPlace::kScalar) && place <= place_number(FusedPlace::kRepeated),
        place, " is no place of an input of a fused program");
    // The input is repeated along leading axes of extent 1.
    bool is_repeated = place == place_number(FusedPlace::kRepeated);
    inference.require(place != place_number(FusedPlace::kElement) || missing == 0,
                      inference.port(input), " must have the shape of the output");
    for (int axis = 0; axis < static_cast<int>(dims.size()); ++axis) {
      is_repeated = is_repeated && dims[axis] == Expr(1);
      const bool is_whole = place == place_number(FusedPlace::kChannel)
                                ? axis + missing == channel_axis
                                : place >= place_number(FusedPlace::kElement) && !is_repeated;
      inference.require_extent(input, axis, is_whole ? shape[axis + missing] : Expr(1),
                               "what the fused program takes");
    }
  }
}

}  // namespace opwright
