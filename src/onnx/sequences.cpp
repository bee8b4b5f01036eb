// Sequences and optionals, which are no layers: lists of tensors, or one tensor of all elements.

#include <algorithm>
#include <numeric>

#include "onnx/importer.h"
#include "operators/movement.h"

namespace opwright::onnx {
namespace {

// Bounds the sequences that a model may make from a few bytes.
constexpr int64_t kMaxLength = 65'536;

/// A position in a sequence; negative ones count from the end.
size_t position(const NodeImporter& node, int index, size_t count, bool may_be_end) {
  const int64_t length = static_cast<int64_t>(count);
  const int64_t given = node.constant_int(node.input(index), "the position");
  const int64_t at = given < 0 ? given + length : given;
  if (at < 0 || at > length || (at == length && !may_be_end))
    node.error("position ", given, " is out of range for a sequence of ", length, " tensors");
  return static_cast<size_t>(at);
}

void construct_sequence(NodeImporter& node) {
  Sequence made;
  for (int i = 0; i < node.num_inputs(); ++i) made.push_back(node.input(i));
  node.set_output(0, Value(std::move(made)));
}

void insert_tensor(NodeImporter& node) {
  if (const Value& given = node.value(0); given.growing_state() >= 0) {
    if (node.optional_value(2) != nullptr || given.appended() != nullptr)
      node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC,
                    "an iteration of a loop that is counted when the engine runs can append one "
                    "tensor at the end of a sequence; make the number of iterations constant");
    return node.set_output(0, given.with_appended(node.input(1)));
  }
  Sequence made = node.sequence(0);
  Tensor* tensor = node.input(1);
  if (static_cast<int64_t>(made.size()) >= kMaxLength)
    node.error("the sequence has ", made.size(), " tensors; no more are supported");
  if (!made.empty() && made[0]->dtype() != tensor->dtype())
    node.error("inserts a tensor of ", opwright::name(tensor->dtype()), " into a sequence of ",
               opwright::name(made[0]->dtype()), "; expected the same type");
  const size_t at =
      node.optional_value(2) != nullptr ? position(node, 2, made.size(), true) : made.size();
  made.insert(made.begin() + static_cast<std::ptrdiff_t>(at), tensor);
  node.set_output(0, Value(std::move(made)));
}

void erase_tensor(NodeImporter& node) {
  Sequence made = node.sequence(0);
  if (made.empty()) node.error("the sequence is empty; there is nothing to erase");
  const size_t at =
      node.optional_value(1) != nullptr ? position(node, 1, made.size(), false) : made.size() - 1;
  made.erase(made.begin() + static_cast<std::ptrdiff_t>(at));
  node.set_output(0, Value(std::move(made)));
}

void tensor_at(NodeImporter& node) {
  if (Tensor* elements = node.value(0).stacked())
    return node.set_output(0, node.add<Gather>({}, {elements, node.input(1)}));
  const Sequence& tensors = node.sequence(0);
  node.set_output(0, tensors[position(node, 1, tensors.size(), false)]);
}

void sequence_length(NodeImporter& node) {
  if (const Tensor* elements = node.value(0).stacked())
    return node.set_output(
        0, node.network().add_values({elements->dims()[0]}, DataType::kINT64, true));
  node.set_output(0, node.scalar(static_cast<double>(node.sequence(0).size()), DataType::kINT64));
}

/// The part of an axis that begins at `start`.
Tensor* part_of(NodeImporter& node, Tensor* x, int axis, const Expr& start, const Expr& extent) {
  SliceParams params;
  SymShape starts(x->rank(), Expr(0)), sizes = x->dims();
  starts[axis] = start, sizes[axis] = extent;
  params.stride.assign(x->rank(), 1);
  if (!is_constant(starts) || !is_constant(sizes))
    return node.add<Slice>(
        params, {x, node.network().add_values(starts), node.network().add_values(sizes)});
  for (int i = 0; i < x->rank(); ++i) {
    params.start.push_back(starts[i].constant());
    params.size.push_back(sizes[i].constant());
  }
  return node.add<Slice>(params, {x});
}

void split_to_sequence(NodeImporter& node) {
  Tensor* x = node.input(0);
  node.require_rank(x, 1);
  const int axis = node.axis(node.get_int("axis", 0), x->rank());
  Tensor* given = node.optional_input(1);
  const Expr extent = x->dims()[axis];
  std::vector<Expr> parts;
  if (given != nullptr && given->rank() == 1) {
    parts = node.values(given, "split");
  } else {
    const int64_t part = given != nullptr ? node.constant_int(given, "split") : 1;
    if (part < 1) node.error("split is ", part, "; expected 1 or more");
    if (!extent.is_constant())
      node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC,
                    "the length of the sequence depends on input shapes: fix the extent of axis ",
                    axis, ", or give the extent of each part");
    if (extent.constant() / part >= kMaxLength)
      node.error("makes ", extent.constant() / part, " tensors; at most ", kMaxLength,
                 " are supported");
    for (int64_t start = 0; start < extent.constant(); start += part)
      parts.emplace_back(std::min(part, extent.constant() - start));
  }
  const bool keeps_axis = given != nullptr || node.get_int("keepdims", 1) != 0;
  Sequence made;
  Expr start = 0;
  for (const Expr& part : parts) {
    Tensor* slice = part_of(node, x, axis, start, part);
    made.push_back(keeps_axis ? slice : node.squeeze(slice, {axis}));
    start = start + part;
  }
  if (start.is_constant() && extent.is_constant() && start.constant() != extent.constant())
    node.error("the parts of split are ", start.constant(), " elements together; axis ", axis,
               " has ", extent.constant());
  node.set_output(0, Value(std::move(made)));
}

/// Turns a stack into one tensor: its elements along `axis`, as a new axis or within the present
/// one.
Tensor* unstack(NodeImporter& node, Tensor* elements, int64_t given, bool is_new) {
  const int axis = node.axis(given, elements->rank() - (is_new ? 0 : 1));
  Ints order(elements->rank());
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + 1, order.begin() + axis + 1);
  Tensor* moved = axis == 0 ? elements : node.transpose(elements, order);
  if (is_new) return moved;
  SymShape dims = moved->dims();
  const auto at = static_cast<size_t>(axis);
  dims[at] = dims[at] * dims[at + 1];
  dims.erase(dims.begin() + axis + 1);
  return node.reshape(moved, dims);
}

void concat_from_sequence(NodeImporter& node) {
  const bool is_new = node.get_int("new_axis", 0) != 0;
  const AttributeProto* given = node.attribute("axis", AttributeProto::Type::kInt);
  if (given == nullptr) node.error("attribute 'axis' is missing");
  if (Tensor* elements = node.value(0).stacked())
    return node.set_output(0, unstack(node, elements, given->i, is_new));
  Sequence tensors = node.sequence(0);
  if (tensors.empty()) node.error("the sequence is empty; expected a tensor or more");
  const int axis = node.axis(given->i, tensors[0]->rank() + (is_new ? 1 : 0));
  if (is_new)
    for (Tensor*& tensor : tensors) tensor = node.unsqueeze(tensor, {axis});
  node.set_output(0, node.add<Concatenation>({axis}, tensors));
}

/// Applies the body to the elements of the sequences at each position, and to tensors as they are.
void map_sequence(NodeImporter& node) {
  const GraphProto& body = node.body("body");
  const size_t count = node.sequence(0).size();
  std::vector<Sequence> made(body.outputs.size());
  if (static_cast<size_t>(node.num_outputs()) > made.size())
    node.error("has ", node.num_outputs(), " outputs; its body has ", made.size());
  for (size_t i = 0; i < count; ++i) {
    std::vector<Value> inputs;
    for (int k = 0; k < node.num_inputs(); ++k) {
      const Value& given = node.value(k);
      if (!given.is_sequence()) {
        inputs.push_back(given);
        continue;
      }
      const Sequence& tensors = node.sequence(k);
      if (tensors.size() != count)
        node.error("input ", k, " is a sequence of ", tensors.size(), " tensors; expected ", count,
                   ", as input 0");
      inputs.emplace_back(tensors[i]);
    }
    const std::vector<Value> outputs = node.add_body(body, str(i), inputs);
    for (size_t k = 0; k < made.size(); ++k) {
      if (outputs[k].tensor() == nullptr)
        node.error("output ", k, " of its body is no tensor; expected one");
      made[k].push_back(outputs[k].tensor());
    }
  }
  for (int k = 0; k < node.num_outputs(); ++k) node.set_output(k, Value(std::move(made[k])));
}

/// A present optional is its value.
void make_optional(NodeImporter& node) {
  const Value* given = node.optional_value(0);
  node.set_output(0, given != nullptr ? *given : Value::empty_optional());
}

void optional_has_element(NodeImporter& node) {
  const Value* given = node.optional_value(0);
  const bool is_there = given != nullptr && !given->is_empty_optional();
  node.set_output(0, node.scalar(is_there ? 1 : 0, DataType::kBOOL));
}

void optional_get_element(NodeImporter& node) {
  const Value& given = node.value(0);
  if (given.is_empty_optional()) node.error("the optional holds nothing");
  node.set_output(0, given);
}

}  // namespace

void add_sequences(NodeTable& table) {
  table["SequenceEmpty"] = [](NodeImporter& node) { node.set_output(0, Value(Sequence())); };
  table["SequenceConstruct"] = construct_sequence;
  table["SequenceInsert"] = insert_tensor;
  table["SequenceErase"] = erase_tensor;
  table["SequenceAt"] = tensor_at;
  table["SequenceLength"] = sequence_length;
  table["SplitToSequence"] = split_to_sequence;
  table["ConcatFromSequence"] = concat_from_sequence;
  table["SequenceMap"] = map_sequence;
  table["Optional"] = make_optional;
  table["OptionalHasElement"] = optional_has_element;
  table["OptionalGetElement"] = optional_get_element;
}

}  // namespace opwright::onnx
