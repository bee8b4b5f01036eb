#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/device_sources.h"
#include "backend/gpu/kernels.h"
#include "network/operator.h"
#include "plugin/kernel/compiled_kernel.h"
#include "symbolic/expr.h"

namespace opwright::gpu {

/// The type of stored elements in generated code: "float", "Half", "BFloat16", "Fp8", "Bool",
/// "signed char", ... Throws Error for 4-bit types.
std::string_view storage_type(DataType type);
/// The type in which elements are computed: "float" for all floating types, "unsigned char" (0 or
/// 1) for BOOL, else the integer type. `load(x)` converts a stored element to it,
/// `store<Storage>(v)` converts back.
std::string_view register_type(DataType type);
/// An unsigned integer type for elements whose bits are only moved: 1, 2, 4, 8 or 16 bytes.
std::string_view carrier_type(int bytes);
/// The default number of threads in a block.
inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;
/// About the number of multiprocessors of a GPU. Fewer blocks leave some idle.
inline constexpr int64_t kFewBlocks = 132;
/// The first architectures with certain features. kTensorArchitecture: tensor cores multiply FP16
/// and BF16 by m16n8k16, and copies to shared memory need no registers. kClusterArchitecture:
/// blocks of a cluster reach each other's shared memory. kBulkArchitecture: boxes and whole rows
/// are copied to shared memory. kEarlyArchitecture: kernels may begin before others end.
inline constexpr int kTensorArchitecture = 80, kClusterArchitecture = 90, kBulkArchitecture = 90,
                     kEarlyArchitecture = 90;
/// The only architecture whose warpgroups multiply.
inline constexpr int kWarpGroupArchitecture = 90;
/// 90 of "sm_90" and "sm_90a".
int architecture_number(std::string_view architecture);
/// The architecture number for which the query's kernels are generated. It is the device's or,
/// where the kernels are for all GPUs from compute capability 8.0 on, that of the GPU with the
/// fewest resources among those.
int target_architecture(const CandidateQuery& query);
int target_architecture(const KernelArgs& args);
/// Bytes of shared memory that a block of that architecture may have.
int64_t most_shared_memory(int architecture);
/// Bit i: earlier kernels may write input i. They write no constants.
int written_inputs(const KernelArgs& args);

/// Bytes after which the swizzle pattern of boxes in shared memory repeats. Tiles begin at
/// multiples of it.
inline constexpr int64_t kBoxPattern = 1024;

/// Code of a floating-point constant with exactly that value, NaN and infinities included.
std::string float_literal(float value);

/// The axis of a tensor of that rank at position `place` in memory, counted from the outermost.
/// Channels-last, axis 1 comes last. Blocked formats have no such order.
int axis_in_memory(TensorFormat format, int rank, int place);
/// Converts a set of axes, with bit i for axis i, to the set of their places in memory.
int64_t axes_in_memory(TensorFormat format, int rank, int64_t axes);

/// The ports of a kernel with their extents in memory order, for kernels that treat all axes alike.
class PortsInMemory {
 public:
  explicit PortsInMemory(const KernelArgs& args);
  PortsInMemory(const PortsInMemory&) = delete;
  PortsInMemory& operator=(const PortsInMemory&) = delete;
  const KernelArgs& args() const { return args_; }

 private:
  std::vector<PortDesc> inputs_, outputs_;
  KernelArgs args_;
};

/// Writes the source of one kernel. Its parameters are those that KernelCode passes: `in0`, `in1`,
/// ... (`const T* __restrict__`; null where an input is absent), one per number that the profile
/// leaves open, `out0`, `out1`, ... Every source begins with:
///  - `Index` and `UIndex`, the signed and unsigned integers for elements and offsets. They have 32
///    bits where the profile lets no tensor have more than 2^30 elements, else 64;
///  - prelude.cuh: the storage types with `load` and `store`, `convert<To>(register value)` between
///    register types with the conversions of base/half.h, and `Pack<T, n>`, n neighbours that one
///    access loads and stores (`is_aligned<T, n>(pointer)` tells whether it may);
///  - `first_index()` and `index_step()` for a loop over elements by all threads of the grid.
class KernelSource {
 public:
  /// `name` is the symbol that the code exports. The arguments must outlive the writer.
  KernelSource(std::string name, const KernelArgs& args);
  /// For a kernel whose dims() are extents in memory order.
  KernelSource(std::string name, const PortsInMemory& ports);

  /// The extents of an input: constants where the profile has one value, else symbols.
  const SymShape& dims(int input) const { return dims_[input]; }
  /// The elements of a shape input, which are constants or become symbols.
  std::vector<Expr> shape_values(int input);
  /// The value of an expression over the inputs' extents at the profile's optimum.
  int64_t typical(const Expr& expr) const { return expr.evaluate(typical_); }
  /// Whether Index has 32 bits.
  bool is_narrow() const { return narrow_; }

  /// The code of a number: a literal, or the name of an argument of type Index. Equal expressions
  /// share an argument.
  std::string value(const Expr& expr);
  /// The code of several numbers, with commas between them.
  std::string values(std::span<const Expr> numbers);
  std::string values(std::initializer_list<Expr> numbers) {
    return values(std::span(numbers.begin(), numbers.size()));
  }
  /// Statements that define `variables[i]` as the position along axis i of row-major element
  /// `index`, an expression of type Index that is not negative. Divisions by constants are cheap;
  /// axes that are always contiguous should be merged first.
  std::string decompose(std::string_view index, std::span<const std::string> variables,
                        std::span<const Expr> extents);
  /// "a * 3 + b * s1": positions times strides, without terms that are 0; "0" when nothing is left.
  std::string offset(std::span<const std::string> variables, std::span<const Expr> strides);

  /// The code of a function from a row-major number to its place: the positions along the axes
  /// times strides.
  std::string place(std::span<const Expr> extents, std::span<const Expr> strides);

  /// Declares an input or output with another element type than its storage type.
  void set_input_type(int input, std::string_view type) { input_types_[input] = type; }
  void set_output_type(int output, std::string_view type) { output_types_[output] = type; }
  /// Makes Index 64 bits wide. To be called before anything is written.
  void widen() { narrow_ = false; }
  /// Makes runs end with an Error of that message where the condition is 0; see KernelCode::checks.
  void check(const Expr& condition, std::string message);
  void check_equal(const Expr& a, const Expr& b, std::string message) {
    check(Expr::make(ExprOp::kEqual, a, b), std::move(message));
  }
  /// Gives the code `counter0`, `counter1`, ..., pointers to an `unsigned long long` each. No other
  /// kernel uses that memory. The counters are 0 before the first run, and each run must leave them
  /// 0.
  void add_counters(int count) { counters_ = count; }
  /// Gives the code `scratch`, a pointer to `bytes` bytes with any content.
  void add_scratch(std::string_view type, int64_t bytes) { scratch_type_ = type, scratch_ = bytes; }
  /// Gives the code a `TensorMap` of that name. The tensor memory accelerator takes its address.
  void add_map(std::string name, KernelTensorMap map) {
    map_names_.push_back(std::move(name)), maps_.push_back(std::move(map));
  }
  /// Adds device functions and types in front of the kernel.
  void add_declarations(std::string_view text) { declarations_ += text; }

  /// Statements that wait for earlier kernels: this kernel may begin while they end. Only behind
  /// them the code may read inputs that are not constant, and write outputs. finish() puts them at
  /// the start of the body unless wait() has been called.
  std::string wait();
  /// The code waits by itself: finish() adds no statements for it.
  void leave_waiting() { waits_ = true; }
  /// The statement that lets the next kernel begin once all blocks have reached it. The next
  /// kernel's blocks then start where this kernel's blocks leave room, and wait there.
  static constexpr const char* kBeginNext = "begin_next_kernel();\n";

  /// Finishes the kernel with that body, on a grid of `blocks` blocks of `threads` threads.
  /// `blocks` may exceed the limit of a grid: loops by index_step() then take the rest. The
  /// compiler limits registers so that a multiprocessor has room for at least `blocks_at_once`
  /// blocks; 0: no limit. `cluster` blocks run together and reach each other's shared memory.
  /// `blocks` must be a multiple of it.
  GeneratedKernel finish(std::string_view body, const Expr& blocks, int threads,
                         int blocks_at_once = 0, int cluster = 1);

 private:
  KernelSource(std::string name, const KernelArgs& args, bool is_in_memory);

  std::string name_;
  const KernelArgs& args_;
  std::vector<SymShape> dims_;
  bool narrow_ = true;
  int symbols_ = 0;
  std::vector<int64_t> typical_;
  std::vector<int> shape_inputs_;
  std::vector<std::vector<Expr>> shape_input_values_;
  std::vector<Expr> arguments_;
  std::vector<KernelCheck> checks_;
  std::vector<std::string> input_types_, output_types_;
  std::string declarations_, scratch_type_;
  int64_t scratch_ = 0;
  std::vector<std::string> map_names_;
  std::vector<KernelTensorMap> maps_;
  int counters_ = 0;
  bool waits_ = false;

  bool begins_early() const;
};

/// The place in memory of the element of an input of FusedPlace::kRepeated that belongs to the
/// output's element at `place`. `channels` is the output's number of channels, which are neighbours
/// where it is channels-last.
std::string repeated_place(KernelSource& source, const KernelArgs& args, int input,
                           std::string_view place, const Expr& channels);
/// Whether neighbours along the output's last `axes` axes are neighbours in such an input. The
/// input must have all of these axes; otherwise it repeats between them.
bool repeats_whole_axes(const KernelArgs& args, int input, int axes);

/// The parts with the separator between them.
std::string joined(std::span<const std::string> parts, std::string_view separator);
/// Row-major strides in elements of a tensor with these extents.
SymShape row_major_strides(std::span<const Expr> extents);
/// How many units hold the number.
inline int64_t divide_up(int64_t number, int64_t unit) { return (number + unit - 1) / unit; }
/// The next multiple of `unit`.
inline int64_t round_up(int64_t number, int64_t unit) { return divide_up(number, unit) * unit; }
/// Blocks for `count` threads, with `threads` threads per block; none for a count of 0.
inline Expr blocks_for(const Expr& count, int threads) { return ceil_div(count, Expr(threads)); }

}  // namespace opwright::gpu
