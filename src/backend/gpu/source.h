#pragma once

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

/// The type that generated code has for stored elements: "float", "Half", "BFloat16", "Fp8",
/// "Bool", "signed char", ... Throws Error for types of 4 bits.
std::string_view storage_type(DataType type);
/// The type that elements are computed in: "float" for all floating types, "unsigned char" (0 or 1)
/// for BOOL, else the integer type. `load(x)` makes it from the stored one, `store<Storage>(v)`
/// the stored one from it.
std::string_view register_type(DataType type);
/// An unsigned integer type for elements whose bits are only moved: 1, 2, 4, 8 or 16 bytes.
std::string_view carrier_type(int bytes);
/// Threads of a block where nothing speaks for another number.
inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;
/// About as many as GPUs have multiprocessors, which fewer blocks leave idle.
inline constexpr int64_t kFewBlocks = 132;
/// The first architectures whose tensor cores multiply FP16 and BF16 by m16n8k16, and that copy to
/// shared memory without registers; whose blocks of a cluster reach each other's shared memory;
/// that copy boxes and whole rows to it; and whose kernels may begin before others end.
inline constexpr int kTensorArchitecture = 80, kClusterArchitecture = 90, kBulkArchitecture = 90,
                     kEarlyArchitecture = 90;
/// The one whose warpgroups multiply.
inline constexpr int kWarpGroupArchitecture = 90;
/// 90 of "sm_90" and "sm_90a".
int architecture_number(std::string_view architecture);
/// What the kernels of the query are to run on: the number of the device's architecture, or, for
/// all from compute capability 8.0 on, that of one with the least of what those have.
int target_architecture(const CandidateQuery& query);
int target_architecture(const KernelArgs& args);
/// Bytes of shared memory that a block of that architecture may have.
int64_t most_shared_memory(int architecture);

/// Bytes after which the patterns of boxes in shared memory repeat: tiles begin at multiples.
inline constexpr int64_t kBoxPattern = 1024;

/// A floating constant as code that gives exactly that value, NaN and infinities included.
std::string float_literal(float value);

/// The axis of a tensor of that rank that is number `place` in memory, the outermost being 0:
/// channels-last, axis 1 comes last. Blocked formats have no such order.
int axis_in_memory(TensorFormat format, int rank, int place);
/// Bits for axes, of which bit i is axis i, as bits for their places in memory.
int64_t axes_in_memory(TensorFormat format, int rank, int64_t axes);

/// The ports of a kernel with extents in the order in which their axes lie in memory, for kernels
/// that treat all axes alike.
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

/// Writes the source of one kernel. Its parameters are those that KernelCode asks for: `in0`,
/// `in1`, ... (`const T* __restrict__`; null where an input is absent), one per number that the
/// profile leaves open, `out0`, `out1`, ... Every source begins with:
///  - `Index` and `UIndex`, the signed and unsigned integers for elements and offsets: 32 bits wide
///    where the profile lets no tensor have more than 2^30 elements, else 64;
///  - prelude.cuh: the storage types with `load` and `store`, `convert<To>(register value)` between
///    register types with the conversions of base/half.h, `Pack<T, n>` of n neighbours that is
///    loaded and stored in one access (`is_aligned<T, n>(pointer)` tells whether it may be);
///  - `first_index()` and `index_step()` of a loop over elements by all threads of the grid.
class KernelSource {
 public:
  /// `name` is the symbol that the code exports. The arguments outlive the writer.
  KernelSource(std::string name, const KernelArgs& args);
  /// For a kernel to which dims() are extents in the order of memory.
  KernelSource(std::string name, const PortsInMemory& ports);

  /// The extents of an input: constants where the profile has one value, else symbols.
  const SymShape& dims(int input) const { return dims_[input]; }
  /// The elements of a shape input, which are constants or become symbols.
  std::vector<Expr> shape_values(int input);
  /// What an expression over the inputs' extents is at the profile's optimum.
  int64_t typical(const Expr& expr) const { return expr.evaluate(typical_); }
  /// Whether Index has 32 bits.
  bool is_narrow() const { return narrow_; }

  /// How the code writes the number: a literal, or the name of an argument of type Index. The same
  /// expression is the same argument.
  std::string value(const Expr& expr);
  /// Statements that define `variables[i]` as the position of row-major element `index` (an
  /// expression of type Index, not negative) along axis i. Divisions by constants are cheap, so
  /// axes that always lie together should be merged before.
  std::string decompose(std::string_view index, std::span<const std::string> variables,
                        std::span<const Expr> extents);
  /// "a * 3 + b * s1": positions times strides, without terms that are 0; "0" when nothing is left.
  std::string offset(std::span<const std::string> variables, std::span<const Expr> strides);

  /// Declares an input or output with another element type than its storage type.
  void set_input_type(int input, std::string_view type) { input_types_[input] = type; }
  void set_output_type(int output, std::string_view type) { output_types_[output] = type; }
  /// Makes Index 64 bits wide. Before anything is written.
  void widen() { narrow_ = false; }
  /// Runs end with an Error of that message where the condition is 0; see KernelCode::checks.
  void check(const Expr& condition, std::string message);
  void check_equal(const Expr& a, const Expr& b, std::string message) {
    check(Expr::make(ExprOp::kEqual, a, b), std::move(message));
  }
  /// Gives the code `counter0`, `counter1`, ..., pointers to an `unsigned long long` each, in
  /// memory that no other kernel has: 0 before the first run, as each run must leave it.
  void add_counters(int count) { counters_ = count; }
  /// Gives the code `scratch`, a pointer to so many bytes, of any content.
  void add_scratch(std::string_view type, int64_t bytes) { scratch_type_ = type, scratch_ = bytes; }
  /// Gives the code a `TensorMap` of that name, whose address the copying unit takes.
  void add_map(std::string name, KernelTensorMap map) {
    map_names_.push_back(std::move(name)), maps_.push_back(std::move(map));
  }
  /// Device functions and types in front of the kernel.
  void add_declarations(std::string_view text) { declarations_ += text; }

  /// The statements behind which inputs that are no constants may be read, and outputs written:
  /// kernels begin while those before them end. finish() begins the body with them unless they
  /// were asked for before.
  std::string wait();
  /// The statement with which the next kernel may begin, once all blocks have come to it: its
  /// blocks then wait where this one's leave room.
  static constexpr const char* kBeginNext = "begin_next_kernel();\n";

  /// The kernel with that body, on a grid of `blocks` blocks of `threads` threads, which may be
  /// more than a grid has: loops by index_step() then take the rest. Registers are allotted so that
  /// a multiprocessor has at least `blocks_at_once`; 0: as the compiler likes. `cluster` blocks,
  /// into which `blocks` divide, run together and reach each other's shared memory.
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

/// The place in memory of what an input of FusedPlace::kRepeated has for the output's element at
/// `place`. `channels`: of the output, which are neighbours where it is channels-last.
std::string repeated_place(KernelSource& source, const KernelArgs& args, int input,
                           std::string_view place, const Expr& channels);
/// Whether neighbours of the output's last `axes` have neighbours of such an input, which has all
/// of these axes; else it begins anew between them.
bool repeats_whole_axes(const KernelArgs& args, int input, int axes);

/// Row-major strides in elements of a tensor with these extents.
SymShape row_major_strides(std::span<const Expr> extents);
/// Blocks for `count` threads, each block having `threads`; none for a count of 0.
inline Expr blocks_for(const Expr& count, int threads) { return ceil_div(count, Expr(threads)); }

}  // namespace opwright::gpu
