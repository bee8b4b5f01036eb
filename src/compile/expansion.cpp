#include "compile/expansion.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/types.h"
#include "network/constant.h"
#include "operators/elementwise.h"

namespace opwright {
namespace {

bool has_composed(const Network& network) {
  for (int i = 0; i < network.num_layers(); ++i)
    if (const Layer& layer = *network.layer(i); layer.op()->is_composed(layer.inputs()))
      return true;
  return false;
}

/// A region that lies in no other region, with the layers in it and at its borders.
struct OuterRegion {
  const Region* region = nullptr;
  std::vector<const Layer*> members;
};

std::vector<OuterRegion> outer_regions(const Network& network) {
  std::vector<OuterRegion> all;
  std::unordered_set<const Layer*> inside;
  for (const std::unique_ptr<Region>& region : network.regions()) {
    OuterRegion outer{region.get(), region->interior()};
    inside.insert(outer.members.begin(), outer.members.end());
    all.push_back(std::move(outer));
  }
  std::erase_if(all, [&](const OuterRegion& outer) {
    return std::ranges::any_of(outer.region->boundary(),
                               [&](const Layer* layer) { return inside.contains(layer); });
  });
  for (OuterRegion& outer : all)
    outer.members.insert(outer.members.end(), outer.region->boundary().begin(),
                         outer.region->boundary().end());
  return all;
}

}  // namespace

Expansion::Expansion(const Network& from, std::unordered_map<const Layer*, std::string> as_inputs)
    : from_(from),
      as_inputs_(std::move(as_inputs)),
      to_(std::make_shared<Network>(from.flags_, from.plugins_, from.errors_.log())),
      order_(from.topological_order()) {
  to_->name_ = from.name_;
  to_->builder_ = from.builder_;
  to_->symbols_ = from.symbols_;
  to_->unfused_debug_ = from.unfused_debug_;
  to_->weight_names_.copy_marks(from.weight_names_);
  for (const Tensor* input : from.inputs_) to_->inputs_.push_back(copy_tensor(*input));
  make_units();
  run_all();
}

std::shared_ptr<Network> Expansion::finish() {
  for (const Tensor* output : from_.outputs_) {
    Tensor* const made = (*this)(*output);
    to_->outputs_.push_back(made);
    made->is_output_ = true;
  }
  return to_;
}

Tensor* Expansion::operator()(const Tensor& tensor) const {
  const auto found = tensors_.find(&tensor);
  require(found != tensors_.end(), "tensor '", tensor.name(),
          "' is used before it is made, or outside of the loop or conditional that makes it");
  return found->second;
}

void Expansion::free_name(const std::string& name) {
  if (Tensor* const other = to_->find_tensor(name))
    to_->rename(*other, to_->unused_tensor_name(name));
}

Tensor* Expansion::copy_tensor(const Tensor& tensor) {
  free_name(tensor.name_);
  Tensor* const copy = to_->new_tensor(tensor.name_);
  *copy = tensor;
  copy->network_ = to_.get();
  copy->producer_ = nullptr;
  copy->users_.clear();
  copy->is_output_ = false;
  tensors_[&tensor] = copy;
  taken_.insert(copy);
  return copy;
}

void Expansion::copy_as_input(const Layer& constant, const std::string& name) {
  const Tensor& output = *constant.output(0);
  if (Tensor* const made = to_->find_tensor(name)) {
    tensors_[&output] = made;
    return;
  }
  Tensor* const input = copy_tensor(output);
  input->info_.constant = Blob();
  input->info_.values = nullptr;
  input->is_input_ = true;
  to_->rename(*input, name);
  input->declared_shape_ = constant_shape(input->info_.dims);
  input->dimension_names_.assign(input->info_.dims.size(), {});
  to_->inputs_.push_back(input);
}

void Expansion::copy(const Layer& layer) {
  if (const auto found = as_inputs_.find(&layer); found != as_inputs_.end())
    return copy_as_input(layer, found->second);
  if (const BoundaryOperator* boundary = boundary_of(layer))
    fail(boundary->region().name(), ": layer '", layer.name(),
         "' lies at its border, and inside of another loop or conditional that lies inside of it");
  std::unique_ptr<Layer> made = layer.op_->make_layer();
  made->network_ = to_.get();
  made->index_ = to_->num_layers();
  made->name_ = layer.name_;
  made->metadata_ = layer.metadata_;
  made->added_as_ = layer.added_as_;
  made->precision_ = layer.precision_;
  made->op_ = layer.op_;
  for (const Tensor* input : layer.inputs_) {
    made->inputs_.push_back(input == nullptr ? nullptr : (*this)(*input));
    if (input != nullptr) made->inputs_.back()->users_.push_back(made.get());
  }
  for (const Tensor* output : layer.outputs_) {
    Tensor* const copy = copy_tensor(*output);
    copy->producer_ = made.get();
    made->outputs_.push_back(copy);
  }
  made->inferred_ = layer.inferred_;
  to_->weight_names_.copy(from_.weight_names_, layer, *made);
  to_->layer_names_.insert(made->name_);
  to_->layers_.push_back(std::move(made));
}

void Expansion::set(const Tensor& tensor, Tensor* made) {
  // One tensor has one name, and an input of the network is no output.
  if (made->is_input_ || taken_.contains(made)) made = to_->add<Identity>({}, {made})->output(0);
  if (made->name_ != tensor.name_) {
    free_name(tensor.name_);
    made->set_name(tensor.name_);
  }
  made->is_debug_ = tensor.is_debug_;
  made->dynamic_range_ = tensor.dynamic_range_;
  made->stored_type_ = tensor.stored_type_;
  made->allowed_formats_ = tensor.allowed_formats_;
  made->has_allowed_formats_ = tensor.has_allowed_formats_;
  tensors_[&tensor] = made;
  taken_.insert(made);
}

void Expansion::compose(const Layer& layer) {
  std::vector<Tensor*> inputs;
  for (const Tensor* input : layer.inputs_)
    inputs.push_back(input == nullptr ? nullptr : (*this)(*input));
  const int first = to_->num_layers();
  const std::vector<Tensor*> outputs = layer.op_->compose(*to_, inputs, layer.name_);
  for (int i = first; i < to_->num_layers(); ++i) {
    to_->layers_[static_cast<size_t>(i)]->metadata_ = layer.metadata_;
    to_->layers_[static_cast<size_t>(i)]->precision_ = layer.precision_;
  }
  for (size_t i = 0; i < layer.outputs_.size(); ++i) set(*layer.outputs_[i], outputs.at(i));
}

std::shared_ptr<Network> Expansion::with(const Network& from, const Substitution& values) {
  const std::shared_ptr<Network> made = Expansion(from).finish();
  for (Tensor* input : made->inputs_) {
    input->info_.dims = values(input->info_.dims);
    if (input->info_.values != nullptr)
      input->info_.values = std::make_shared<const SymShape>(values(*input->info_.values));
  }
  for (const std::unique_ptr<Layer>& layer : made->layers_) {
    layer->inferred_ = false;
    if (const auto* known = dynamic_cast<const Values*>(layer->op_.get())) {
      Values::Params params = known->params();
      params.values = values(params.values);
      layer->op_ = std::make_shared<Values>(std::move(params));
    }
  }
  made->infer();
  return made;
}

void Expansion::make_units() {
  for (OuterRegion& outer : outer_regions(from_)) {
    for (const Layer* member : outer.members)
      require(unit_of_.try_emplace(member, units_.size()).first->second == units_.size(),
              outer.region->name(), ": layer '", member->name(),
              "' lies in another loop or conditional, too; one has to lie inside the other");
    units_.push_back({nullptr, outer.region, std::move(outer.members)});
  }
  for (const Layer* layer : order_)
    if (unit_of_.emplace(layer, units_.size()).second) units_.push_back({layer, nullptr, {layer}});
}

std::vector<size_t> Expansion::needs_of(size_t unit) const {
  std::vector<size_t> needs;
  for (const Layer* member : units_[unit].members)
    for (const Tensor* input : member->inputs()) {
      if (input == nullptr || input->producer() == nullptr) continue;
      const size_t source = unit_of_.at(input->producer());
      if (source != unit) needs.push_back(source);
    }
  return needs;
}

void Expansion::run(const Unit& unit) {
  if (unit.region != nullptr)
    unit.region->expand(*this);
  else if (unit.layer->op()->is_composed(unit.layer->inputs()))
    compose(*unit.layer);
  else
    copy(*unit.layer);
}

void Expansion::run_all() {
  enum class State : uint8_t { kNew, kStarted, kDone };
  std::vector<State> states(units_.size(), State::kNew);
  std::vector<size_t> pending;
  for (const Layer* layer : order_) {
    pending.push_back(unit_of_.at(layer));
    while (!pending.empty()) {
      const size_t next = pending.back();
      if (states[next] == State::kDone) {
        pending.pop_back();
        continue;
      }
      bool is_ready = true;
      for (const size_t need : needs_of(next)) {
        if (states[need] == State::kDone) continue;
        require(states[need] == State::kNew, "layer '", units_[next].members[0]->name(),
                "' and a loop or conditional need results of each other");
        is_ready = false;
        pending.push_back(need);
      }
      states[next] = State::kStarted;
      if (!is_ready) continue;
      run(units_[next]);
      states[next] = State::kDone;
      pending.pop_back();
    }
  }
}

std::vector<const Layer*> Expansion::in_order(
    const std::unordered_set<const Layer*>& layers) const {
  std::vector<const Layer*> ordered;
  for (const Layer* layer : order_)
    if (layers.contains(layer)) ordered.push_back(layer);
  return ordered;
}

std::shared_ptr<const Network> expand(const Network& network) {
  std::shared_ptr<const Network> expanded;
  const auto current = [&]() -> const Network& { return expanded ? *expanded : network; };
  while (!current().regions().empty() || has_composed(current())) {
    Expansion expansion(current());
    std::shared_ptr<Network> next = expansion.finish();
    next->infer();
    expanded = std::move(next);
  }
  return expanded;
}

std::shared_ptr<const Network> lift_body_weights(const Network& network,
                                                 const IsRefittable& is_refittable) {
  const auto lifted = [&](const Layer& layer, std::vector<BodyWeight>& weights) -> OperatorPtr {
    return layer.op()->with_weights_as_inputs(is_refittable, weights);
  };
  bool is_needed = false;
  for (int i = 0; i < network.num_layers() && !is_needed; ++i) {
    std::vector<BodyWeight> weights;
    is_needed = lifted(*network.layer(i), weights) != nullptr;
  }
  if (!is_needed) return nullptr;
  Expansion expansion(network);
  const std::shared_ptr<Network> made = expansion.finish();
  const auto constant_of = [&](const BodyWeight& weight) -> Tensor* {
    for (const Layer* other : constants_named(*made, weight.name)) {
      const TensorInfo& info = other->output(0)->info();
      if (info.dtype == weight.dtype && constant_shape(info.dims) == weight.shape)
        return other->output(0);
    }
    Tensor* const constant = made->add_constant(weight.dtype, weight.shape, weight.data);
    made->weight_names().set_name(*constant->producer(), weight.name);
    return constant;
  };
  const int count = made->num_layers();
  for (int i = 0; i < count; ++i) {
    Layer& layer = *made->layer(i);
    std::vector<BodyWeight> weights;
    OperatorPtr op = lifted(layer, weights);
    if (op == nullptr) continue;
    const int first = layer.num_inputs();
    layer.set_op(std::move(op));
    for (size_t w = 0; w < weights.size(); ++w)
      layer.set_input(first + static_cast<int>(w), constant_of(weights[w]));
  }
  made->infer();
  return made;
}

std::shared_ptr<const Network> weights_as_inputs(
    std::shared_ptr<const Network> body, const IsRefittable& is_refittable,
    const std::function<std::string(size_t number)>& input_name, std::vector<BodyWeight>& weights) {
  if (const std::shared_ptr<const Network> expanded = expand(*body)) body = expanded;
  if (const std::shared_ptr<const Network> lifted = lift_body_weights(*body, is_refittable))
    body = lifted;
  std::unordered_map<const Layer*, std::string> as_inputs;
  for (int i = 0; i < body->num_layers(); ++i) {
    const Layer& layer = *body->layer(i);
    if (!has_refittable_weights(layer) || layer.output(0)->is_network_output()) continue;
    const TensorInfo& info = layer.output(0)->info();
    BodyWeight weight{body->weight_names().name(layer), info.dtype, constant_shape(info.dims),
                      info.constant};
    // Inputs of bodies have whole bytes.
    if (bits(info.dtype) < 8 || !is_refittable(weight.name)) continue;
    const auto same = std::ranges::find_if(weights, [&](const BodyWeight& other) {
      return other.name == weight.name && other.dtype == weight.dtype &&
             other.shape == weight.shape;
    });
    as_inputs[&layer] = input_name(static_cast<size_t>(same - weights.begin()));
    if (same == weights.end()) weights.push_back(std::move(weight));
  }
  if (as_inputs.empty()) return body;
  return Expansion(*body, std::move(as_inputs)).finish();
}

Tensor* LayerCopies::operator()(const Tensor& from) {
  const auto found = tensors_.find(&from);
  if (found != tensors_.end()) return found->second;
  return tensors_[&from] = outside_(from);
}

void LayerCopies::add(std::span<const Layer* const> layers) {
  std::vector<std::pair<const Layer*, Layer*>> fed_back;
  for (const Layer* layer : layers) {
    OperatorPtr op = layer->op();
    const BoundaryOperator* const boundary = boundary_of(*layer);
    if (boundary != nullptr) {
      Region*& region = regions_[&boundary->region()];
      if (region == nullptr) {
        region = boundary->region().add_copy_to(to_);
        region->set_name(boundary->region().name() + suffix_);
      }
      op = boundary->moved_to(*region);
    }
    std::vector<Tensor*> inputs;
    bool feeds_back = false;
    for (int i = 0; i < layer->num_inputs(); ++i) {
      const Tensor* const input = layer->input(i);
      const bool waits = op->is_fed_back(i);
      feeds_back |= waits && input != nullptr;
      inputs.push_back(input == nullptr || waits ? nullptr : (*this)(*input));
    }
    Layer* const copy = to_.add_layer(std::move(op), inputs, layer->name() + suffix_);
    copy->set_metadata(layer->metadata());
    if (layer->added_as()) copy->set_added_as(*layer->added_as());
    if (layer->precision()) copy->set_precision(*layer->precision());
    if (boundary != nullptr) regions_[&boundary->region()]->add_boundary(*copy);
    if (feeds_back) fed_back.emplace_back(layer, copy);
    for (int i = 0; i < layer->num_outputs(); ++i) tensors_[layer->output(i)] = copy->output(i);
  }
  for (const auto& [layer, copy] : fed_back)
    for (int i = 0; i < layer->num_inputs(); ++i)
      if (layer->op()->is_fed_back(i) && layer->input(i) != nullptr)
        copy->set_input(i, (*this)(*layer->input(i)));
}

}  // namespace opwright
