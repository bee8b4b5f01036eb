#include "network/constant.h"

#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace opwright {
namespace {

/// The elements as expressions; null if shape arithmetic does not use them.
std::shared_ptr<const std::vector<Expr>> values_of(const Constant::Params& constant) {
  const bool integral = is_integer(constant.dtype) || constant.dtype == DataType::kBOOL;
  const int64_t count = constant.shape.numel();
  if (!integral || constant.shape.rank() > TensorInfo::kMaxValuesRank ||
      count > TensorInfo::kMaxValues)
    return nullptr;
  std::vector<int64_t> elements(static_cast<size_t>(count));
  const Blob aligned = Blob::copy(constant.data.data(), constant.data.size());
  convert(aligned.data(), constant.dtype, elements.data(), DataType::kINT64, count);
  return std::make_shared<const std::vector<Expr>>(elements.begin(), elements.end());
}

[[noreturn]] void fail_no_kernel(std::string_view kind, std::string_view layer) {
  fail_with(ErrorCode::kINTERNAL_ERROR, kind, " '", layer,
            "': its elements are part of the plan, it has no kernel");
}

}  // namespace

std::vector<OutputInfo> Constant::infer(InferContext& context) const {
  context.require_inputs(kind(), 0, 0);
  const int64_t expected = bytes_of(params_.dtype, params_.shape.numel());
  require(static_cast<int64_t>(params_.data.size()) == expected, kind(), " '", context.layer,
          "': shape ", params_.shape, " of type ", name(params_.dtype), " takes ", expected,
          " bytes, but there are ", params_.data.size());
  OutputInfo output;
  output.dtype = params_.dtype;
  output.dims = sym_shape(params_.shape);
  output.values = values_of(params_);
  // A constant without elements is still a constant, but an absent Blob would say that it is none.
  output.constant = params_.data ? params_.data : Blob::copy(nullptr, 0);
  return {output};
}

std::vector<Candidate> Constant::candidates(const CandidateQuery& query) const {
  fail_no_kernel(kind(), query.layer);
}

PlannedOperatorPtr Constant::plan(const KernelArgs& args) const {
  fail_no_kernel(kind(), args.layer);
}

Attributes Constant::attributes() const {
  AttributeWriter writer;
  writer("dtype", params_.dtype);
  writer("shape", Ints(params_.shape.begin(), params_.shape.end()));
  writer("data", params_.data);
  return std::move(writer.attributes);
}

std::vector<OutputInfo> Values::infer(InferContext& context) const {
  context.require_inputs(kind(), 0, 0);
  const auto count = static_cast<int64_t>(params_.values.size());
  require(params_.dtype == DataType::kINT32 || params_.dtype == DataType::kINT64 ||
              params_.dtype == DataType::kBOOL || params_.dtype == DataType::kFLOAT,
          kind(), " '", context.layer, "': the type must be INT32, INT64, BOOL or FP32, not ",
          name(params_.dtype));
  require(!params_.scalar || count == 1, kind(), " '", context.layer,
          "': a scalar has one element, not ", count);
  require(count <= TensorInfo::kMaxValues, kind(), " '", context.layer, "': at most ",
          TensorInfo::kMaxValues, " elements can be given as expressions, not ", count);
  OutputInfo output;
  output.dtype = params_.dtype;
  if (!params_.scalar) output.dims = {count};
  output.values = std::make_shared<const std::vector<Expr>>(params_.values);
  if (is_constant(params_.values)) {
    std::vector<int64_t> elements;
    for (const Expr& value : params_.values) {
      elements.push_back(value.constant());
      require(params_.dtype != DataType::kINT32 ||
                  static_cast<int32_t>(elements.back()) == elements.back(),
              kind(), " '", context.layer, "': ", elements.back(), " does not fit INT32");
    }
    output.constant = Blob::make(static_cast<size_t>(bytes_of(output.dtype, count)), [&](void* to) {
      convert(elements.data(), DataType::kINT64, to, output.dtype, count);
    });
  }
  return {output};
}

std::vector<Candidate> Values::candidates(const CandidateQuery& query) const {
  fail_no_kernel(kind(), query.layer);
}

PlannedOperatorPtr Values::plan(const KernelArgs& args) const {
  fail_no_kernel(kind(), args.layer);
}

Attributes Values::attributes() const {
  AttributeWriter writer;
  writer("dtype", params_.dtype);
  writer("values", str(std::span<const Expr>(params_.values)));
  writer("scalar", params_.scalar);
  return std::move(writer.attributes);
}

}  // namespace opwright
