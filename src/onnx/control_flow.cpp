// If, Loop and Scan. A body is taken over once for each run if the number of runs is known.
// Otherwise it becomes a network of its own.

#include <limits>

#include "control/body_inputs.h"
#include "control/chosen_branch.h"
#include "control/conditional.h"
#include "control/iterations.h"
#include "control/loop.h"
#include "control/loop_count.h"
#include "network/shape_inputs.h"
#include "onnx/importer.h"
#include "onnx/recurrent_body.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/source.h"

namespace opwright::onnx {
namespace {

bool is_small(int64_t iterations, const GraphProto& body) {
  return is_small_loop(iterations, static_cast<int64_t>(body.nodes.size()));
}

Tensor* tensor_of(NodeImporter& node, const Value& value, std::string_view what) {
  if (value.tensor() == nullptr)
    node.error(what, " is ", value.is_sequence() ? "a sequence" : "an optional that holds nothing",
               "; expected a tensor");
  return value.tensor();
}

/// Selects one of two values by a condition that is known when the engine runs. Both are computed.
Value select(NodeImporter& node, Tensor* condition, const Value& then_value,
             const Value& else_value, int output) {
  const auto refuse = [&](const auto&... parts) {
    node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, "output ", output, " ",
                  parts..., ", which needs a condition that is constant or computed from shapes");
  };
  if (then_value.sequence() != nullptr && else_value.sequence() != nullptr) {
    const Sequence &a = *then_value.sequence(), &b = *else_value.sequence();
    if (a.size() != b.size())
      refuse("is a sequence of ", a.size(), " tensors in one branch and of ", b.size(),
             " in the other");
    Sequence chosen;
    for (size_t i = 0; i < a.size(); ++i)
      chosen.push_back(select(node, condition, a[i], b[i], output).tensor());
    return Value(std::move(chosen));
  }
  Tensor *a = then_value.tensor(), *b = else_value.tensor();
  if (a == nullptr || b == nullptr) {
    if (then_value.is_empty_optional() && else_value.is_empty_optional()) return then_value;
    refuse("is a tensor in one branch and none in the other");
  }
  if (a == b) return a;
  if (a->dtype() != b->dtype())
    node.error("output ", output, " is ", opwright::name(a->dtype()), " in one branch and ",
               opwright::name(b->dtype()), " in the other; expected the same type");
  if (a->dims() != b->dims())
    refuse("has shape ", a->dims(), " in one branch and ", b->dims(), " in the other");
  SymShape ones(a->rank(), Expr(1));
  Tensor* mask = condition->rank() == a->rank() ? condition : node.reshape(condition, ones);
  return node.add<Select>({}, {mask, a, b});
}

/// Adds one layer that runs one of the branches, for outputs whose extents differ.
void add_conditional(NodeImporter& node, Tensor* condition, const GraphProto& then_branch,
                     const GraphProto& else_branch, std::vector<std::pair<int, int>> sizes) {
  const auto start = [](BodyStart&) { return std::vector<Value>(); };
  const BodyNetwork then_body = node.add_body_network(then_branch, {}, start);
  const BodyNetwork else_body = node.add_body_network(else_branch, {}, start, then_body.captured);
  for (const BodyNetwork* body : {&then_body, &else_body}) {
    for (const Value& output : body->outputs)
      mark_body_output(*body->network, tensor_of(node, output, "an output of a branch"));
    remove_unused_inputs(*body->network, body->for_extents);
  }
  Sequence inputs = {as_scalar(node, condition)};
  inputs.insert(inputs.end(), else_body.captured.begin(), else_body.captured.end());
  const auto op = std::make_shared<Conditional>(
      std::array<std::shared_ptr<const Network>, 2>{then_body.network, else_body.network},
      static_cast<int>(else_body.captured.size()), std::move(sizes));
  Layer* layer = node.network().add_layer(op, inputs, node.next_name());
  layer->infer();
  for (int i = 0; i < node.num_outputs(); ++i) node.set_output(i, layer->output(i));
}

/// Sets the outputs of the only branch that could be built.
void keep_branch(NodeImporter& node, Tensor* condition, const std::vector<Value>& values,
                 bool is_then, std::string problem) {
  Sequence inputs = {as_scalar(node, condition)};
  for (int i = 0; i < node.num_outputs(); ++i)
    if (node.has_output(i) && values[static_cast<size_t>(i)].tensor() != nullptr)
      inputs.push_back(values[static_cast<size_t>(i)].tensor());
  if (inputs.size() == 1)
    node.error("its ", is_then ? "else_branch" : "then_branch", " cannot be built: ", problem);
  node.network().errors().log().warning(
      "ONNX node '", node.name(), "' (If): its ", is_then ? "else_branch" : "then_branch",
      " cannot be built for these shapes; a run whose condition chooses it fails: ", problem);
  Layer* layer = node.network().add_layer(
      std::make_shared<ChosenBranch>(is_then, std::move(problem)), inputs, node.next_name());
  layer->infer();
  int next = 0;
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Value& value = values[static_cast<size_t>(i)];
    if (!node.has_output(i)) continue;
    node.set_output(i, value.tensor() != nullptr ? Value(layer->output(next++)) : value);
  }
}

void if_node(NodeImporter& node) {
  Tensor* condition = node.input(0);
  const GraphProto &then_branch = node.body("then_branch"), &else_branch = node.body("else_branch");
  if (then_branch.outputs.size() != else_branch.outputs.size())
    node.error("then_branch has ", then_branch.outputs.size(), " outputs, else_branch ",
               else_branch.outputs.size(), "; expected the same number");
  if (node.num_outputs() > static_cast<int>(then_branch.outputs.size()))
    node.error("has ", node.num_outputs(), " outputs; its branches have ",
               then_branch.outputs.size());
  std::optional<bool> known = node.known_bool(condition);
  if (known) {
    const std::vector<Value> outputs =
        node.add_body(*known ? then_branch : else_branch, *known ? "then" : "else", {});
    for (int i = 0; i < node.num_outputs(); ++i) node.set_output(i, outputs[i]);
    return;
  }
  // Models have branches for shapes other than those for which they are built.
  std::string problem;
  const auto then_made = node.try_add_body(then_branch, "then", problem);
  const auto else_made = node.try_add_body(else_branch, "else", problem);
  if (!then_made && !else_made) node.fail_bodies();
  if (!then_made || !else_made)
    return keep_branch(node, condition, then_made ? *then_made : *else_made, then_made.has_value(),
                       std::move(problem));
  const std::vector<Value>&then_values = *then_made, &else_values = *else_made;
  std::vector<std::pair<int, int>> sizes;
  for (size_t i = 0; i < then_values.size(); ++i) {
    const Tensor *a = then_values[i].tensor(), *b = else_values[i].tensor();
    if (a == nullptr || b == nullptr || a->rank() != b->rank()) continue;
    for (int axis = 0; axis < a->rank(); ++axis)
      if (!(a->dims()[static_cast<size_t>(axis)] == b->dims()[static_cast<size_t>(axis)]))
        sizes.emplace_back(static_cast<int>(i), axis);
  }
  if (!sizes.empty())
    return add_conditional(node, condition, then_branch, else_branch, std::move(sizes));
  for (int i = 0; i < node.num_outputs(); ++i)
    if (node.has_output(i))
      node.set_output(i, select(node, condition, then_values[i], else_values[i], i));
}

/// Adds a loop whose body is a network of its own. Returns the last states and the stacked outputs.
/// `limit` null: the body decides how often it runs. `begins` null: the first iteration runs in any
/// case.
Sequence add_loop(NodeImporter& node, BodyNetwork made, Tensor* limit, Tensor* begins,
                  Tensor* goes_on, std::span<Tensor* const> states) {
  LoopBody body;
  body.is_computed = goes_on != nullptr;
  body.states = static_cast<int>(states.size());
  body.captures = static_cast<int>(made.captured.size());
  body.stacked = static_cast<int>(made.outputs.size() - states.size());
  if (goes_on != nullptr) mark_body_output(*made.network, goes_on);
  for (const Value& output : made.outputs)
    mark_body_output(*made.network, tensor_of(node, output, "an output of its body"));
  remove_unused_inputs(*made.network, made.for_extents);
  const bool counts = body.stacked > 0 && (body.is_computed || begins != nullptr);
  body.network = made.network;
  const int results = body.states + body.stacked;

  Sequence inputs = {limit, begins};
  inputs.insert(inputs.end(), states.begin(), states.end());
  inputs.insert(inputs.end(), made.captured.begin(), made.captured.end());
  Layer* layer = node.network().add_layer(std::make_shared<Loop>(std::move(body), counts), inputs,
                                          node.next_name());
  layer->infer();
  return Sequence(layer->outputs().begin(), layer->outputs().begin() + results);
}

/// Whether a condition in a body's network is true in all iterations.
bool is_always_true(const Tensor* condition) {
  const TensorInfo& info = condition->info();
  if (info.constant) return *info.constant.as<uint8_t>() != 0;
  return info.values && (*info.values)[0].is_constant() && (*info.values)[0].constant() != 0;
}

/// Adds a loop whose body is the cell of a recurrent layer as that layer. Returns the last states
/// and the stacked outputs. Without `by_iteration`, stacked elements lie where their inputs'
/// elements lie.
std::optional<Sequence> add_cell(NodeImporter& node, const BodyNetwork& made, BodyTensors tensors,
                                 Tensor* limit, std::span<Tensor* const> states, bool by_iteration,
                                 bool* is_reverse = nullptr) {
  Sequence outputs;
  for (const Value& output : made.outputs) {
    if (output.tensor() == nullptr) return std::nullopt;
    outputs.push_back(output.tensor());
  }
  const std::span<Tensor* const> all(outputs);
  std::optional<RecurrentCellLayers> cell =
      recognize_body(node, made, std::move(tensors), limit, states, all.first(states.size()),
                     all.subspan(states.size()));
  if (!cell) return std::nullopt;
  if (is_reverse != nullptr) *is_reverse = cell->is_reverse;
  Sequence results = std::move(cell->last);
  for (Tensor* stacked : cell->stacked)
    results.push_back(cell->is_reverse && by_iteration ? reversed(node, stacked) : stacked);
  return results;
}

/// Gives a loop without a number of iterations the number up to which its condition counts, if
/// shapes decide this number. Removes conditions that say no more than the number.
void count_loop(NodeImporter& node, const BodyNetwork& made, const BodyTensors& tensors,
                std::span<Tensor* const> states, Tensor*& trips, Tensor*& condition,
                Tensor*& goes_on) {
  std::vector<const Tensor*> next;
  for (size_t i = 0; i < states.size(); ++i) next.push_back(made.outputs[i + 1].tensor());
  const std::optional<LoopCount> count = count_iterations(
      {*made.network, *goes_on, tensors.iteration, tensors.states, next, states, made.captured});
  if (!count) return;
  Expr most = count->most;
  if (count->is_exact) {
    goes_on = nullptr;
    if (condition != nullptr && condition->info().values != nullptr) {
      most = Expr::select(condition->info().values->front(), most, 0);
      condition = nullptr;
    }
  }
  trips = node.network().add_values({most}, DataType::kINT64, true);
}

/// Adds a Loop whose number of iterations is known only at run time. A state that begins as an
/// empty sequence and gets a tensor in each iteration becomes a stacked output. `as_cell`: adds the
/// loop only if it is one recurrent layer; otherwise returns false and adds nothing.
bool loop_at_run_time(NodeImporter& node, const GraphProto& body, Tensor* trips, Tensor* condition,
                      bool as_cell) {
  const int num_states = node.num_inputs() - 2;
  Sequence states;
  bool stacks = body.outputs.size() > static_cast<size_t>(num_states) + 1;
  for (int i = 0; i < num_states; ++i) {
    const Value& state = node.value(i + 2);
    if (state.tensor() != nullptr) {
      states.push_back(state.tensor());
    } else if (state.sequence() != nullptr && state.sequence()->empty()) {
      stacks = true;
    } else {
      node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, "state ", i,
                    " is an optional, or a sequence with elements, which needs a number of "
                    "iterations that is known when the model is read");
    }
  }
  if (trips != nullptr) {
    if (stacks && !as_cell) make_shape_inputs(*trips);
    trips = node.cast(as_scalar(node, trips), DataType::kINT64);
  }
  if (condition != nullptr) {
    const std::optional<bool> begins = node.known_bool(condition);
    condition = begins && *begins ? nullptr : as_scalar(node, condition);
  }
  BodyTensors tensors;
  BodyNetwork made = node.add_body_network(body, states, [&](BodyStart& start) {
    tensors.iteration = start.iteration, tensors.states = start.states;
    // The condition is true in each iteration that runs.
    std::vector<Value> inputs = {start.iteration, start.node.scalar(1, DataType::kBOOL)};
    auto next = start.states.begin();
    for (int i = 0; i < num_states; ++i)
      inputs.push_back(node.value(i + 2).tensor() != nullptr ? Value(*next++) : Value::growing(i));
    return inputs;
  });
  Tensor* goes_on = tensor_of(node, made.outputs[0], "the body's condition");
  if (goes_on->dtype() != DataType::kBOOL ||
      (is_constant(goes_on->dims()) && !(numel(goes_on->dims()) == Expr(1))))
    node.error("its body's condition is ", opwright::name(goes_on->dtype()), " of shape ",
               goes_on->dims(), "; expected one BOOL");
  if (is_always_true(goes_on)) goes_on = nullptr;
  if (trips == nullptr && goes_on != nullptr && states.size() == static_cast<size_t>(num_states))
    count_loop(node, made, tensors, states, trips, condition, goes_on);
  if (as_cell && (goes_on != nullptr || condition != nullptr)) return false;
  if (trips == nullptr && goes_on == nullptr)
    node.error(
        "never ends: it has no number of iterations, and its body's condition is always "
        "true");

  // The order is: states, stacked outputs of the body, tensors that sequences grow by.
  std::vector<Value> ordered;
  std::vector<size_t> places;  // by output of the node
  for (int i = 0; i < num_states; ++i) {
    const Value& state = made.outputs[static_cast<size_t>(i) + 1];
    places.push_back(ordered.size());
    if (node.value(i + 2).tensor() != nullptr)
      ordered.push_back(state);
    else if (state.growing_state() == i && state.appended() != nullptr)
      continue;
    else if (as_cell)
      return false;
    else
      node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, "state ", i,
                    " is a sequence; expected that each iteration appends one tensor to it, or a "
                    "number of iterations that is known when the model is read");
  }
  for (size_t i = static_cast<size_t>(num_states) + 1; i < made.outputs.size(); ++i) {
    places.push_back(ordered.size());
    ordered.push_back(made.outputs[i]);
  }
  for (int i = 0; i < num_states; ++i) {
    const Value& state = made.outputs[static_cast<size_t>(i) + 1];
    if (state.growing_state() < 0) continue;
    places[static_cast<size_t>(i)] = ordered.size();
    ordered.emplace_back(state.appended());
  }
  made.outputs = std::move(ordered);
  std::optional<Sequence> cell;
  if (goes_on == nullptr && condition == nullptr && may_be_cell(body))
    cell = add_cell(node, made, std::move(tensors), trips, states, /*by_iteration=*/true);
  if (as_cell && !cell) return false;
  const Sequence results =
      cell ? *cell : add_loop(node, std::move(made), trips, condition, goes_on, states);
  for (int i = 0; i < node.num_outputs(); ++i) {
    Tensor* result = results[places[static_cast<size_t>(i)]];
    const bool is_sequence = i < num_states && node.value(i + 2).tensor() == nullptr;
    node.set_output(i, is_sequence ? Value::stacked(result) : Value(result));
  }
  return true;
}

void loop_node(NodeImporter& node) {
  const GraphProto& body = node.body("body");
  const size_t states = static_cast<size_t>(std::max(node.num_inputs() - 2, 0));
  if (body.inputs.size() != states + 2)
    node.error("its body takes ", body.inputs.size(),
               " inputs; expected the iteration, the "
               "condition and ",
               states, " states");
  if (body.outputs.size() < states + 1)
    node.error("its body has ", body.outputs.size(), " outputs; expected the condition, ", states,
               " states and what is stacked");
  const size_t scans = body.outputs.size() - states - 1;
  if (static_cast<size_t>(node.num_outputs()) > states + scans)
    node.error("has ", node.num_outputs(), " outputs; its body gives ", states + scans);

  Tensor* const trips = node.optional_input(0);
  const std::optional<int64_t> limit = trips != nullptr ? node.known_int(trips) : std::nullopt;
  // Exporters write the largest integer where only the condition decides.
  const int64_t most = limit.value_or(std::numeric_limits<int64_t>::max());
  const bool is_open = most > std::numeric_limits<int32_t>::max();
  Tensor* condition = node.optional_input(1);
  bool has_list = false;  // a state that needs a known number of iterations
  for (size_t i = 0; i < states; ++i) {
    const Value& state = node.value(static_cast<int>(i) + 2);
    has_list = has_list || (state.tensor() == nullptr &&
                            (state.sequence() == nullptr || !state.sequence()->empty()));
  }
  const auto run_later = [&] {
    loop_at_run_time(node, body, is_open && limit ? nullptr : trips, node.optional_input(1), false);
  };
  if (limit && !is_open && !has_list && may_be_cell(body) &&
      loop_at_run_time(node, body, trips, condition, /*as_cell=*/true))
    return;
  if ((trips != nullptr && !limit) || (!is_open && !has_list && !is_small(most, body)))
    return run_later();
  Tensor* const yes = node.scalar(1, DataType::kBOOL);
  std::vector<Value> values;
  for (size_t i = 0; i < states; ++i) values.push_back(node.value(static_cast<int>(i) + 2));
  std::vector<Sequence> stacked(scans);
  const auto run_body = [&](int64_t iteration) {
    std::vector<Value> inputs = {constant_scalar(node, iteration),
                                 condition != nullptr ? condition : yes};
    inputs.insert(inputs.end(), values.begin(), values.end());
    return node.add_body(body, str(iteration), inputs);
  };
  for (int64_t i = 0; i < most; ++i) {
    if (condition != nullptr) {
      const std::optional<bool> go_on = node.known_bool(condition);
      if (!go_on) return run_later();
      if (!*go_on) break;
    }
    if (is_open && !has_list && !is_small(i, body)) return run_later();
    const std::vector<Value> outputs = run_body(i);
    condition = tensor_of(node, outputs[0], "the body's condition");
    for (size_t s = 0; s < states; ++s) {
      const Tensor *const before = values[s].tensor(), *const after = outputs[s + 1].tensor();
      if (before != nullptr && after != nullptr && before->dtype() != after->dtype())
        node.error("state ", s, " is ", opwright::name(before->dtype()), " before iteration ", i,
                   " and ", opwright::name(after->dtype()), " behind it; expected the same type");
      values[s] = outputs[s + 1];
    }
    for (size_t s = 0; s < scans; ++s)
      stacked[s].push_back(tensor_of(node, outputs[1 + states + s], "a stacked output"));
  }
  for (size_t i = 0; i < states; ++i) node.set_output(static_cast<int>(i), values[i]);
  std::vector<Value> shapes_of;  // shapes for stacked outputs, from the body, if it never runs
  for (size_t s = 0; s < scans; ++s) {
    const int output = static_cast<int>(states + s);
    if (!node.has_output(output)) continue;
    if (stacked[s].empty() && shapes_of.empty()) shapes_of = run_body(0);
    node.set_output(
        output,
        stacked[s].empty()
            ? empty_stack(node, tensor_of(node, shapes_of[1 + states + s], "a stacked output"), 0)
            : stack(node, stacked[s], 0, str("output ", output)));
  }
}

/// One number per input or output from an attribute of a Scan.
Ints per_port(const NodeImporter& node, std::string_view attribute, size_t count) {
  Ints given = node.get_ints(attribute, Ints(count, 0));
  if (given.size() != count)
    node.error("attribute '", attribute, "' has ", given.size(), " elements; expected ", count);
  return given;
}

struct ScanPorts {
  size_t states = 0, inputs = 0, outputs = 0;
  Ints input_axes, output_axes, input_directions, output_directions;
};

/// Adds a Scan whose number of iterations is known only at run time. Each iteration picks its
/// elements by its number. `as_cell`: adds the scan only if it is one recurrent layer; otherwise
/// returns nothing.
std::vector<Value> scan_at_run_time(NodeImporter& node, const GraphProto& body,
                                    const ScanPorts& ports, std::span<const Value> values,
                                    const Sequence& inputs, bool as_cell) {
  Sequence states;
  for (const Value& value : values) states.push_back(value.tensor());
  const auto axis_of = [&](size_t i) { return node.axis(ports.input_axes[i], inputs[i]->rank()); };
  BodyTensors tensors;
  BodyNetwork made = node.add_body_network(body, states, [&](BodyStart& start) {
    tensors.iteration = start.iteration, tensors.states = start.states;
    std::vector<Value> elements(start.states.begin(), start.states.end());
    for (size_t i = 0; i < ports.inputs; ++i) {
      Tensor* const input = start.capture(inputs[i]);
      Tensor* at = start.iteration;
      if (ports.input_directions[i] != 0) {
        const Expr last = input->dims()[static_cast<size_t>(axis_of(i))] - 1;
        at = start.node.elementwise(ElementWiseOperation::kSUB,
                                    start.node.network().add_values({last}, DataType::kINT64, true),
                                    at);
      }
      Tensor* const element = pick(start.node, input, axis_of(i), at);
      tensors.elements.push_back(
          {element, inputs[i], static_cast<int>(axis_of(i)), ports.input_directions[i] != 0});
      elements.emplace_back(element);
    }
    return elements;
  });
  Tensor* length = node.network().add_values({inputs[0]->dims()[static_cast<size_t>(axis_of(0))]},
                                             DataType::kINT64, true);
  bool is_reverse = false;
  std::optional<Sequence> made_by;
  if (may_be_cell(body))
    made_by = add_cell(node, made, std::move(tensors), length, states, false, &is_reverse);
  if (as_cell && !made_by) return {};
  if (!made_by) made_by = add_loop(node, std::move(made), length, nullptr, nullptr, states);
  std::vector<Value> results(made_by->begin(), made_by->end());
  for (size_t s = 0; s < ports.outputs; ++s) {
    Tensor* whole = (*made_by)[ports.states + s];
    if ((ports.output_directions[s] != 0) != is_reverse) whole = reversed(node, whole);
    const int axis = node.axis(ports.output_axes[s], whole->rank());
    results[ports.states + s] = move_first_axis(node, whole, axis);
  }
  return results;
}

/// Returns the final states and the stacked outputs.
std::vector<Value> run_scan(NodeImporter& node, const GraphProto& body, const ScanPorts& ports,
                            std::vector<Value> states, const Sequence& inputs,
                            const std::string& part) {
  std::optional<int64_t> length;
  for (size_t i = 0; i < ports.inputs; ++i) {
    const Expr& extent = inputs[i]->dims()[node.axis(ports.input_axes[i], inputs[i]->rank())];
    if (!extent.is_constant()) continue;
    if (length && *length != extent.constant())
      node.error("scans inputs of ", *length, " and of ", extent.constant(),
                 " elements; expected the same number");
    length = extent.constant();
  }
  if (!length || !is_small(*length, body))
    return scan_at_run_time(node, body, ports, states, inputs, false);
  if (may_be_cell(body)) {
    std::vector<Value> made = scan_at_run_time(node, body, ports, states, inputs, true);
    if (!made.empty()) return made;
  }
  std::vector<Sequence> stacked(ports.outputs);
  const auto run_body = [&](int64_t iteration, const auto& element) {
    std::vector<Value> values = states;
    for (size_t i = 0; i < ports.inputs; ++i) values.push_back(element(i));
    return node.add_body(body, str(part, iteration), values);
  };
  for (int64_t t = 0; t < *length; ++t) {
    std::vector<Value> made = run_body(t, [&](size_t i) {
      const int64_t at = ports.input_directions[i] != 0 ? *length - 1 - t : t;
      return pick(node, inputs[i], node.axis(ports.input_axes[i], inputs[i]->rank()), at);
    });
    for (size_t s = 0; s < ports.outputs; ++s)
      stacked[s].push_back(tensor_of(node, made[ports.states + s], "a stacked output"));
    made.resize(ports.states);
    states = std::move(made);
  }
  std::vector<Value> results = states;
  std::vector<Value> shapes_of;
  for (size_t s = 0; s < ports.outputs; ++s) {
    if (stacked[s].empty()) {
      if (shapes_of.empty())
        shapes_of = run_body(0, [&](size_t i) {
          return pick(node, inputs[i], node.axis(ports.input_axes[i], inputs[i]->rank()),
                      int64_t{0});
        });
      Tensor* shape = tensor_of(node, shapes_of[ports.states + s], "a stacked output");
      results.push_back(empty_stack(node, shape, ports.output_axes[s]));
      continue;
    }
    if (ports.output_directions[s] != 0) std::reverse(stacked[s].begin(), stacked[s].end());
    results.push_back(
        stack(node, stacked[s], ports.output_axes[s], str("output ", ports.states + s)));
  }
  return results;
}

/// Opset 8 has a batch of scans, each over axis 1 of its inputs.
std::vector<Value> run_scans(NodeImporter& node, const GraphProto& body, const ScanPorts& ports,
                             const Sequence& states, const Sequence& inputs) {
  const Expr batch = (ports.states > 0 ? states : inputs)[0]->dims()[0];
  if (!batch.is_constant())
    node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC,
                  "the batch size depends on input shapes: fix it");
  std::vector<Sequence> parts(ports.states + ports.outputs);
  for (int64_t b = 0; b < batch.constant(); ++b) {
    std::vector<Value> own_states;
    for (Tensor* state : states) own_states.emplace_back(pick(node, state, 0, b));
    Sequence own_inputs;
    for (Tensor* input : inputs) own_inputs.push_back(pick(node, input, 0, b));
    const std::vector<Value> made =
        run_scan(node, body, ports, std::move(own_states), own_inputs, str(b, "/"));
    for (size_t i = 0; i < parts.size(); ++i)
      parts[i].push_back(tensor_of(node, made[i], str("output ", i)));
  }
  std::vector<Value> results;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) node.error("has a batch of 0 scans; expected one or more");
    results.emplace_back(stack(node, parts[i], 0, str("output ", i)));
  }
  return results;
}

void scan_node(NodeImporter& node) {
  const GraphProto& body = node.body("body");
  const bool is_batched = node.opset() < 9;
  const int first = is_batched ? 1 : 0;  // behind the sequences' lengths
  const int64_t total = std::max(node.num_inputs() - first, 0);
  const int64_t scanned = node.get_int("num_scan_inputs", 0);
  if (scanned < 1 || scanned > total)
    node.error("num_scan_inputs is ", scanned, "; expected 1 to ", total, ", its inputs");
  ScanPorts ports;
  ports.inputs = static_cast<size_t>(scanned);
  ports.states = static_cast<size_t>(total - scanned);
  if (body.inputs.size() != static_cast<size_t>(total))
    node.error("its body takes ", body.inputs.size(), " inputs; expected ", total);
  if (body.outputs.size() < ports.states)
    node.error("its body has ", body.outputs.size(), " outputs; expected ", ports.states,
               " states and what is stacked");
  ports.outputs = body.outputs.size() - ports.states;
  if (static_cast<size_t>(node.num_outputs()) > body.outputs.size())
    node.error("has ", node.num_outputs(), " outputs; its body has ", body.outputs.size());
  ports.input_axes = Ints(ports.inputs, 0), ports.output_axes = Ints(ports.outputs, 0);
  ports.output_directions = Ints(ports.outputs, 0);
  if (is_batched) {
    ports.input_directions = per_port(node, "directions", ports.inputs);
  } else {
    ports.input_directions = per_port(node, "scan_input_directions", ports.inputs);
    ports.input_axes = per_port(node, "scan_input_axes", ports.inputs);
    ports.output_directions = per_port(node, "scan_output_directions", ports.outputs);
    ports.output_axes = per_port(node, "scan_output_axes", ports.outputs);
  }

  Sequence states, inputs;
  for (size_t i = 0; i < static_cast<size_t>(total); ++i) {
    Tensor* given = node.input(first + static_cast<int>(i));
    const bool is_state = i < ports.states;
    node.require_rank(given, (is_state ? 0 : 1) + (is_batched ? 1 : 0));
    (is_state ? states : inputs).push_back(given);
  }
  std::vector<Value> results;
  if (is_batched) {
    if (Tensor* lengths = node.optional_input(0)) {
      const Expr& longest = inputs[0]->dims()[1];
      for (int64_t length : node.constant_ints(lengths, "sequence_lens"))
        if (!(Expr(length) == longest))
          node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_INPUT, "a sequence of ", length,
                        " elements among those of ", longest,
                        " is not supported; expected sequence_lens to be absent or all equal to "
                        "the extent of axis 1");
    }
    results = run_scans(node, body, ports, states, inputs);
  } else {
    results = run_scan(node, body, ports, {states.begin(), states.end()}, inputs, "");
  }
  for (int i = 0; i < node.num_outputs(); ++i) node.set_output(i, results[i]);
}

}  // namespace

void add_control_flow(NodeTable& table) {
  table["If"] = if_node;
  table["Loop"] = loop_node;
  table["Scan"] = scan_node;
}

}  // namespace opwright::onnx
