#include <algorithm>

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/product.h"
#include "backend/gpu/product_cost.h"
#include "backend/gpu/row_product.h"
#include "base/types.h"
#include "operators/matrix.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// A stack of matrices or vectors. A vector is a row of a or a column of b.
struct MatrixStack {
  SymShape stack;
  Expr along_k, across;
  bool is_along_k = true;

  MatrixStack(const SymShape& dims, MatrixOperation op, bool is_a) {
    const size_t rank = dims.size();
    if (op == MatrixOperation::kVECTOR) {
      stack.assign(dims.begin(), dims.end() - 1);
      along_k = dims[rank - 1], across = 1;
      return;
    }
    stack.assign(dims.begin(), dims.end() - 2);
    is_along_k = is_a == (op == MatrixOperation::kNONE);
    along_k = dims[rank - (is_along_k ? 1 : 2)], across = dims[rank - (is_along_k ? 2 : 1)];
  }

  /// Distance of neighbouring rows in memory.
  const Expr& stride() const { return is_along_k ? along_k : across; }
  bool is_single() const { return are_ones(stack); }
};

/// The axes of the output's stack, and the matrices by which a and b advance along them. An operand
/// does not advance along an axis where it has a single matrix.
struct ProductStack {
  SymShape extents, a_strides, b_strides;

  ProductStack(const MatrixStack& a, const MatrixStack& b) {
    const size_t rank = std::max(a.stack.size(), b.stack.size());
    Expr a_stride = 1, b_stride = 1;
    const auto extent = [&](const MatrixStack& of, size_t axis) {
      const size_t missing = rank - of.stack.size();
      return axis < missing ? Expr(1) : of.stack[axis - missing];
    };
    const auto is_one = [](const Expr& of) { return Expr::make(ExprOp::kEqual, of, Expr(1)); };
    for (size_t axis = rank; axis-- > 0;) {
      const Expr of_a = extent(a, axis), of_b = extent(b, axis);
      if (of_a == Expr(1) && of_b == Expr(1)) continue;
      extents.insert(extents.begin(), Expr::select(is_one(of_a), of_b, of_a));
      a_strides.insert(a_strides.begin(), Expr::select(is_one(of_a), Expr(0), a_stride));
      b_strides.insert(b_strides.begin(), Expr::select(is_one(of_b), Expr(0), b_stride));
      a_stride = a_stride * of_a, b_stride = b_stride * of_b;
    }
  }
};

GeneratedKernel write(const MatrixMultiplyParams& params, const KernelArgs& args,
                      const RowProduct* row_product = nullptr) {
  ProductWriter writer("matrix_multiply", args);
  if (row_product != nullptr && row_product->params().normalizes)
    writer.normalize_rows(row_product->scale(), row_product->params().epsilon);
  KernelSource& source = writer.source();
  MatrixStack a(source.dims(0), params.op0, true);
  const MatrixStack b(source.dims(1), params.op1, false);
  ProductEpilogue epilogue;
  const bool bias_is_by_row = params.op1 == MatrixOperation::kVECTOR;
  if (params.has_bias && args.inputs[2].present) {
    epilogue.bias = 2;
    const bool is_single = numel(source.dims(2)) == Expr(1);
    epilogue.bias_element = is_single ? "0" : bias_is_by_row ? "row" : "column";
  }
  epilogue.activation = params.activation, epilogue.program = params.fused;
  epilogue.channel_element = bias_is_by_row ? "row" : "column";
  const bool has_channels =
      epilogue.bias >= 0 || std::count(params.fused.places.begin(), params.fused.places.end(),
                                       static_cast<int64_t>(FusedPlace::kChannel)) > 0;
  // Where all products share one matrix b, the rows of a's matrices form one matrix.
  if (b.is_single() && a.is_along_k && !(has_channels && bias_is_by_row)) {
    a.across = numel(a.stack) * a.across;
    a.stack.clear();
  }
  const ProductStack stack(a, b);
  std::vector<std::string> places;
  for (size_t i = 0; i < stack.extents.size(); ++i) places.push_back(str("batch", i));
  const auto matrix = [&](bool is_a, int input, const MatrixStack& of, const SymShape& strides) {
    std::vector<Expr> aligned = {of.stride()};
    if (!strides.empty()) aligned.push_back(of.along_k * of.across);
    const MatrixStackPlace place{source.offset(places, strides), numel(of.stack),
                                 of.along_k * of.across};
    return writer.matrix(is_a, input, of.is_along_k, place, of.across, of.stride(), a.along_k,
                         writer.alignment(input, aligned));
  };
  const ProductOperand left = matrix(true, 0, a, stack.a_strides);
  const ProductOperand right = matrix(false, 1, b, stack.b_strides);
  return writer.write(a.across, b.across, a.along_k, numel(stack.extents),
                      source.decompose("task.batch", places, stack.extents), left, right,
                      a.across * b.across, b.across, epilogue);
}

std::vector<Candidate> matrix_multiply_candidates(const Operator& op, const CandidateQuery& query) {
  const MatrixMultiplyParams& params = static_cast<const MatrixMultiply&>(op).params();
  std::vector<Candidate> found;
  const SymShape dims_a = sym_shape(query.inputs[0].opt), dims_b = sym_shape(query.inputs[1].opt);
  const MatrixStack a(dims_a, params.op0, true), b(dims_b, params.op1, false);
  const int64_t k = a.along_k.constant(), n = b.across.constant();
  const int64_t m =
      a.across.constant() * (b.is_single() && a.is_along_k ? numel(a.stack).constant() : 1);
  const int64_t outputs = query.outputs[0].opt.numel();
  const ProductSize size = {m,
                            n,
                            k,
                            m * n == 0 ? 0 : outputs / (m * n),
                            has_fixed_shapes(query),
                            a.is_along_k && b.is_along_k};
  for (const DataType type : product_types(query)) {
    Candidate candidate;
    for (const PortDesc& port : query.inputs)
      candidate.inputs.push_back({port.present && port.is_constant ? port.type.dtype : type});
    candidate.inputs[0].dtype = type;
    candidate.inputs[1].dtype = is_floating(type) ? type : query.inputs[1].type.dtype;
    candidate.outputs = {{type_of_product(type)}};
    set_fused_types(candidate, params.fused, query, type, TensorFormat::kLINEAR);
    const int architecture = target_architecture(query);
    ProductWork work = {.size = size, .type = type};
    const auto is_aligned = [&](const MatrixStack& of) {
      return of.stride().constant() % vector_of(type) == 0;
    };
    if (!is_aligned(a)) work.a = OperandCopy::kElements;
    if (!is_aligned(b)) work.b = OperandCopy::kElements;
    work.has_boxes = is_aligned(a) && is_aligned(b);
    set_bytes(work, candidate, query);
    work.operations = operations_of(params.fused, params.activation);
    const auto add = [&](int64_t number) {
      const ProductTactic tactic = product_tactic(number);
      candidate.tactic = number;
      candidate.tactic_name = tactic.name(type);
      candidate.estimated_ms =
          static_cast<float>(product_ms(tactic, work, gpu_rates(architecture)));
      found.push_back(candidate);
    };
    // Candidates are timed on their own, where other tiles may seem faster than they are in a chain
    // of kernels.
    if (b.is_along_k && a.is_along_k && query.inputs[1].is_constant && size.batches == 1 &&
        candidate.inputs[1].dtype == type) {
      const std::vector<int64_t> of_chain =
          chain_tactics(type, size, 1, false, architecture, false);
      for (const int64_t tactic : of_chain)
        if (!query.all_tactics) add(tactic);
      if (!of_chain.empty() && !query.all_tactics) continue;
    }
    for (const int64_t tactic :
         row_product_tactics(type, candidate.inputs[1].dtype, size, a.is_along_k, b.is_along_k,
                             query.inputs[1].is_constant, architecture, query.all_tactics))
      add(tactic);
    for (const ProductUnit unit : product_units(type, candidate.inputs[1].dtype, query)) {
      for (const int64_t tactic :
           product_tactics(type, unit, size, architecture, query.all_tactics))
        add(tactic);
    }
  }
  return found;
}

std::optional<GeneratedKernel> generate_matrix_multiply(const Operator& op,
                                                        const KernelArgs& args) {
  return write(static_cast<const MatrixMultiply&>(op).params(), args);
}

const RegisteredKernels<MatrixMultiply> kMatrixMultiplyKernels(
    {.candidates = matrix_multiply_candidates,
     .generate = generate_matrix_multiply,
     .make = nullptr,
     .tactics = [] {
       return product_tactic_names(
           {ProductUnit::kTensor, ProductUnit::kScalar, ProductUnit::kWarpGroup, ProductUnit::kRows,
            ProductUnit::kStreamedRows},
           {DataType::kHALF, DataType::kFP8, DataType::kINT8, DataType::kFLOAT});
     }});

std::vector<Candidate> row_product_candidates(const Operator& op, const CandidateQuery& query) {
  const auto& row_product = static_cast<const RowProduct&>(op);
  const RowProductParams& params = row_product.params();
  const Shape &rows = query.inputs[0].opt, &columns = query.inputs[1].opt;
  const int64_t k = columns[1];
  const ProductSize size = {rows.numel() / std::max<int64_t>(1, k), columns[0], k, 1,
                            has_fixed_shapes(query)};
  const bool is_paired =
      std::ranges::find(params.fused.places, static_cast<int64_t>(FusedPlace::kProduct)) !=
      params.fused.places.end();
  const size_t program = query.inputs.size() - params.fused.inputs();
  const auto is_constant = [&](size_t input) { return query.inputs[input].is_constant; };
  bool fits = is_constant(1) && (!params.normalizes || is_constant(row_product.scale()));
  for (size_t i = program; i < query.inputs.size(); ++i)
    fits =
        fits && (params.fused.places[i - program] != static_cast<int64_t>(FusedPlace::kProduct) ||
                 is_constant(i));
  if (!fits || k == 0) return {};
  const DataType type = query.inputs[0].type.dtype;
  std::vector<Candidate> found;
  for (const int64_t tactic : chain_tactics(type, size, is_paired ? 2 : 1, params.normalizes,
                                            target_architecture(query), query.all_tactics)) {
    Candidate candidate = linear_candidate(query, product_tactic(tactic).name(type));
    candidate.tactic = tactic;
    found.push_back(std::move(candidate));
  }
  return found;
}

std::optional<GeneratedKernel> generate_row_product(const Operator& op, const KernelArgs& args) {
  const auto& row_product = static_cast<const RowProduct&>(op);
  return write(row_product.params(), args, &row_product);
}

const RegisteredKernels<RowProduct> kRowProductKernels({.candidates = row_product_candidates,
                                                        .generate = generate_row_product,
                                                        .make = nullptr,
                                                        .tactics = [] {
                                                          return product_tactic_names(
                                                              {ProductUnit::kStreamedRows}, {});
                                                        }});

}  // namespace
}  // namespace opwright::gpu
