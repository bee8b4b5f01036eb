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

/// The operation that rounds to a type which is narrower than registers; nothing of the others. FP8
/// is rounded to where it is stored alone.
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
  /// `a` as another register type; `a` itself when it is of that type already, and a constant where
  /// it is one that becomes FP32.
  int cast(int a, DataType type);
  int remainder(int a, int b);
  /// `a`, of FP32, rounded to what elements of that type hold, where that is FP16 or BF16; else
  /// `a` itself.
  int round(int a, DataType type);
  /// Adds an instruction, other than that of an input, whose operands are among these registers.
  int append(PointwiseInstruction instruction, std::span<const int> registers);
  /// Adds a whole program whose inputs are these registers; gives its results' registers.
  std::vector<int> append(const PointwiseParams& program, std::span<const int> inputs);

  DataType type(int reg) const { return instructions_[reg].type; }
  const std::vector<PointwiseInstruction>& instructions() const { return instructions_; }
  /// The program with what the results need. `used_inputs` receives the inputs that remain, which
  /// are renumbered in that order.
  PointwiseParams finish(std::span<const int> results, std::vector<int>* used_inputs) const;

 private:
  int add(PointwiseInstruction instruction);
  /// Of the numbers their bits: NaN equals nothing, and -0 is not 0.
  using Key = std::tuple<int32_t, int, int32_t, int32_t, int32_t, uint64_t, uint64_t>;
  std::vector<PointwiseInstruction> instructions_;
  std::map<Key, int> known_;
};

}  // namespace opwright
