#include "compile/refit_weights.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/types.h"
#include "network/constant.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/host_run.h"
#include "operators/movement.h"
#include "opwright/refitter.h"

namespace opwright {
namespace {

WeightUse use_of(const GraphValue::Use& use) {
  const GraphNode& node = *use.node;
  WeightsRole role = WeightsRole::kANY;
  if (node.as<Convolution>() || node.as<Deconvolution>())
    role = use.input == 1   ? WeightsRole::kKERNEL
           : use.input == 2 ? WeightsRole::kBIAS
                            : WeightsRole::kANY;
  else if (node.as<Scale>())
    role = use.input == 1   ? WeightsRole::kSHIFT
           : use.input == 2 ? WeightsRole::kSCALE
                            : WeightsRole::kANY;
  return {node.name, static_cast<int32_t>(role)};
}

/// How layers use the constant. The role of a constant comes last.
std::vector<WeightUse> uses_of(const GraphNode& constant) {
  std::vector<WeightUse> uses;
  for (const GraphValue::Use& use : constant.outputs[0]->uses)
    if (const WeightUse found = use_of(use); found.role != static_cast<int32_t>(WeightsRole::kANY))
      uses.push_back(found);
  uses.push_back({constant.name, static_cast<int32_t>(WeightsRole::kCONSTANT)});
  return uses;
}

}  // namespace

std::vector<RefitWeight> mark_refittable(Graph& graph, const Network& network, RefitMode mode) {
  std::vector<RefitWeight> weights;
  if (mode == RefitMode::kNone) return weights;
  std::map<std::string, std::shared_ptr<const Derivation>> known;
  std::map<std::string_view, GraphNode*> nodes;  // by the name of their first result
  for (GraphNode* node : graph.nodes())
    if (!node->outputs.empty()) nodes[node->outputs[0]->name] = node;
  for (int i = 0; i < network.num_layers(); ++i) {
    const Layer& layer = *network.layer(i);
    if (!has_refittable_weights(layer)) continue;
    const std::string& name = network.weight_names().name(layer);
    if (mode == RefitMode::kIndividual && !network.weight_names().is_marked(name)) continue;
    const GraphNode& node = *nodes.at(layer.output(0)->name());
    GraphValue& value = *node.outputs[0];
    std::shared_ptr<const Derivation>& derivation = known[name];
    if (derivation == nullptr) {
      auto added = std::make_shared<Derivation>();
      added->weight = static_cast<int>(weights.size());
      added->name = name;
      derivation = std::move(added);
      weights.push_back(
          {name, value.info.dtype, constant_shape(value.info.dims), {}, value.info.constant});
    }
    RefitWeight& weight = weights[derivation->weight];
    require(weight.dtype == value.info.dtype && weight.data.size() == value.info.constant.size(),
            "Layer '", layer.name(), "': its weights have the name '", name,
            "', which others of another type or size have, too; name them differently");
    for (const WeightUse& use : uses_of(node))
      if (std::find(weight.uses.begin(), weight.uses.end(), use) == weight.uses.end())
        weight.uses.push_back(use);
    value.origin = {derivation, 0};
    value.may_change = mode != RefitMode::kIdentical;
  }
  return weights;
}

RefitRecorder::RefitRecorder(std::vector<RefitWeight> weights) {
  refit_.weights = std::move(weights);
}

int32_t RefitRecorder::add(const GraphValue& constant) {
  return add(constant.origin, constant.info, false);
}

int32_t RefitRecorder::add_value(RefitValue value) {
  refit_.values.push_back(std::move(value));
  return refit_.num_values() - 1;
}

int32_t RefitRecorder::add(const Derived& origin, const TensorInfo& info, bool needs_shape) {
  const Shape shape = constant_shape(info.dims);
  if (!origin) {
    Blob elements = info.constant;
    if (elements.empty()) {
      std::vector<int64_t> values;
      for (const Expr& element : *info.values) values.push_back(element.constant());
      elements = dense_values(values, info.dtype);
    }
    const auto [known, added] = fixed_.try_emplace(elements.data(), -1);
    if (!added && (!needs_shape || refit_.shape(known->second) == shape)) return known->second;
    return known->second = add_value({info.dtype, shape, std::move(elements)});
  }
  const Derivation& made = *origin.from;
  int32_t value = made.weight;
  if (value < 0) {
    const auto found = known_.find({&made, origin.output});
    if (found == known_.end()) {
      RefitOperation operation{
          made.name, std::string(made.op->kind()), made.op->attributes(), {}, {}};
      for (const Derivation::Operand& input : made.inputs)
        operation.inputs.push_back(input.present ? add(input.origin, input.info, true) : -1);
      for (size_t i = 0; i < made.outputs.size(); ++i) {
        const TensorInfo& output = made.outputs[i];
        operation.outputs.push_back(add_value({output.dtype, constant_shape(output.dims), Blob()}));
        known_[{&made, static_cast<int>(i)}] = operation.outputs.back();
      }
      kept_.push_back(origin.from);
      refit_.operations.push_back(std::move(operation));
    }
    value = known_.at({&made, origin.output});
  }
  // A pass that reshapes a constant changes only the shape and records no derivation, so the
  // reshape is added here.
  if (!needs_shape || refit_.shape(value) == shape) return value;
  const int32_t reshaped = add_value({info.dtype, shape, Blob()});
  refit_.operations.push_back({made.name, std::string(Reshape::kKind), {}, {value}, {reshaped}});
  return reshaped;
}

RefitPlan RefitRecorder::finish(std::vector<Schedule>& schedules) {
  std::vector<bool> wanted(static_cast<size_t>(refit_.num_values()));
  for (const Schedule& schedule : schedules)
    for (const PlanTensor& tensor : schedule.tensors)
      if (tensor.source >= 0) wanted[tensor.source] = true;
  const std::vector<bool> needed = needed_values(refit_, std::move(wanted));
  // An operation keeps all of its results.
  std::vector<int32_t> number(needed.size(), -1);
  RefitPlan result;
  const auto move = [&](std::vector<int32_t>& list) {
    for (int32_t& value : list)
      if (value >= 0) value = number[value];
  };
  int32_t next = 0;
  for (size_t i = 0; i < refit_.weights.size(); ++i) {
    if (!needed[i]) continue;
    number[i] = next++;
    result.weights.push_back(std::move(refit_.weights[i]));
  }
  for (size_t i = 0; i < refit_.values.size(); ++i) {
    number[i + refit_.weights.size()] = next++;
    result.values.push_back(std::move(refit_.values[i]));
  }
  for (RefitOperation& operation : refit_.operations) {
    move(operation.inputs);
    move(operation.outputs);
    result.operations.push_back(std::move(operation));
  }
  for (Schedule& schedule : schedules)
    for (PlanTensor& tensor : schedule.tensors)
      if (tensor.source >= 0) tensor.source = number[tensor.source];
  return result;
}

}  // namespace opwright
