#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "network/operator.h"

/// Runs kernels of a device on small tensors given as doubles, and checks that they write nothing
/// beyond their outputs.
namespace opwright::testing {

/// The device whose kernels the test program is about.
const Device& test_device();

/// Chooses from many cases: a GPU, which compiles a kernel for each, tests one in `every`, with
/// sanitizers a third of these, and all where runs_all_tactics().
class Selection {
 public:
  explicit Selection(int every);
  bool takes_next() { return number_++ % every_ == 0; }

 private:
  const int every_;
  int number_ = 0;
};

/// Chooses from the combinations of a case's parts, such as a tactic, a type and a shape: a GPU,
/// which compiles a kernel for each, tests those with two parts that it has not tested together.
/// The host tests all, and so does a GPU where runs_all_tactics(). Sanitizers test a third.
class PairSelection {
 public:
  /// Each part belongs to the aspect of its position.
  bool takes(std::initializer_list<std::string_view> parts);

 private:
  std::set<std::string> tested_;
  int number_ = 0;
};

/// Whether OPWRIGHT_ALL_TACTICS is set: candidates_of() then lists all that can compute the ports.
bool runs_all_tactics();
/// Whether it is "once" or "least": candidates_of() then leaves out tactics of a kernel that were
/// run before. With "once" they are left out of the same class (type, kind of shapes), and the
/// first is listed where nothing is left.
bool runs_each_once();
/// How many a test expects to see at least: none where they may have been left out.
template <class Number>
Number at_least(Number count) {
  return runs_each_once() ? Number(0) : count;
}

/// A tensor's elements in row-major order, whatever the format it is handed to a kernel in.
struct Values {
  Shape shape;
  std::vector<double> data;

  double& operator[](int64_t i) { return data[i]; }
  double operator[](int64_t i) const { return data[i]; }
  int64_t size() const { return static_cast<int64_t>(data.size()); }
};
/// Uniform in [low, high], the same for the same seed.
Values random_values(const Shape& shape, int seed, double low = -1, double high = 1);
Values make_values(const Shape& shape, const std::function<double(int64_t)>& element);
/// The index of row-major element `i` of the shape in a tensor that is broadcast to it.
int64_t broadcast_index(const Shape& tensor, const Shape& shape, int64_t i);
double sigmoid(double x);

/// The index, in elements, of row-major element `i` within a tensor of the format.
int64_t offset_of(const Shape& shape, TensorFormat format, int64_t i);
/// Bytes of the tensor in that type and format; the padding of channels is zero.
Blob to_bytes(const Values& values, PortType type);
Values from_bytes(const void* bytes, const Shape& shape, PortType type);
/// The values rounded to the type.
Values rounded(const Values& values, DataType type);

/// An input of a kernel under test.
struct TestInput {
  Values values;
  DataType dtype = DataType::kFLOAT;
  bool constant = false;
  bool present = true;
};
inline TestInput absent() { return {{}, DataType::kFLOAT, false, false}; }

struct TestOutput {
  Shape shape;
  DataType dtype = DataType::kFLOAT;
};

/// Ports with one shape for min, opt and max and the network's types.
std::vector<PortDesc> describe(std::span<const TestInput> inputs);
std::vector<PortDesc> describe(std::span<const TestOutput> outputs);
/// The same with the largest shapes of a profile.
std::vector<PortDesc> with_max(std::vector<PortDesc> ports, std::span<const Shape> max);

struct QueryOptions {
  bool fp16 = false, bf16 = false, strongly_typed = false;
  bool all_tactics = false;  ///< not only those that are worth timing
  bool tf32 = false;
};
std::vector<Candidate> candidates_of(const Operator& op, std::span<const TestInput> inputs,
                                     std::span<const TestOutput> outputs,
                                     QueryOptions options = {});
std::vector<Candidate> candidates_of(const Operator& op, std::span<const PortDesc> inputs,
                                     std::span<const PortDesc> outputs, QueryOptions options = {});

/// PlannedOperator::check() of ports with the candidate's types, as a plan has them.
/// candidates_of() does it for all that it returns.
void check_ports(const Operator& op, const Candidate& candidate, std::span<const PortDesc> inputs,
                 std::span<const PortDesc> outputs, std::span<const PackedInput> packed = {});

/// A kernel made for a candidate, with what it needs kept alive.
class TestKernel {
 public:
  /// The shapes of `inputs` and `outputs` are the profile's opt and max shape unless `max` says
  /// otherwise. `packed` is what another kernel's packed() returned: the constants that it names
  /// come without their bytes.
  TestKernel(const Operator& op, const Candidate& candidate, std::span<const TestInput> inputs,
             std::span<const TestOutput> outputs, std::span<const PackedInput> packed = {},
             std::span<const Shape> max_inputs = {}, std::span<const Shape> max_outputs = {});
  /// For ports with a profile and the candidate's types.
  TestKernel(const Operator& op, const Candidate& candidate, std::span<const PortDesc> inputs,
             std::span<const PortDesc> outputs, std::span<const PackedInput> packed = {});

  Kernel& kernel() { return *kernel_; }
  /// Runs with these inputs (constants that were packed are not handed over) and returns the
  /// outputs. With `in_place`, output 0 lies in the memory of that input. Tensors lie `shift`
  /// elements behind aligned memory, as those that users give may.
  std::vector<Values> run(std::span<const TestInput> inputs, std::span<const TestOutput> outputs,
                          int in_place = -1, int shift = 0);
  /// The bytes of an output of the last run.
  const std::vector<unsigned char>& written(int output) const { return written_[output]; }

 private:
  const std::string kind_;
  Candidate candidate_;
  std::vector<PortDesc> inputs_, outputs_;
  std::vector<int> packed_inputs_, shape_inputs_;
  size_t workspace_size_ = 0;
  std::vector<std::vector<unsigned char>> written_;
  PlannedOperatorPtr planned_;
  std::unique_ptr<Kernel> kernel_;
};

/// Makes a kernel for the candidate and runs it once on its inputs.
std::vector<Values> run_kernel(const Operator& op, const Candidate& candidate,
                               std::span<const TestInput> inputs,
                               std::span<const TestOutput> outputs);

/// Fails the current test unless |actual - expected| <= tolerance * (1 + |expected|) everywhere.
void expect_close(const Values& actual, const Values& expected, double tolerance);
/// A bound for expect_close that fits values computed in FP32 from and rounded to the type.
double tolerance_of(DataType type);
/// "FP32 HWC, ... -> FP32 HWC (name)", for SCOPED_TRACE.
std::string describe(const Candidate& candidate);

}  // namespace opwright::testing
