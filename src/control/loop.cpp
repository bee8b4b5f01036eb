#include "control/loop.h"

#include <atomic>

#include "backend/candidates.h"
#include "base/error.h"
#include "base/library.h"
#include "control/planned_loop.h"

namespace opwright {
namespace {

/// The body's inputs that the loop passes on: the body's name, and the index of the loop's input.
std::vector<std::pair<std::string, int>> passed_inputs(const LoopBody& body) {
  std::vector<std::pair<std::string, int>> passed;
  passed.reserve(static_cast<size_t>(body.states) + static_cast<size_t>(body.captures));
  for (int i = 0; i < body.states; ++i) passed.emplace_back(state_input(i), 2 + i);
  for (int i = 0; i < body.captures; ++i)
    passed.emplace_back(capture_input(i), 2 + body.states + i);
  return passed;
}

}  // namespace

Loop::Loop(LoopBody body, bool counts)
    : body_(std::move(body)), counts_(counts), identity_(Library::next_number()) {}

std::optional<int> Loop::num_outputs() const {
  return body_.states + body_.stacked + (counts_ ? 1 : 0);
}

std::vector<OutputInfo> Loop::infer(InferContext& context) const {
  const Network& network = *body_.network;
  const int count = 2 + body_.states + body_.captures;
  require(static_cast<int>(context.inputs.size()) == count, "Loop '", context.layer, "' has ",
          context.inputs.size(), " inputs; expected ", count);
  const TensorInfo *limit = context.inputs[0], *begins = context.inputs[1];
  require(limit == nullptr || (limit->dtype == DataType::kINT64 && limit->dims.empty()), "Loop '",
          context.layer, "': the number of iterations must be a scalar INT64");
  require(begins == nullptr || (begins->dtype == DataType::kBOOL && begins->dims.empty()), "Loop '",
          context.layer, "': the condition must be a scalar BOOL");
  for (int i = 2; i < count; ++i)
    require(context.inputs[static_cast<size_t>(i)] != nullptr, "Loop '", context.layer, "': input ",
            i, " is missing");
  BodyExtents outside(network);
  for (const auto& [name, index] : passed_inputs(body_))
    outside.add(name, *context.inputs[static_cast<size_t>(index)]);
  outside.check();

  std::vector<OutputInfo> outputs;
  const auto states = static_cast<size_t>(body_.states);
  const size_t first = body_.is_computed ? 1 : 0;
  for (size_t i = 0; i < states; ++i) {
    OutputInfo& state = outputs.emplace_back();
    state.dtype = context.inputs[2 + i]->dtype;
    state.dims = context.inputs[2 + i]->dims;
    const Tensor& made = *network.outputs()[first + i];
    const SymShape dims = outside(made.dims());
    bool differs = made.dtype() != state.dtype || dims.size() != state.dims.size();
    // Extents that may be equal are compared when the engine runs.
    for (size_t axis = 0; !differs && axis < dims.size(); ++axis) {
      const Expr more = dims[axis] - state.dims[axis];
      differs = more.is_constant() && more.constant() != 0;
    }
    require(!differs, "Loop '", context.layer, "': state ", i, " is ", opwright::name(state.dtype),
            " of shape ", state.dims, " before an iteration and ", opwright::name(made.dtype()),
            " of shape ", dims,
            " behind it; expected the same, or a number of iterations that is constant");
  }
  Expr iterations = limit != nullptr && limit->values ? max((*limit->values)[0], 0) : Expr(0);
  const bool is_partial = !body_.lengths.empty();
  if (body_.stacked > 0 && !is_partial && (limit == nullptr || !limit->values))
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "Loop '", context.layer,
              "' stacks something of each iteration, but nothing says how many there may be: give "
              "it a number of iterations that is constant or computed from shapes");
  if (counts_)
    iterations = context.declare_size_tensor(body_.states + body_.stacked, iterations, iterations);
  for (size_t i = 0; i < static_cast<size_t>(body_.stacked); ++i) {
    const Tensor& part = *network.outputs()[first + states + i];
    OutputInfo& stacked = outputs.emplace_back();
    stacked.dtype = part.dtype();
    stacked.dims = outside(part.dims());
    stacked.dims.insert(stacked.dims.begin(), is_partial ? body_.lengths[i] : iterations);
  }
  if (counts_) outputs.emplace_back().dtype = DataType::kINT64;
  return outputs;
}

std::vector<Candidate> Loop::candidates(const CandidateQuery& query) const {
  return {linear_candidate(query, "body")};
}

PlannedOperatorPtr Loop::plan(const KernelArgs& args) const {
  PlannedLoopParams params;
  params.is_computed = body_.is_computed, params.counts = counts_;
  params.states = body_.states, params.captures = body_.captures;
  params.stacked = body_.stacked, params.is_partial = !body_.lengths.empty();
  params.body = compile_body(*body_.network, passed_inputs(body_), args);
  return make_planned_loop(std::move(params), args.layer, *args.device, std::nullopt);
}

OperatorPtr Loop::with_weights_as_inputs(const IsRefittable& is_refittable,
                                         std::vector<BodyWeight>& weights) const {
  LoopBody body = body_;
  body.network = weights_as_inputs(
      body_.network, is_refittable,
      [&](size_t number) { return capture_input(body_.captures + static_cast<int>(number)); },
      weights);
  if (weights.empty()) return nullptr;
  body.captures += static_cast<int>(weights.size());
  return std::make_shared<Loop>(std::move(body), counts_);
}

Attributes Loop::attributes() const { return {{"identity", identity_}}; }

}  // namespace opwright
