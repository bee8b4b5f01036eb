#include "backend/gpu/product.h"

#include <algorithm>
#include <limits>

#include "backend/gpu/part_counters.h"
#include "backend/gpu/pointwise_math.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/pointwise.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// The fewest addends of an FP32 sum that is taken in parts, and the addends of a part.
constexpr int64_t kLongSum = 8192, kPartOfSum = 256;

}  // namespace

ProductWriter::ProductWriter(std::string name, const KernelArgs& args, int64_t tactic)
    : args_(args),
      source_(std::move(name), args),
      tile_(product_tactic(tactic).tile),
      parts_(product_tactic(tactic).parts),
      output_(args.outputs[0].type.dtype) {}

int64_t ProductWriter::steps_of_part(const Expr& k) const {
  int64_t most = std::numeric_limits<int64_t>::max();  // an upper bound of k
  if (k.is_constant()) {
    most = k.constant();
  } else {
    for (const PortDesc& port : args_.inputs.first(2)) {
      int64_t longest = 1;
      for (const int64_t extent : port.max) longest = std::max(longest, extent);
      most = std::min(most, longest);
    }
  }
  return is_floating(sum_type_) && most >= kLongSum ? kPartOfSum / tile_.k : 0;
}

std::string ProductWriter::alignment(int input, const std::vector<Expr>& strides) {
  const DataType type = args_.inputs[input].type.dtype;
  return alignment(str("in", input), type, strides, vector_of(type));
}

std::string ProductWriter::alignment(const std::string& pointer, DataType type,
                                     const std::vector<Expr>& strides, int vector) {
  std::string test = str("is_aligned<", storage_type(type), ", ", vector, ">(", pointer, ")");
  for (const Expr& stride : strides)
    if (!stride.is_constant() || stride.constant() % vector != 0)
      test += str(" && ", source_.value(stride), " % ", vector, " == 0");
  return test;
}

ProductOperand ProductWriter::matrix(bool is_a, int input, bool is_along_k,
                                     const MatrixStackPlace& place, const Expr& extent,
                                     const Expr& stride, const Expr& k,
                                     const std::string& is_aligned) {
  const std::string_view origin = is_a ? "task.first_row" : "task.first_column";
  const std::string step = source_.value(stride);
  std::string from = str("in", input);
  if (place.count != Expr(1))
    from += str(" + (", place.number, ") * ", source_.value(place.stride));
  ProductOperand operand = {
      is_along_k, args_.inputs[input].type.dtype, str("MatrixReader<", side(is_a), ">"),
      str("{", from, " + ", origin, is_along_k ? " * " + step : std::string(), ", ", step, ", ",
          source_.value(extent), " - ", origin, ", ", source_.value(k), ", ", is_aligned, "}"),
      args_.inputs[input].is_constant};
  // TMA needs rows and matrices that begin at multiples of 16 bytes for all shapes, and k > 0.
  const int vector = vector_of(operand.type);
  const auto is_aligned_by = [&](const Expr& number) {
    return number.is_constant() && number.constant() % vector == 0;
  };
  const bool has_matrices = place.count != Expr(1);
  if (!k.is_constant() || k.constant() == 0 || !is_aligned_by(stride) ||
      (has_matrices && !is_aligned_by(place.stride)))
    return operand;
  const int extent_of_tile = is_a ? tile_.m : tile_.n;
  KernelTensorMap map;
  map.input = input, map.type = operand.type;
  map.extents = {is_along_k ? k : extent, is_along_k ? extent : k, place.count};
  map.strides = {stride, has_matrices ? place.stride : Expr(vector)};
  map.box = {8 * vector, is_along_k ? extent_of_tile : tile_.k, 1};
  map.steps = {1, 1, 1};
  operand.map = std::move(map);
  operand.box_reader = str("MatrixBoxes<", side(is_a), ">");
  operand.make_boxes = str("{", is_a ? "a_map" : "b_map", ", ", origin, ", ", place.number, "}");
  return operand;
}

void ProductWriter::stage_behind(const Expr& m, const Expr& n, const Expr& batches,
                                 const Expr& row_stride, const ProductEpilogue& epilogue) {
  int found = epilogue.residual;
  const FusedProgram& program = epilogue.program;
  const int first = first_program_input(args_, program);
  for (int i = 0; i < program.inputs() && found < 0; ++i)
    if (static_cast<FusedPlace>(program.places[i]) == FusedPlace::kElement) found = first + i;
  // Results in registers are unrolled: the program is compiled for each sum of a thread. A long
  // program, such as several quantizations, takes the compiler too long. It is computed in a loop
  // instead, with sums that go through shared memory.
  constexpr size_t kLongProgram = 24;
  const bool is_long = program.present() && is_quantized(args_.inputs[0].type.dtype) &&
                       decode(program.program).size() > kLongProgram;
  // The blocks of a cluster write their sums over the stages.
  if (found < 0 || is_long || parts_ > 1 || batches != Expr(1) || scattered_) return;
  // The tensor's tiles are swizzled as those of the operands, in whole columns of blocks. Results
  // that are stored at once take elements of one vector.
  const DataType type = args_.inputs[found].type.dtype;
  const auto is_aligned = [&](const Expr& number) {
    return number.is_constant() && number.constant() > 0 &&
           number.constant() % vector_of(type) == 0;
  };
  if (bits(type) > 16 || (bits(type) == 8 && bits(args_.inputs[0].type.dtype) != 8) ||
      type == DataType::kBOOL || bits(output_) < bits(type) ||
      tile_.n % (8 * vector_of(type)) != 0 || !is_aligned(n) || !is_aligned(row_stride))
    return;
  staged_ = found;
  KernelTensorMap map;
  map.input = staged_, map.type = type;
  map.extents = {n, m, 1};
  map.strides = {row_stride, Expr(vector_of(type))};
  map.box = {8 * vector_of(type), tile_.m, 1};
  map.steps = {1, 1, 1};
  source_.add_map("behind_map", std::move(map));
}

std::string ProductWriter::write_prefetch(const ProductEpilogue& epilogue) const {
  const FusedProgram& program = epilogue.program;
  const int first = first_program_input(args_, program);
  const bool copies_tiles =
      tile_.unit != ProductUnit::kRows && tile_.unit != ProductUnit::kStreamedRows;
  std::string text;
  const auto add = [&](int input, FusedPlace place, std::string_view element) {
    if (tile_.unit == ProductUnit::kRows && place == FusedPlace::kElement)
      text += str("fetch_rows(all, task, in", input, ");\n");
    if (copies_tiles && place == FusedPlace::kChannel && element == "column" &&
        args_.inputs[input].is_constant)
      text += str("prefetch_columns<C>(in", input, ", task.first_column, all.columns);\n");
  };
  if (epilogue.residual >= 0) add(epilogue.residual, FusedPlace::kElement, {});
  if (epilogue.bias >= 0) add(epilogue.bias, FusedPlace::kChannel, epilogue.bias_element);
  for (int i = 0; i < program.inputs(); ++i)
    add(first + i, static_cast<FusedPlace>(program.places[i]), epilogue.channel_element);
  return str("[&](const ProductTask& task) {\n", text, "}");
}

ProductWriter::DeviceKernel ProductWriter::tiles(const ProductOperand& a, const ProductOperand& b,
                                                 const Expr& k, const Expr& tasks) {
  const bool is_tensor = tile_.unit == ProductUnit::kTensor;
  if (is_tensor)
    config_.flag("kPromotes", a.type == DataType::kFP8);
  else
    config_.number("kStepsOfPart", steps_of_part(k));
  const int64_t bytes = shared_bytes(tile_, a.type, a.is_along_k, b.is_along_k);
  config_.number("kSharedBytes", bytes);
  source_.add_declarations(include(is_tensor ? "product_tensor.cuh" : "product_scalar.cuh"));
  std::string scratch = "nullptr", counters = "nullptr";
  if (parts_ > 1) {
    const int64_t count = tasks.constant() / parts_;
    source_.add_scratch(register_type(sum_type_),
                        tasks.constant() * tile_.m * tile_.n * bits(sum_type_) / 8);
    scratch = "scratch", counters = add_part_counters(source_, count);
  }
  return {"product.cuh",
          "TileConfig",
          str("unsigned long long* const counters[] = {", counters,
              "};\nmultiply_by_tiles<Config, ", is_tensor ? "TensorProduct" : "ScalarProduct",
              ">(all, program, ", scratch, ", counters);\n"),
          tasks,
          kWarp * tile_.warps_m * tile_.warps_n,
          bytes};
}

GeneratedKernel ProductWriter::write(const Expr& m, const Expr& n, const Expr& k,
                                     const Expr& batches, const std::string& of_batch,
                                     const ProductOperand& a, const ProductOperand& b,
                                     const Expr& batch_stride, const Expr& row_stride,
                                     const ProductEpilogue& epilogue) {
  sum_type_ = sum_type(a.type);
  pack_ = scattered_ ? scattered_->pack : vector_of(output_);
  const bool has_boxes = copies_boxes(a, b);
  if (has_boxes) {
    source_.add_map("a_map", *a.map), source_.add_map("b_map", *b.map);
    stage_behind(m, n, batches, row_stride, epilogue);
  }
  is_packed_ = keeps_registers(epilogue);
  const ResultProgram results =
      is_packed_ ? write_packed_results(args_, epilogue, of_batch, "all.columns")
                 : write_results(source_, args_, epilogue, row_stride, pack_, staged_, of_batch);
  const Expr tiles_m = ceil_div(m, Expr(tile_.m)), tiles_n = ceil_div(n, Expr(tile_.n));
  const Expr tasks = tiles_m * tiles_n * batches * Expr(parts_);

  config_.type("ElementA", storage_type(a.type)), config_.type("ElementB", storage_type(b.type));
  config_.type("Sum", register_type(sum_type_)), config_.type("Output", storage_type(output_));
  config_.number("kTileM", tile_.m), config_.number("kTileN", tile_.n);
  config_.number("kTileK", tile_.k), config_.number("kStages", tile_.stages);
  config_.number("kWarpsM", tile_.warps_m), config_.number("kWarpsN", tile_.warps_n);
  config_.number("kParts", parts_), config_.number("kPack", pack_);
  config_.type("Places", scattered_ ? std::string_view(scattered_->type) : "RowPlaces");
  config_.flag("kAlongKA", a.is_along_k), config_.flag("kAlongKB", b.is_along_k);
  config_.flag("kIsConstantA", a.is_constant), config_.flag("kIsConstantB", b.is_constant);
  config_.flag("kHasProgram", epilogue.program.present());
  const DeviceKernel kernel = tile_.unit == ProductUnit::kWarpGroup ? warp_groups(a, b, tasks)
                              : tile_.unit == ProductUnit::kRows    ? rows(tasks)
                              : tile_.unit == ProductUnit::kStreamedRows
                                  ? row_stream(m, k, epilogue, tasks)
                                  : tiles(a, b, k, tasks);
  if (scattered_) source_.add_declarations(include("scattered_places.cuh"));
  source_.add_declarations(str(include(kernel.header), config_.write(), "typedef ", kernel.config,
                               "<Config> C;\ntypedef SideA<C> A;\ntypedef SideB<C> B;\n"));
  if (epilogue.activation.present() || epilogue.program.present())
    source_.add_declarations(pointwise_functions(bits(output_) <= 16));
  source_.add_declarations(has_boxes ? box_readers_ : readers_);

  const auto value = [&](const Expr& number) { return source_.value(number); };
  const std::string stores =
      alignment("out0", output_, {row_stride, scattered_ ? scattered_->row_length : n}, pack_);
  std::string arguments = "out0";
  for (const Expr& each :
       {m, n, ceil_div(k, Expr(tile_.k)), tiles_m, tiles_n, tasks, row_stride, batch_stride})
    arguments += str(", ", value(each));
  const std::string readers =
      has_boxes ? str(a.box_reader, a.make_boxes, ", ", b.box_reader, b.make_boxes)
                : str(a.reader, a.make, ", ", b.reader, b.make);
  const std::string text =
      str("const ProductArguments<C> all = {", arguments, ", ", stores, ", {",
          scattered_ ? scattered_->make : std::string(),
          "}};\nconst ProductProgram program{\n[&](const ProductTask& task) {\n", of_batch,
          "return ProductReaders{", readers, "};\n},\n", write_prefetch(epilogue), ",\n[&] {\n",
          source_.wait(), "},\n", results.columns, ",\n", results.read, ",\n", results.make, "};\n",
          kernel.call);
  GeneratedKernel result =
      source_.finish(text, kernel.blocks, kernel.threads, kernel.blocks_at_once, kernel.cluster);
  result.launch.shared_memory = kernel.shared_memory;
  result.is_for_one_architecture = tile_.unit == ProductUnit::kWarpGroup;
  return result;
}

}  // namespace opwright::gpu
