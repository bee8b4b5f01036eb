#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/run_kernel.h"

/// Steps as plans store them, for tests of what kernels refuse. Each file of checks has the steps
/// of a family, and registers them with what may be wrong with them; check_test.cpp goes through
/// all.
namespace opwright::testing {

struct Step {
  OperatorPtr op;
  std::vector<PortDesc> inputs, outputs;
  std::vector<PackedInput> packed;
  std::map<int, std::vector<int64_t>> values = {};  ///< of shape inputs
};

PortDesc port(const Shape& shape, DataType type = DataType::kFLOAT,
              TensorFormat format = TensorFormat::kLINEAR);
/// The same of a constant.
PortDesc weights(const Shape& shape, DataType type = DataType::kFLOAT);

template <class Op>
Step step(typename Op::Params params, std::vector<PortDesc> inputs, std::vector<PortDesc> outputs) {
  return {std::make_shared<Op>(std::move(params)), std::move(inputs), std::move(outputs), {}, {}};
}

/// Gives all ports one type and format.
void set_all(Step& step, PortType type);

/// A step that is fine, one change to it, and a part of the refusal.
struct FaultCase {
  const char* name;
  Step step;
  void (*change)(Step&);
  const char* message;
};

/// The steps and cases of one file, for the tests of all.
struct RegisteredChecks {
  RegisteredChecks(std::vector<Step> (*steps)(), std::vector<FaultCase> (*cases)());
};
std::vector<Step> registered_steps();
std::vector<FaultCase> registered_cases();

/// What a body says as it fails; empty when it does not.
std::string error_of(const std::function<void()>& body);
/// Why a step is refused before its kernel is made; empty when it is not.
std::string refusal(const Step& step);
/// Why a step's kernel cannot be made.
std::string obstacle(const Step& step);

/// Kernels are made and told of shapes with the step's types, as the runtime does it.
class Made {
 public:
  explicit Made(Step step);

  void tell(int input, std::vector<int64_t> elements);
  /// Why the kernel cannot run these shapes; empty when it can.
  std::string tell(std::vector<Shape> inputs, std::vector<Shape> outputs);
  std::string tell_opt();
  /// Runs on any bytes, between guards. Memory is of the size that the shapes, types and formats
  /// ask for; returns the first output.
  std::vector<std::byte> run(std::mt19937& random);

 private:
  Step step_;
  Candidate candidate_;
  PlannedOperatorPtr planned_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<Shape> inputs_, outputs_;
};

/// Runs a step's kernel many times: whatever its elements say, it stays within its tensors.
void run_on_any_bytes(const Step& step);

}  // namespace opwright::testing
