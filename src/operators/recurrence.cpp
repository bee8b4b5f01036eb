#include "operators/recurrence.h"

#include "operators/infer.h"

namespace opwright {

std::vector<OutputInfo> Recurrence::infer(InferContext& context) const {
  const Inference inference(
      context, kKind, {"x", "w", "r", "b", "sequence_lens", "initial_h", "initial_c", "p"}, 3, 8);
  const RecurrenceParams& p = params();
  inference.require(p.cell >= RecurrentCell::kRNN && p.cell <= RecurrentCell::kLSTM,
                    "unknown cell ", static_cast<int32_t>(p.cell));
  inference.require(p.direction >= RecurrentDirection::kFORWARD &&
                        p.direction <= RecurrentDirection::kBIDIRECTIONAL,
                    "unknown direction ", static_cast<int32_t>(p.direction));
  const int64_t directions = p.directions(), gates = gate_count(p.cell);
  const size_t activations = p.directions() * static_cast<size_t>(activation_count(p.cell));
  inference.require(p.activations.size() == activations && p.alphas.size() == activations &&
                        p.betas.size() == activations,
                    "expected ", activations, " activations, alphas and betas, but there are ",
                    p.activations.size(), ", ", p.alphas.size(), " and ", p.betas.size());
  for (const int64_t activation : p.activations)
    inference.require(activation >= 0 && activation < kRecurrentActivations, "unknown activation ",
                      activation);
  inference.require(p.clip >= 0, "the threshold for clipping must be positive, but is ", p.clip);

  const TensorInfo& x = inference.input(0);
  inference.require_type(
      0, x.dtype == DataType::kFLOAT || x.dtype == DataType::kHALF || x.dtype == DataType::kBF16,
      "FP32, FP16 or BF16");
  for (int i = 0; i < 3; ++i) inference.require_rank(i, 3, 3);
  const Expr &size = inference.input(1).dims[2], &hidden = inference.input(2).dims[2];
  inference.require(size.is_constant() && hidden.is_constant(),
                    "the extents of the weights must be constant, but are ",
                    str(inference.input(1).dims), " and ", str(inference.input(2).dims));
  const Expr count(directions), batch = x.dims[1];
  inference.require(hidden.constant() >= 0 && hidden.constant() <= int64_t{1} << 40,
                    inference.port(2), " has ", hidden.str(), " hidden units");
  inference.require_extent(0, 2, size, "the extent of an input");

  const auto require_input = [&](int i, std::initializer_list<Expr> dims, std::string_view what) {
    if (inference.optional(i) == nullptr) return;
    const auto rank = static_cast<int>(dims.size());
    inference.require_rank(i, rank, rank);
    for (int axis = 0; axis < rank; ++axis)
      inference.require_extent(i, axis, dims.begin()[axis], what);
    if (i != 4) inference.require_same_type(i, 0);
  };
  require_input(1, {count, hidden * gates, size}, "directions, gates * hidden, input");
  require_input(2, {count, hidden * gates, hidden}, "directions, gates * hidden, hidden");
  require_input(3, {count, hidden * (2 * gates)}, "directions, 2 * gates * hidden");
  require_input(4, {batch}, "the batch");
  require_input(5, {count, batch, hidden}, "directions, batch, hidden");
  require_input(6, {count, batch, hidden}, "directions, batch, hidden");
  require_input(7, {count, hidden * 3}, "directions, 3 * hidden");
  if (inference.optional(4))
    inference.require_type(4, inference.input(4).dtype == DataType::kINT32, "INT32");
  for (const int i : {6, 7})
    inference.require(p.cell == RecurrentCell::kLSTM || inference.optional(i) == nullptr,
                      inference.port(i), " belongs only to an LSTM");

  std::vector<OutputInfo> outputs = {make_output(x.dtype, {x.dims[0], count, batch, hidden})};
  const int states = p.cell == RecurrentCell::kLSTM ? 2 : 1;
  for (int i = 0; i < states; ++i) outputs.push_back(make_output(x.dtype, {count, batch, hidden}));
  return outputs;
}

}  // namespace opwright
