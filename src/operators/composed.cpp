#include "operators/composed.h"

#include <algorithm>

#include "base/types.h"
#include "network/no_kernel.h"
#include "operators/infer.h"

namespace opwright {
namespace {

/// Stands for an outer tensor, with the same known type, shape and values.
class Given final : public Operator {
 public:
  explicit Given(TensorInfo info) : info_(std::move(info)) {}
  std::string_view kind() const override { return "Given"; }
  std::optional<int> num_outputs() const override { return 1; }
  std::vector<OutputInfo> infer(InferContext&) const override {
    OutputInfo output;
    static_cast<TensorInfo&>(output) = info_;
    return {output};
  }
  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    throw NoKernelError(ErrorCode::kINTERNAL_ERROR,
                        str("layer '", query.layer, "' stands for a tensor and does not run"));
  }
  PlannedOperatorPtr plan(const KernelArgs& args) const override {
    fail("layer '", args.layer, "' stands for a tensor and does not run");
  }

 private:
  const TensorInfo info_;
};

}  // namespace

ComposedWriter::ComposedWriter(Network& network, const Operator& op, const std::string& layer,
                               std::span<Tensor* const> inputs, size_t least, size_t most)
    : LayerWriter(network, layer), who_(str(op.kind(), " '", layer, "': ")), inputs_(inputs) {
  if (inputs.size() < least || (most > 0 && inputs.size() > most))
    error("has ", inputs.size(), " inputs; expected ",
          most == least ? str(least)
          : most > 0    ? str(least, " to ", most)
                        : str("at least ", least));
  for (size_t i = 0; i < least; ++i)
    if (inputs[i] == nullptr) error("input ", i, " is missing");
}

void ComposedWriter::fail(const std::string& problem) const { opwright::fail(who_, problem); }

void ComposedWriter::require_rank(size_t input, int low, int high, std::string_view what) const {
  const int rank = inputs_[input]->rank();
  if (rank < low || rank > high)
    error("input ", input, " (", what, ") has rank ", rank, "; expected ",
          low == high ? str(low) : str(low, " to ", high));
}

void ComposedWriter::require_type(size_t input, bool accepted, std::string_view what,
                                  std::string_view expected) const {
  if (!accepted)
    error("input ", input, " (", what, ") is ", opwright::name(inputs_[input]->dtype()),
          "; expected ", expected);
}

void ComposedWriter::require_floating(size_t input, std::string_view what) const {
  const DataType type = inputs_[input]->dtype();
  require_type(input,
               type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16, what,
               "FP32, FP16 or BF16");
}

void ComposedWriter::require_same_type(size_t input, size_t other, std::string_view what) const {
  const DataType expected = inputs_[other]->dtype();
  require_type(input, inputs_[input]->dtype() == expected, what,
               str(opwright::name(expected), ", the type of input ", other));
}

void ComposedWriter::require_extent(size_t input, int axis, const Expr& expected,
                                    std::string_view what) const {
  const Expr& extent = inputs_[input]->dims()[static_cast<size_t>(axis)];
  if (conflict(extent, expected))
    error("input ", input, " (", what, ") has extent ", extent.str(), " along axis ", axis,
          "; expected ", expected.str());
}

std::vector<OutputInfo> infer_composed(const Operator& op, const InferContext& context) {
  Network network;
  if (const SymbolTable* symbols = context.symbols()) network.symbols() = *symbols;
  std::vector<Tensor*> inputs;
  for (const TensorInfo* input : context.inputs)
    inputs.push_back(input == nullptr
                         ? nullptr
                         : network.add_layer(std::make_shared<Given>(*input), {})->output(0));
  std::vector<OutputInfo> outputs;
  for (const Tensor* tensor : op.compose(network, inputs, std::string(context.layer)))
    static_cast<TensorInfo&>(outputs.emplace_back()) = tensor->info();
  return outputs;
}

}  // namespace opwright
