#include "operators/matrix.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/candidates.h"
#include "backend/cpu/byte_epilogue.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/dnnl_kernel.h"
#include "backend/cpu/dnnl_post_ops.h"
#include "backend/cpu/dnnl_variant.h"
#include "backend/cpu/dnnl_weights.h"
#include "backend/cpu/integer_tile.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/matrix_product.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "backend/cpu/widened_product.h"
#include "base/error.h"
#include "base/parallel.h"

namespace opwright {
namespace {

using MatrixMultiplyDesc = dnnl::matmul::primitive_desc;
using dnnl::memory;

memory::desc operand_desc(const MatrixOperand& operand, DataType type) {
  return {dnnl_dims(operand.extents), dnnl_type(type), operand.strides};
}

/// A layout for constant matrices that the primitive chooses.
memory::desc any_desc(const MatrixOperand& operand, DataType type) {
  return {dnnl_dims(operand.extents), dnnl_type(type), memory::format_tag::any};
}

/// Extents of the bias for the product. It lies along the columns, or along the rows where b is a
/// vector and the output ends with the rows.
memory::dims bias_extents(const MatrixMultiplyParams& params, const MatrixProduct& product,
                          int64_t count) {
  memory::dims extents(product.rank(), 1);
  const bool along_rows = params.op1 == MatrixOperation::kVECTOR;
  extents[product.rank() - (along_rows ? 2 : 1)] = count;
  return extents;
}

MatrixMultiplyDesc make_desc(const MatrixMultiplyParams& params, const MatrixProduct& product,
                             int64_t bias_count, const Variant& variant, const memory::desc& b) {
  if (variant.input != TensorFormat::kLINEAR) return {};
  dnnl::primitive_attr attributes = workspace_attributes();
  dnnl::post_ops post_ops;
  if (!append_activation(post_ops, params.activation)) return {};
  attributes.set_post_ops(post_ops);
  const memory::desc a = operand_desc(product.a, variant.type);
  const memory::desc output = operand_desc(product.output, variant.type);
  if (bias_count == 0)
    return MatrixMultiplyDesc(dnnl_engine(), a, b, output, attributes, /*allow_empty=*/true);
  const memory::desc bias =
      dense_desc(bias_extents(params, product, bias_count), memory::data_type::f32);
  return MatrixMultiplyDesc(dnnl_engine(), a, b, bias, output, attributes, /*allow_empty=*/true);
}

/// Whether b is one constant matrix that every product shares, whatever the shape of a.
bool is_packable(const MatrixMultiplyParams& params, const PortDesc& b) {
  const int matrix_rank = params.op1 == MatrixOperation::kVECTOR ? 1 : 2;
  return b.is_constant && params.op0 != MatrixOperation::kTRANSPOSE &&
         params.op1 != MatrixOperation::kVECTOR && b.opt.numel(0, b.opt.rank() - matrix_rank) == 1;
}

int64_t bias_count_of(const MatrixMultiplyParams& params, std::span<const PortDesc> inputs) {
  return params.has_bias && inputs.size() > 2 && inputs[2].present ? inputs[2].opt.numel() : 0;
}

memory::desc plain_b(const MatrixMultiplyParams& params, const KernelArgs& args) {
  const MatrixProduct product = analyze_product(params, args.inputs[0].opt, args.inputs[1].opt);
  return operand_desc(product.b, args.inputs[1].type.dtype);
}

class MatrixMultiplyKernel final : public DnnlKernel {
 public:
  MatrixMultiplyKernel(const MatrixMultiplyParams& params, const KernelArgs& args)
      : DnnlKernel(args), params_(params), has_bias_(bias_count_of(params, args.inputs) > 0) {
    if (is_packable(params, args.inputs[1])) weights_.emplace(args, 1, plain_b(params, args));
    if (has_bias_) bias_ = constant_as_float(args.inputs[2]);
  }

  std::vector<PackedInput> packed() const override {
    return weights_ ? weights_->packed() : std::vector<PackedInput>();
  }

 private:
  void build(DnnlProgram& program, std::span<const Shape> inputs,
             std::span<const Shape> outputs) override {
    MatrixProduct product = analyze_product(params_, inputs[0], inputs[1]);
    const bool nothing_to_sum = product.k == 0;
    if (nothing_to_sum) {
      // A sum over nothing is zero: it is computed as a product of zeros with k = 1.
      Shape a = inputs[0], b = inputs[1];
      for (int64_t& extent : a) extent = std::max<int64_t>(extent, 1);
      for (int64_t& extent : b) extent = std::max<int64_t>(extent, 1);
      product = analyze_product(params_, a, b);
    }
    const int64_t bias_count = has_bias_ ? inputs[2].numel() : 0;
    const Selection<MatrixMultiplyDesc> selected = select(product, bias_count, nothing_to_sum);

    std::vector<std::pair<int, Operand>> arguments;
    if (nothing_to_sum) {
      arguments.push_back({DNNL_ARG_SRC, zeros(program, selected.desc.src_desc())});
      arguments.push_back({DNNL_ARG_WEIGHTS, zeros(program, selected.desc.weights_desc())});
    } else {
      const Operand a = program.input(0, operand_desc(product.a, input_type(0).dtype));
      arguments.push_back({DNNL_ARG_SRC, program.as(a, selected.desc.src_desc())});
      const memory::desc plain = operand_desc(product.b, input_type(1).dtype);
      const Operand b = weights_
                            ? weights_->operand(program, plain, selected.desc.weights_desc())
                            : program.as(program.input(1, plain), selected.desc.weights_desc());
      arguments.push_back({DNNL_ARG_WEIGHTS, b});
    }
    if (has_bias_) {
      const memory::desc wanted = selected.desc.bias_desc();
      const memory::desc given = dense_desc(wanted.get_dims(), dnnl_type(input_type(2).dtype));
      arguments.push_back({DNNL_ARG_BIAS, bias_ ? program.constant(bias_.data(), wanted)
                                                : program.as(program.input(2, given), wanted)});
    }
    (void)outputs;
    const Operand output = program.output(0, operand_desc(product.output, output_type(0).dtype));
    const Operand result = program.staging(output, selected.desc.dst_desc());
    arguments.push_back({DNNL_ARG_DST, result});
    program.add(selected.desc, arguments);
    program.copy(result, output);
    program.description = selected.name;
  }

  static Operand zeros(DnnlProgram& program, const memory::desc& desc) {
    return program.constant(
        Blob::make(desc.get_size(), [&](void* bytes) { std::memset(bytes, 0, desc.get_size()); }),
        desc);
  }

  Selection<MatrixMultiplyDesc> select(const MatrixProduct& product, int64_t bias_count,
                                       bool plain) const {
    const auto search = [&](const memory::desc* b) {
      return select_implementation<MatrixMultiplyDesc>(
          input_type(0), output_type(0), candidate().tactic_name, is_reference,
          [&](const Variant& variant) {
            const memory::desc own = weights_ && !plain ? any_desc(product.b, variant.type)
                                                        : operand_desc(product.b, variant.type);
            return make_desc(params_, product, bias_count, variant, b ? *b : own);
          });
    };
    std::optional<Selection<MatrixMultiplyDesc>> selected;
    if (weights_ && weights_->packed_desc() && !plain) selected = search(&*weights_->packed_desc());
    if (!selected || !selected->fast) {
      auto other = search(nullptr);
      if (!selected || (other && other->fast)) selected = std::move(other);
    }
    if (!selected)
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", layer(),
                "': oneDNN has no matrix product for these shapes.");
    return std::move(*selected);
  }

  MatrixMultiplyParams params_;
  bool has_bias_;
  std::optional<DnnlWeights> weights_;  ///< b, where it is packed
  Blob bias_;                           ///< FP32; empty when the bias is not a constant
};

/// `inputs`: the types of the operator's inputs.
MatrixMultiplyDesc make_byte_desc(const MatrixProduct& product, DataType a, const memory::desc& b,
                                  const std::optional<ByteEpilogue>& epilogue,
                                  std::span<const DataType> inputs) {
  dnnl::primitive_attr attributes = workspace_attributes();
  if (!epilogue)
    return MatrixMultiplyDesc(dnnl_engine(), operand_desc(product.a, a), b,
                              operand_desc(product.output, DataType::kINT32), attributes,
                              /*allow_empty=*/true);
  const memory::desc output = operand_desc(product.output, epilogue->result);
  epilogue->append_to(attributes, 1 << (product.rank() - 1), output, inputs);
  memory::dims extents(product.rank(), 1);
  extents.back() = product.n;
  const memory::desc bias = dense_desc(extents, memory::data_type::f32);
  return MatrixMultiplyDesc(dnnl_engine(), operand_desc(product.a, a), b, bias, output, attributes,
                            /*allow_empty=*/true);
}

std::vector<DataType> types_of(std::span<const PortDesc> ports) {
  std::vector<DataType> types;
  for (const PortDesc& port : ports) types.push_back(port.type.dtype);
  return types;
}

/// The epilogue of the product of bytes; none where there is no program, or oneDNN cannot run it.
std::optional<ByteEpilogue> epilogue_of(const MatrixMultiplyParams& params,
                                        std::span<const PortDesc> inputs) {
  const Shape& b = inputs[1].opt;
  if (!params.fused.present() || !kBytes.has(inputs[0].type.dtype) || b.rank() < 2 ||
      params.op1 == MatrixOperation::kVECTOR)
    return std::nullopt;
  const int columns = params.op1 == MatrixOperation::kTRANSPOSE ? 2 : 1;
  return byte_epilogue(params.fused, inputs, b[b.rank() - columns]);
}

/// Products of INT8 or UINT8 and INT8, summed in INT32, with what oneDNN computes from the sums.
class ByteProductKernel final : public DnnlKernel {
 public:
  ByteProductKernel(const MatrixMultiplyParams& params, const KernelArgs& args)
      : DnnlKernel(args), params_(params) {
    require_byte_instructions(args);
    if (is_packable(params, args.inputs[1])) weights_.emplace(args, 1, plain_b(params, args));
    epilogue_ = epilogue_of(params, args.inputs);
    types_ = types_of(args.inputs);
  }

  std::vector<PackedInput> packed() const override {
    return weights_ ? weights_->packed() : std::vector<PackedInput>();
  }

 private:
  void build(DnnlProgram& program, std::span<const Shape> inputs,
             std::span<const Shape> outputs) override {
    const MatrixProduct product = analyze_product(params_, inputs[0], inputs[1]);
    const DataType type = input_type(0).dtype;
    const memory::desc plain = operand_desc(product.b, DataType::kINT8);
    if (product.k == 0) {
      require(!epilogue_, "Layer '", layer(), "': a product over nothing has no epilogue");
      const memory::desc desc = operand_desc(product.output, DataType::kINT32);
      const Blob zeros =
          Blob::make(desc.get_size(), [&](void* bytes) { std::memset(bytes, 0, desc.get_size()); });
      program.copy(program.constant(zeros, desc), program.output(0, desc));
      return;
    }
    MatrixMultiplyDesc desc;
    if (weights_ && weights_->packed_desc())
      desc = make_byte_desc(product, type, *weights_->packed_desc(), epilogue_, types_);
    if (!desc || is_reference(desc.impl_info_str()))
      desc = make_byte_desc(product, type, weights_ ? any_desc(product.b, DataType::kINT8) : plain,
                            epilogue_, types_);
    if (!desc)
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", layer(),
                "': oneDNN has no product of bytes for ", inputs[0], " and ", inputs[1], ".");
    const Operand b =
        weights_ ? weights_->operand(program, plain, desc.weights_desc()) : program.input(1, plain);
    std::vector<std::pair<int, Operand>> arguments = {
        {DNNL_ARG_SRC, program.input(0, operand_desc(product.a, type))},
        {DNNL_ARG_WEIGHTS, b},
        {DNNL_ARG_DST, program.output(0, desc.dst_desc())}};
    if (epilogue_) {
      const Blob bias = Blob::copy(epilogue_->bias.data(), epilogue_->bias.size() * sizeof(float));
      arguments.push_back({DNNL_ARG_BIAS, program.constant(bias, desc.bias_desc())});
      epilogue_->add_arguments(program, arguments, desc.dst_desc(), [&](int input) {
        return operand_desc(product.output, input_type(input).dtype);
      });
    }
    program.add(desc, arguments);
    program.description = desc.impl_info_str();
    (void)outputs;
  }

  MatrixMultiplyParams params_;
  std::optional<DnnlWeights> weights_;  ///< b, where it is packed
  std::optional<ByteEpilogue> epilogue_;
  std::vector<DataType> types_;  ///< of the inputs
};

/// Exact sums of type T, which wrap around as the type does.
template <class A, class B, class T>
class IntegerProductKernel final : public Kernel {
 public:
  explicit IntegerProductKernel(const MatrixMultiplyParams& params) : params_(params) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    rows_ = 0;
    require_countable(inputs), require_countable(outputs);
    product_ = analyze_product(params_, inputs[0], inputs[1]);
    int64_t rows = 1;
    for (int axis = 0; axis < product_.rank() - 1; ++axis) rows *= product_.output.extents[axis];
    rows_ = rows;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const A* a = static_cast<const A*>(inputs[0]);
    const B* b = static_cast<const B*>(inputs[1]);
    T* output = static_cast<T*>(outputs[0]);
    const int64_t row_cost = std::max<int64_t>(product_.n * product_.k, 1);
    if constexpr (std::is_same_v<A, int32_t> && std::is_same_v<B, int32_t>)
      if (product_.b.strides[product_.rank() - 1] == 1) return multiply_tiles(a, b, output);
    parallel_for(rows_, 16384 / row_cost + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) compute_row(a, b, output, row);
    });
  }

  std::string description() const override { return std::string(kIntegerLoop); }

 private:
  using Unsigned = std::make_unsigned_t<T>;
  // The compiler's own vectors, which it maps to any processor's.
  static constexpr int64_t kLanes = 64 / sizeof(T);
  typedef Unsigned Sums __attribute__((vector_size(kLanes * sizeof(T))));
  typedef T Values __attribute__((vector_size(kLanes * sizeof(T))));
  typedef B Elements __attribute__((vector_size(kLanes * sizeof(B))));
  template <class Element>
  static Unsigned widened(Element element) {
    return static_cast<Unsigned>(static_cast<T>(element));
  }

  /// Moves the pointers to a row of a and to the matrix that multiplies it.
  void find(int64_t row, const A*& a, const B*& b) const {
    const int last = product_.rank() - 1;
    int64_t rest = row;
    for (int axis = last - 1; axis >= 0; --axis) {
      const int64_t at = rest % product_.output.extents[axis];
      rest /= product_.output.extents[axis];
      if (product_.a.extents[axis] > 1) a += at * product_.a.strides[axis];
      if (axis < last - 1 && product_.b.extents[axis] > 1) b += at * product_.b.strides[axis];
    }
  }

  void multiply_tiles(const A* a, const B* b, T* output) const {
    const int last = product_.rank() - 1;
    const int64_t rows = std::max<int64_t>(product_.output.extents[last - 1], 1);
    constexpr int64_t kRows = IntegerTile::kMostRows;
    const int64_t blocks = (rows + kRows - 1) / kRows;
    const int64_t cost = std::max<int64_t>(kRows * product_.n * product_.k, 1);
    parallel_for(rows_ / rows * blocks, (1 << 16) / cost + 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block % blocks * kRows, row = block / blocks * rows + first;
        const A* own_a = a;
        const B* own_b = b;
        find(row, own_a, own_b);
        IntegerTile tile;
        tile.a = own_a, tile.b = own_b, tile.y = output + row * product_.n;
        tile.a_row = product_.a.strides[last - 1], tile.a_step = product_.a.strides[last];
        tile.b_row = product_.b.strides[last - 1];
        tile.rows = static_cast<int>(std::min(kRows, rows - first));
        tile.columns = product_.n, tile.k = product_.k;
        multiply_integers(tile);
      }
    });
  }

  void compute_row(const A* a, const B* b, T* output, int64_t row) const {
    const int last = product_.rank() - 1;
    find(row, a, b);
    T* __restrict const to = output + row * product_.n;
    std::fill(to, to + product_.n, T{0});
    const int64_t step = product_.a.strides[last], row_step = product_.b.strides[last - 1];
    const int64_t stride = product_.b.strides[last], columns = product_.n;
    int64_t k = 0;
    // Four rows at once, so that sums are loaded and stored less often.
    for (; stride == 1 && k + 4 <= product_.k; k += 4) {
      const Unsigned factors[4] = {widened(a[k * step]), widened(a[(k + 1) * step]),
                                   widened(a[(k + 2) * step]), widened(a[(k + 3) * step])};
      const B* const from = b + k * row_step;
      int64_t n = 0;
      // Few processors multiply 64-bit vectors, so only 32-bit types take this loop.
      for (; sizeof(T) == 4 && n + kLanes <= columns; n += kLanes) {
        Sums sums;
        std::memcpy(&sums, to + n, sizeof sums);
        for (int row = 0; row < 4; ++row) {
          Elements elements;
          std::memcpy(&elements, from + row * row_step + n, sizeof elements);
          sums += factors[row] * (Sums) __builtin_convertvector(elements, Values);
        }
        std::memcpy(to + n, &sums, sizeof sums);
      }
      const B *r0 = from, *r1 = r0 + row_step, *r2 = r1 + row_step, *r3 = r2 + row_step;
      const Unsigned f0 = factors[0], f1 = factors[1], f2 = factors[2], f3 = factors[3];
      for (; n < columns; ++n)
        to[n] = static_cast<T>(static_cast<Unsigned>(to[n]) + f0 * widened(r0[n]) +
                               f1 * widened(r1[n]) + f2 * widened(r2[n]) + f3 * widened(r3[n]));
    }
    for (; k < product_.k; ++k) {
      const Unsigned factor = widened(a[k * step]);
      const B* from = b + k * row_step;
      for (int64_t n = 0; n < columns; ++n)
        to[n] = static_cast<T>(static_cast<Unsigned>(to[n]) + factor * widened(from[n * stride]));
    }
  }

  MatrixMultiplyParams params_;
  MatrixProduct product_;
  int64_t rows_ = 0;
};

std::unique_ptr<Kernel> make_integer_product(const MatrixMultiplyParams& params, DataType a,
                                             DataType b) {
  if (a == DataType::kINT32)
    return std::make_unique<IntegerProductKernel<int32_t, int32_t, int32_t>>(params);
  if (a == DataType::kINT64)
    return std::make_unique<IntegerProductKernel<int64_t, int64_t, int64_t>>(params);
  const auto with_b = [&]<class A>(A) -> std::unique_ptr<Kernel> {
    if (b == DataType::kINT8)
      return std::make_unique<IntegerProductKernel<A, int8_t, int32_t>>(params);
    return std::make_unique<IntegerProductKernel<A, uint8_t, int32_t>>(params);
  };
  return a == DataType::kINT8 ? with_b(int8_t{}) : with_b(uint8_t{});
}

/// A candidate for bytes; without a program, its result is the sums.
Candidate byte_candidate(const MatrixMultiplyParams& params, const CandidateQuery& query,
                         std::string_view tactic) {
  Candidate candidate = linear_candidate(query, std::string(tactic));
  candidate.outputs = {{params.fused.present() ? params.fused.result : DataType::kINT32}};
  return candidate;
}

/// oneDNN's implementation, where the processor adds the products up exactly.
std::optional<Candidate> byte_instructions(const MatrixMultiplyParams& params,
                                           const CandidateQuery& query) {
  const DataType a = query.inputs[0].type.dtype, b = query.inputs[1].type.dtype;
  const std::optional<ByteEpilogue> epilogue = epilogue_of(params, query.inputs);
  if ((params.fused.present() && !epilogue) || b != DataType::kINT8 ||
      !cpu_device().features().int8)
    return std::nullopt;
  const MatrixProduct product = analyze_product(params, query.inputs[0].opt, query.inputs[1].opt);
  if (query.outputs[0].opt.numel() == 0 || product.k == 0) return std::nullopt;
  const MatrixMultiplyDesc desc = make_byte_desc(
      product, a,
      is_packable(params, query.inputs[1]) ? any_desc(product.b, b) : operand_desc(product.b, b),
      epilogue, types_of(query.inputs));
  if (!desc || is_reference(desc.impl_info_str())) return std::nullopt;
  return byte_candidate(params, query, desc.impl_info_str());
}

/// Candidates for bytes, the fastest first. Slower ones are only for those who want all.
std::vector<Candidate> byte_candidates(const MatrixMultiplyParams& params,
                                       const CandidateQuery& query) {
  std::vector<Candidate> found;
  if (std::optional<Candidate> best = byte_instructions(params, query))
    found.push_back(*std::move(best));
  if ((found.empty() || query.all_tactics) && offers_widened(params.fused, query) &&
      takes_widened(params, query.inputs))
    found.push_back(byte_candidate(params, query, kWidenedBytes));
  if (!params.fused.present() && (found.empty() || query.all_tactics))
    found.push_back(byte_candidate(params, query, kIntegerLoop));
  return found;
}

std::vector<Candidate> matrix_multiply_candidates(const Operator& op, const CandidateQuery& query) {
  const MatrixMultiplyParams& params = static_cast<const MatrixMultiply&>(op).params();
  const DataType type = query.inputs[0].type.dtype;
  std::vector<Candidate> found;
  if (params.fused.present() && !kBytes.has(type)) return found;
  if (type == DataType::kINT32 || type == DataType::kINT64) {
    if (!params.has_bias && !params.activation.present())
      found.push_back({{{type}, {type}}, {{type}}, 0, std::string(kIntegerLoop)});
    return found;
  }
  if (kBytes.has(type)) return byte_candidates(params, query);
  if (!kDnnlFloats.has(type)) return found;
  const MatrixProduct product = analyze_product(params, query.inputs[0].opt, query.inputs[1].opt);
  const bool nothing = query.outputs[0].opt.numel() == 0 || product.k == 0;
  for (const DataType offered : offered_types(query, type)) {
    Candidate candidate;
    for (const PortDesc& port : query.inputs)
      candidate.inputs.push_back({port.is_constant ? port.type.dtype : offered});
    candidate.inputs[0].dtype = offered;
    if (!is_packable(params, query.inputs[1])) candidate.inputs[1].dtype = offered;
    candidate.outputs = {{offered}};
    if (!nothing) {
      const auto best = select_implementation<MatrixMultiplyDesc>(
          candidate.inputs[0], candidate.outputs[0], {}, is_reference, [&](const Variant& variant) {
            const memory::desc b = is_packable(params, query.inputs[1])
                                       ? any_desc(product.b, variant.type)
                                       : operand_desc(product.b, variant.type);
            return make_desc(params, product, bias_count_of(params, query.inputs), variant, b);
          });
      if (!best) continue;
      candidate.tactic_name = best->name;
    }
    found.push_back(candidate);
  }
  return found;
}

/// Makes the likely and the largest extents of the two stacks equal where neither is 1. A fixed
/// extent decides; of two open ones, the smaller.
std::vector<PortDesc> with_fitting_stacks(const MatrixMultiplyParams& params,
                                          std::span<const PortDesc> inputs) {
  std::vector<PortDesc> fitting(inputs.begin(), inputs.end());
  const auto stack_rank = [&](size_t i, MatrixOperation op) {
    return inputs[i].max.rank() - (op == MatrixOperation::kVECTOR ? 1 : 2);
  };
  const int a_rank = stack_rank(0, params.op0), b_rank = stack_rank(1, params.op1);
  for (int axis = 1; axis <= std::min(a_rank, b_rank); ++axis) {
    const int at_a = a_rank - axis, at_b = b_rank - axis;
    for (Shape PortDesc::*shape : {&PortDesc::opt, &PortDesc::max}) {
      int64_t &a = (fitting[0].*shape)[at_a], &b = (fitting[1].*shape)[at_b];
      if (a <= 1 || b <= 1) continue;
      const bool is_fixed_a = inputs[0].min[at_a] == inputs[0].max[at_a];
      const bool is_fixed_b = inputs[1].min[at_b] == inputs[1].max[at_b];
      a = b = is_fixed_a ? a : is_fixed_b ? b : std::min(a, b);
    }
  }
  return fitting;
}

/// The kernel of an engine that was built for instructions that this processor lacks. Null where
/// there is none for its ports.
std::unique_ptr<Kernel> make_widened_instead(MatrixMultiplyParams params, const KernelArgs& given) {
  if (cpu_device().features().int8 || !takes_widened(params, given.inputs)) return nullptr;
  std::vector<PortDesc> inputs(given.inputs.begin(), given.inputs.end());
  KernelArgs args = given;
  args.inputs = inputs;
  if (inputs[1].is_constant && !inputs[1].constant) {
    // oneDNN packs the matrix that multiplies, in order of its rows.
    const MatrixOperand b = analyze_product(params, inputs[0].opt, inputs[1].opt).b;
    inputs[1].constant =
        plain_constant(given, 1, dnnl_dims(b.extents), dnnl::memory::data_type::s8);
    const size_t rank = b.extents.size();
    inputs[1].min = inputs[1].opt = inputs[1].max = {b.extents[rank - 2], b.extents[rank - 1]};
    params.op1 = MatrixOperation::kNONE;
  }
  return make_widened(params, args);
}

std::unique_ptr<Kernel> make_matrix_multiply(const Operator& op, const KernelArgs& given) {
  KernelArgs args = given;
  const std::vector<PortDesc> inputs =
      with_fitting_stacks(static_cast<const MatrixMultiply&>(op).params(), given.inputs);
  args.inputs = inputs;
  const MatrixMultiplyParams& params = static_cast<const MatrixMultiply&>(op).params();
  const DataType type = args.candidate->inputs[0].dtype;
  if (kIndexTypes.has(type) || args.candidate->tactic_name == kIntegerLoop)
    return make_integer_product(params, type, args.candidate->inputs[1].dtype);
  if (args.candidate->tactic_name == kWidenedBytes) return make_widened(params, args);
  if (kBytes.has(type)) {
    if (auto kernel = make_widened_instead(params, args)) return kernel;
    return make_dnnl_kernel<ByteProductKernel, MatrixMultiply>(op, args);
  }
  return make_dnnl_kernel<MatrixMultiplyKernel, MatrixMultiply>(op, args);
}

void check_matrix_multiply(const Operator& op, const KernelArgs& args) {
  const MatrixMultiplyParams& params = static_cast<const MatrixMultiply&>(op).params();
  const PortRules rules(op, args);
  const size_t inputs = params.has_bias ? 3 : 2, added = params.fused.places.size();
  rules.require_ports(inputs + added, inputs + added);
  rules.require(rules.input(0), kDnnlFloats | kIndexTypes | kBytes);
  const bool bytes = kBytes.has(rules.input(0).desc.type.dtype);
  const bool is_loop = args.candidate->tactic_name == kIntegerLoop;
  const bool is_widened = args.candidate->tactic_name == kWidenedBytes;
  if (bytes) {
    rules.require(rules.output(0),
                  {params.fused.present() ? params.fused.result : DataType::kINT32});
    rules.require(rules.input(1), is_loop ? kBytes : Types{DataType::kINT8});
  } else {
    rules.require_same(rules.output(0), rules.input(0));
    rules.require_that(!is_loop || kIndexTypes.has(rules.input(0).desc.type.dtype),
                       "the integer loop multiplies only integers");
  }
  rules.require_that((!is_loop && !is_widened) || args.packed.empty(), "the ",
                     args.candidate->tactic_name, " packs nothing");
  rules.require_that(!is_widened || (bytes && takes_widened(params, args.inputs)),
                     "bytes are widened for one constant matrix only");
  rules.require_that(
      !params.fused.present() ||
          (bytes && !is_loop && (is_widened || epilogue_of(params, args.inputs))),
      "on a CPU only products of bytes run a fused program, one of scales, a bias, activations and "
      "a residual");
  for (size_t i = inputs; i < inputs + added; ++i) rules.require(rules.input(i), kConvertible);
  if (bytes) {
    rules.require_that(!params.has_bias && !params.activation.present(),
                       "products of bytes take neither a bias nor an activation");
  } else if (kIndexTypes.has(rules.input(0).desc.type.dtype)) {
    rules.require_same(rules.input(1), rules.input(0));
    rules.require_that(!params.has_bias && !params.activation.present(),
                       "products of integers take neither a bias nor an activation");
  } else {
    for (size_t i = 1; i < inputs; ++i) rules.require(rules.input(i), kDnnlFloats);
  }
  rules.require_that(args.packed.empty() || is_packable(params, args.inputs[1]),
                     "input 1 is packed, which the CPU does with one constant matrix only");
}

std::vector<std::string> matrix_multiply_tactics() {
  return {std::string(kDnnlTactic), std::string(kWidenedBytes), std::string(kIntegerLoop)};
}

const RegisteredKernels<MatrixMultiply> kMatrixMultiplyKernels(
    {matrix_multiply_candidates, make_matrix_multiply, check_matrix_multiply,
     /*packed_input=*/1, -1, matrix_multiply_tactics});

}  // namespace
}  // namespace opwright
