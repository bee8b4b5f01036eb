#include "control/gate_reader.h"

#include <utility>

#include "operators/elementwise.h"
#include "operators/matrix.h"

namespace opwright::recurrent {
namespace {

Term term_of(const Node& product, int source, int64_t column, int64_t columns) {
  Term term;
  term.source = source, term.column = column, term.columns = columns;
  term.inside = product.tensor;
  term.weight_in = product.weight_in, term.weight_out = product.weight_out;
  term.by_output = product.by_output;
  return term;
}

}  // namespace

bool same(const ActivationParams& a, const ActivationParams& b) {
  return a.type == b.type && a.alpha == b.alpha && a.beta == b.beta;
}

const Node* as_activation(const Node* node) {
  return node->kind == Kind::kActivation && recurrent_activation(node->activation) ? node : nullptr;
}

bool is_whole_state(const Node& node, size_t state, int64_t size) {
  return node.kind == Kind::kState && node.index == static_cast<int>(state) && node.start == 0 &&
         node.size == size;
}

bool GateReader::read(const Node* sum, Gate& gate) {
  std::vector<const Node*> terms;
  if (!append_terms(sum, terms)) return false;
  for (const Node* term : terms)
    if (!read_term(term, gate, true)) return false;
  return true;
}

const Node* GateReader::multiplied_state(const Node* node) const {
  if (node->kind != Kind::kMultiply || node->size != size_) return nullptr;
  for (size_t i = 0; i < 2; ++i)
    if (is_state(node->operands[i])) return node->operands[1 - i];
  return nullptr;
}

template <class SetReset>
bool GateReader::read_reset_product(const Node& product, const SetReset& set_reset) {
  for (size_t i = 0; i < 2; ++i) {
    std::vector<const Node*> terms;
    Gate inner;
    if (as_activation(product.operands[i]) == nullptr ||
        !append_terms(product.operands[1 - i], terms))
      continue;
    bool fits = true;
    for (const Node* term : terms) fits = fits && read_term(term, inner, true);
    if (!fits || !inner.inputs.empty() || inner.states.empty() || inner.peephole ||
        !set_reset(product.operands[i]))
      continue;
    cell_.gates[2].states = std::move(inner.states);
    cell_.gates[2].recurrent_biases = std::move(inner.biases);
    return true;
  }
  return false;
}

bool GateReader::read_candidate(const Node* sum) {
  std::vector<const Node*> terms;
  if (!append_terms(sum, terms)) return false;
  const Node* reset = nullptr;
  Gate& gate = cell_.gates[2];
  const auto set_reset = [&](const Node* r) {
    if (as_activation(r) == nullptr || (reset != nullptr && reset != r) ||
        !same(r->activation, cell_.activations[0]))
      return false;
    reset = r;
    return true;
  };
  bool is_before = false, is_behind = false;
  for (const Node* term : terms) {
    if (term->kind == Kind::kProduct && multiplied_state(term->operands[0]) != nullptr) {
      is_behind = true;
      if (!set_reset(multiplied_state(term->operands[0]))) return false;
      gate.states.push_back(term_of(*term, 0, 0, size_));
      continue;
    }
    if (term->kind == Kind::kMultiply && !is_before && read_reset_product(*term, set_reset)) {
      is_before = true;
      continue;
    }
    if (!read_term(term, gate, /*takes_state=*/false)) return false;
  }
  cell_.linear_before_reset = is_before;
  return is_before != is_behind && read(reset->operands[0], cell_.gates[1]);
}

bool GateReader::read_term(const Node* term, Gate& gate, bool takes_state) {
  if (term->kind == Kind::kFixed) {
    gate.biases.push_back({term->tensor, nullptr, term->size == 1 ? -1 : term->start});
    return true;
  }
  if (term->kind == Kind::kElement) return read_projected(*term, gate);
  if (term->kind == Kind::kMultiply) return read_peephole(*term, gate);
  if (term->kind != Kind::kProduct) return false;
  const Node& x = *term->operands[0];
  if (x.kind == Kind::kState && takes_state && x.index == cell_.hidden) {
    gate.states.push_back(term_of(*term, 0, x.start, x.size));
    return true;
  }
  if (x.kind != Kind::kElement) return false;
  const RepeatedLayers::Element& element = loop_.elements[static_cast<size_t>(x.index)];
  const std::optional<int64_t> columns = reader_.columns(*element.inside);
  if (!columns) return false;
  const int source = source_of(element.whole, element.axis, element.is_reverse, *columns);
  gate.inputs.push_back(term_of(*term, source, x.start, x.size));
  return true;
}

bool GateReader::read_peephole(const Node& term, Gate& gate) {
  if (cell_.kind != RecurrentCell::kLSTM || gate.peephole) return false;
  const bool is_output = &gate == &cell_.gates[1];
  const auto c = static_cast<size_t>(cell_.memory);
  for (size_t i = 0; i < 2; ++i) {
    const Node *const weights = term.operands[i], *const memory = term.operands[1 - i];
    if (weights->kind != Kind::kFixed ||
        !(is_output ? memory == next_[c] : is_whole_state(*memory, c, size_)))
      continue;
    gate.peephole = Bias{weights->tensor, nullptr, weights->size == 1 ? -1 : weights->start};
    return true;
  }
  return false;
}

bool GateReader::read_projected(const Node& node, Gate& gate) {
  const RepeatedLayers::Element& element = loop_.elements[static_cast<size_t>(node.index)];
  Tensor* tensor = element.whole;
  const SymShape& dims = tensor->dims();
  if (dims.empty() || !dims.back().is_constant() ||
      reader_.columns(*element.inside) != dims.back().constant() ||
      element.axis + 1 >= static_cast<int>(dims.size()))
    return false;
  for (int depth = 0; depth < kMostDepth; ++depth) {
    const Layer* const layer = tensor->producer();
    if (layer == nullptr || layer->precision() || tensor->is_debug()) return false;
    if (const auto* op = params_of<ElementWise>(layer)) {
      if (op->op != ElementWiseOperation::kSUM) return false;
      Tensor *a = layer->input(0), *b = layer->input(1);
      if (a->dims() != dims) std::swap(a, b);
      if (a->dims() != dims || !is_constant(b->dims())) return false;
      const int64_t count = numel(b->dims()).constant();
      if (count != 1 && (count != dims.back().constant() || !(b->dims().back() == dims.back())))
        return false;
      gate.biases.push_back({nullptr, b, count == 1 ? -1 : node.start});
      tensor = a;
      continue;
    }
    const auto* product = params_of<MatrixMultiply>(layer);
    if (product == nullptr || product->op0 != MatrixOperation::kNONE ||
        product->op1 == MatrixOperation::kVECTOR)
      return false;
    Tensor *const x = layer->input(0), *const weights = layer->input(1);
    SymShape expected = dims;
    expected.back() = x->dims().back();
    const SymShape& shape = weights->dims();
    if (x->dims() != expected || !expected.back().is_constant() || !is_constant(shape) ||
        numel(shape).constant() != expected.back().constant() * dims.back().constant())
      return false;
    const bool by_output = product->op1 == MatrixOperation::kTRANSPOSE;
    Term term;
    term.source = source_of(x, element.axis, element.is_reverse, expected.back().constant());
    term.columns = expected.back().constant();
    term.outside = weights;
    term.weight_out = node.start;
    term.by_output = by_output;
    gate.inputs.push_back(term);
    return true;
  }
  return false;
}

int GateReader::source_of(Tensor* whole, int axis, bool is_reverse, int64_t columns) {
  for (size_t i = 0; i < cell_.sources.size(); ++i) {
    const Cell::Source& source = cell_.sources[i];
    if (source.whole == whole && source.axis == axis && source.is_reverse == is_reverse)
      return static_cast<int>(i);
  }
  cell_.sources.push_back({whole, axis, is_reverse, columns});
  return static_cast<int>(cell_.sources.size()) - 1;
}

}  // namespace opwright::recurrent
