#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "operators/pointwise.h"

namespace opwright {

/// The type of the register that holds elements of this type.
DataType register_type(DataType type);

/// The operation that rounds to a type narrower than registers; nothing for other types. Values are
/// rounded to FP8 only where they are stored.
std::optional<PointwiseOp> rounding_to(DataType type);

/// Whether the instruction takes about as long as an addition.
bool is_cheap(const PointwiseInstruction& instruction);

/// Writes the program of a Pointwise operator. Equal instructions become one.
class ProgramWriter {
 public:
  int input(int index, DataType type);
  int constant(double value, DataType type);
  int binary(ElementWiseOperation op, int a, int b);
  int unary(UnaryOperation op, int a);
  int activation(ActivationType type, int a, float alpha, float beta);
  int select(int condition, int a, int b);
  /// Converts `a` to another register type. Returns `a` itself if it has that type, and a constant
  /// for a constant that becomes FP32.
  int cast(int a, DataType type);
  int remainder(int a, int b);
  /// Rounds the FP32 register `a` to the precision of FP16 or BF16. Returns `a` itself for other
  /// types.
  int round(int a, DataType type);
  /// Adds an instruction whose operands are among these registers. Not for input instructions.
  int append(PointwiseInstruction instruction, std::span<const int> registers);
  /// Adds a whole program whose inputs are these registers. Returns the registers of its results.
  std::vector<int> append(const PointwiseParams& program, std::span<const int> inputs);

  DataType type(int reg) const { return instructions_[reg].type; }
  const std::vector<PointwiseInstruction>& instructions() const { return instructions_; }
  /// The program with the instructions that the results need. `used_inputs` receives the remaining
  /// inputs, which are renumbered in that order.
  PointwiseParams finish(std::span<const int> results, std::vector<int>* used_inputs) const;

 private:
  int add(PointwiseInstruction instruction);
  /// Numbers are compared by their bits: NaN equals nothing, and -0 is not 0.
  using Key = std::tuple<int32_t, int, int32_t, int32_t, int32_t, uint64_t, uint64_t>;
  std::vector<PointwiseInstruction> instructions_;
  std::map<Key, int> known_;
};

}  // namespace opwright
