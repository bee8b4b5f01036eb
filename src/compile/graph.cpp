#include "compile/graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/types.h"
#include "operators/source.h"

namespace opwright {
namespace {

bool reads_all_of(const GraphNode& node, const FusedParts& parts) {
  for (const GraphNode& part : parts.nodes)
    for (const GraphValue* input : part.inputs)
      if (input != nullptr && !input->is_known() && input != &parts.between &&
          std::find(node.inputs.begin(), node.inputs.end(), input) == node.inputs.end())
        return false;
  return true;
}

}  // namespace

bool GraphNode::is_random() const {
  const auto* fill = as<Fill>();
  return fill != nullptr && fill->params().operation != FillOperation::kLINSPACE;
}

bool GraphNode::defines_sizes() const {
  return std::any_of(size_symbols.begin(), size_symbols.end(), [](int s) { return s >= 0; });
}

Graph::Graph(const Network& network, bool constrained) : symbols_(&network.symbols()) {
  std::unordered_map<const Tensor*, GraphValue*> values;
  auto value_of = [&](const Tensor* tensor) {
    auto [entry, added] = values.try_emplace(tensor, nullptr);
    if (added) {
      entry->second = new_value(tensor->info(), tensor->name());
      entry->second->scale = tensor->scale();
      // A network's output is converted where it leaves the network.
      if (constrained && tensor->producer() && !tensor->is_network_output())
        entry->second->stored_type = tensor->stored_type();
      if (tensor->is_debug()) {
        entry->second->debug_numbers.push_back(static_cast<int>(debug_.size()));
        debug_.push_back(
            {tensor->name(), entry->second->stored_type.value_or(tensor->dtype()), entry->second});
      }
    }
    return entry->second;
  };
  for (const Tensor* tensor : network.inputs()) {
    GraphValue* value = value_of(tensor);
    value->network_input = static_cast<int>(inputs.size());
    inputs.push_back(value);
  }
  std::unordered_map<std::string_view, int> size_symbols;  // by tensor
  for (int id = 0; id < symbols_->size(); ++id) {
    const Symbol& symbol = (*symbols_)[id];
    if (symbol.kind == Symbol::Kind::kSizeTensor) size_symbols[symbol.tensor] = id;
  }
  std::vector<GraphNode*> layers;
  for (int i = 0; i < network.num_layers(); ++i) {
    const Layer& layer = *network.layer(i);
    auto node = std::make_unique<GraphNode>();
    node->name = layer.name();
    node->metadata = layer.metadata();
    if (constrained) node->precision = layer.precision();
    node->op = layer.op();
    for (int j = 0; j < layer.num_inputs(); ++j) {
      GraphValue* value = layer.input(j) ? value_of(layer.input(j)) : nullptr;
      node->inputs.push_back(value);
    }
    add_uses(node.get());
    for (int j = 0; j < layer.num_outputs(); ++j) {
      const Tensor* tensor = layer.output(j);
      GraphValue* value = value_of(tensor);
      value->producer = node.get();
      value->producer_output = j;
      if (value->is_constant() && network.weight_names().has_name(layer))
        value->weight = network.weight_names().name(layer);
      node->outputs.push_back(value);
      node->aliased_inputs.push_back(tensor->aliased_input());
      auto symbol = size_symbols.find(tensor->name());
      node->size_symbols.push_back(symbol == size_symbols.end() ? -1 : symbol->second);
    }
    layers.push_back(node.get());
    nodes_.push_back(std::move(node));
  }
  for (const Tensor* tensor : network.outputs()) {
    outputs_.push_back(value_of(tensor));
    outputs_.back()->output_numbers.push_back(static_cast<int>(outputs_.size()) - 1);
  }
  require(!outputs_.empty(), "The network '", network.name(),
          "' has no outputs; mark at least one tensor as an output");
  sort(layers);
}

void Graph::sort(const std::vector<GraphNode*>& layers) {
  std::unordered_map<GraphNode*, int> state;  // 1: being visited, 2: placed
  std::vector<GraphNode*> order;
  struct Frame {
    GraphNode* node;
    size_t next;
  };
  std::vector<Frame> stack;
  for (GraphNode* root : layers) {
    if (state[root] == 2) continue;
    state[root] = 1;
    stack.push_back({root, 0});
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.next == frame.node->inputs.size()) {
        state[frame.node] = 2;
        order.push_back(frame.node);
        stack.pop_back();
        continue;
      }
      const GraphValue* input = frame.node->inputs[frame.next++];
      GraphNode* before = input ? input->producer : nullptr;
      if (before == nullptr || state[before] == 2) continue;
      require(state[before] != 1, "The network has a cycle through the layers '", before->name,
              "' and '", frame.node->name, "'");
      state[before] = 1;
      stack.push_back({before, 0});
    }
  }
  std::unordered_map<GraphNode*, size_t> position;
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  nodes_.sort([&](const auto& a, const auto& b) { return position[a.get()] < position[b.get()]; });
  for (auto it = nodes_.begin(); it != nodes_.end(); ++it) position_[it->get()] = it;
}

std::vector<GraphNode*> Graph::nodes() const {
  std::vector<GraphNode*> result;
  result.reserve(nodes_.size());
  for (const auto& node : nodes_) result.push_back(node.get());
  return result;
}

bool GraphValue::is_of_constants(int nodes) const {
  if (is_known() || producer == nullptr || nodes == 0) return is_known();
  return std::ranges::all_of(producer->inputs, [&](const GraphValue* input) {
    return input == nullptr || input->is_of_constants(nodes - 1);
  });
}

bool GraphValue::is_single(size_t inner) const {
  const size_t outer = info.dims.size() - std::min(info.dims.size(), inner);
  return are_ones(std::span(info.dims).first(outer));
}

int Graph::use_count(const GraphValue& value) const {
  return static_cast<int>(value.uses.size() + value.output_numbers.size() +
                          value.debug_numbers.size());
}

bool Graph::is_output(const GraphValue& value) const { return !value.output_numbers.empty(); }

bool Graph::is_kept(const GraphValue& value) const {
  return !value.output_numbers.empty() || !value.debug_numbers.empty();
}

GraphNode* Graph::single_user(const GraphValue& value) const {
  if (value.uses.empty() || value.stored_type || is_kept(value)) return nullptr;
  GraphNode* user = value.uses.front().node;
  for (const GraphValue::Use& use : value.uses)
    if (use.node != user) return nullptr;
  return user;
}

GraphValue* Graph::new_value(TensorInfo info, std::string name) {
  values_.push_back(std::make_unique<GraphValue>());
  values_.back()->info = std::move(info);
  values_.back()->name = std::move(name);
  return values_.back().get();
}

GraphValue* Graph::add_constant(DataType dtype, const Shape& shape, Blob data, std::string name) {
  TensorInfo info;
  info.dtype = dtype;
  info.dims = sym_shape(shape);
  info.constant = std::move(data);
  return new_value(std::move(info), std::move(name));
}

GraphValue* Graph::reshape_constant(const GraphValue& constant, const Shape& shape) {
  GraphValue* added =
      add_constant(constant.info.dtype, shape, constant.info.constant, constant.name);
  added->scale = constant.scale;
  added->origin = constant.origin;
  added->may_change = constant.may_change;
  return added;
}

GraphNode* Graph::insert_before(GraphNode* position, OperatorPtr op,
                                std::vector<GraphValue*> inputs, TensorInfo output,
                                std::string name) {
  return insert(position_.at(position), *position, std::move(op), std::move(inputs),
                std::move(output), std::move(name));
}

GraphNode* Graph::insert_after(const GraphNode* position, OperatorPtr op, TensorInfo output,
                               std::string name) {
  return insert(std::next(position_.at(position)), *position, std::move(op), {}, std::move(output),
                std::move(name));
}

GraphNode* Graph::insert(decltype(nodes_)::iterator place, const GraphNode& like, OperatorPtr op,
                         std::vector<GraphValue*> inputs, TensorInfo output, std::string name) {
  auto added = nodes_.insert(place, std::make_unique<GraphNode>());
  GraphNode* node = added->get();
  position_[node] = added;
  GraphValue* value = new_value(std::move(output), name);
  value->producer = node;
  node->name = std::move(name);
  node->metadata = like.metadata;
  node->precision = like.precision;
  node->outputs.push_back(value);
  replace(node, std::move(op), std::move(inputs));
  return node;
}

GraphValue* Graph::add_output(GraphNode* node, TensorInfo output, std::string name) {
  GraphValue* value = new_value(std::move(output), std::move(name));
  value->producer = node;
  value->producer_output = static_cast<int>(node->outputs.size());
  node->outputs.push_back(value);
  return value;
}

void Graph::add_uses(GraphNode* node) {
  node->uses.resize(node->inputs.size());
  for (size_t i = 0; i < node->inputs.size(); ++i)
    if (GraphValue* const input = node->inputs[i]; input != nullptr)
      node->uses[i] = input->uses.insert(input->uses.end(), {node, static_cast<int>(i)});
}

void Graph::drop_uses(GraphNode* node) {
  for (size_t i = 0; i < node->uses.size(); ++i)
    if (node->inputs[i] != nullptr) node->inputs[i]->uses.erase(node->uses[i]);
  node->uses.clear();
}

void Graph::replace(GraphNode* node, OperatorPtr op, std::vector<GraphValue*> inputs) {
  drop_uses(node);
  node->parts = nullptr;
  node->op = std::move(op);
  node->inputs = std::move(inputs);
  add_uses(node);
}

void Graph::fuse(const GraphNode& producer, GraphNode* node, OperatorPtr op,
                 std::vector<GraphValue*> inputs, std::shared_ptr<const FusedParts> parts) {
  join(producer, *node);
  replace(node, std::move(op), std::move(inputs));
  // Nodes that only the parts read may be removed as dead.
  if (parts != nullptr && reads_all_of(*node, *parts)) node->parts = std::move(parts);
}

void Graph::set_input(GraphNode* node, int index, GraphValue* value) {
  const auto at = static_cast<size_t>(index);
  GraphValue*& input = node->inputs.at(at);
  if (input != nullptr) input->uses.erase(node->uses[at]);
  input = value;
  if (value != nullptr) node->uses[at] = value->uses.insert(value->uses.end(), {node, index});
  node->parts = nullptr;
}

void Graph::replace_uses(GraphValue* from, GraphValue* to) {
  if (from == to) return;
  for (const GraphValue::Use& use : from->uses) {
    use.node->inputs[use.input] = to;
    use.node->parts = nullptr;
  }
  to->uses.splice(to->uses.end(), from->uses);
  for (const int number : std::exchange(from->output_numbers, {})) {
    outputs_[static_cast<size_t>(number)] = to;
    to->output_numbers.push_back(number);
  }
  for (const int number : std::exchange(from->debug_numbers, {})) {
    debug_[static_cast<size_t>(number)].value = to;
    to->debug_numbers.push_back(number);
  }
}

void Graph::detach(GraphValue* value) {
  // The output may define a symbol of the producer, so the producer keeps an output of that kind.
  GraphNode* producer = value->producer;
  GraphValue* stand_in = new_value(value->info, value->name);
  stand_in->producer = producer;
  stand_in->producer_output = value->producer_output;
  producer->outputs[value->producer_output] = stand_in;
  value->producer = nullptr;
  value->producer_output = 0;
}

bool Graph::is_needed(const GraphNode& node) const {
  return !node.op->is_pure() || node.defines_sizes() ||
         std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](const GraphValue* output) { return use_count(*output) > 0; });
}

void Graph::release(GraphNode* node) {
  if (is_needed(*node)) return;
  drop_uses(node);
  node->inputs.clear();
}

void Graph::remove_dead() {
  for (auto it = nodes_.end(); it != nodes_.begin();) {
    --it;
    GraphNode* node = it->get();
    if (is_needed(*node)) continue;
    drop_uses(node);
    for (GraphValue* output : node->outputs) output->producer = nullptr;
    position_.erase(node);
    it = nodes_.erase(it);
  }
}

bool may_join(const GraphNode& first, const GraphNode& second) {
  return !first.precision || !second.precision || *first.precision == *second.precision;
}

void join(const GraphNode& first, GraphNode& second) {
  second.name = first.name + " + " + second.name;
  if (!second.precision) second.precision = first.precision;
}

}  // namespace opwright
