#include <algorithm>
#include <map>
#include <utility>

#include "control/gate_reader.h"

namespace opwright::recurrent {
namespace {

class CellMatcher {
 public:
  explicit CellMatcher(const RepeatedLayers& loop)
      : loop_(loop), kinds_(loop.states.size(), StateKind::kOther) {}

  std::optional<Cell> run() {
    // A layer that does more than compute, or has a loop itself, must run.
    if (std::ranges::any_of(loop_.layers,
                            [](const Layer* layer) { return !layer->op()->is_pure(); }))
      return std::nullopt;
    if (loop_.limit == nullptr || !sort_states()) return std::nullopt;
    const auto& dims = loop_.states[floats_[0]]->dims();
    reader_.emplace(loop_, numel(std::span(dims).first(dims.size() - 1)));
    type_ = loop_.first[floats_[0]]->dtype();
    size_ = dims.back().constant();
    for (const size_t i : floats_) {
      const SymShape& other = loop_.states[i]->dims();
      if (!other.back().is_constant() || other.back().constant() != size_ ||
          reader_->columns(*loop_.states[i]) != size_ || loop_.first[i]->dtype() != type_)
        return std::nullopt;
    }
    if (!read_next() || !match() || !check_input() || !check_outputs() || !check_fixed())
      return std::nullopt;
    cell_.states = kinds_;
    cell_.type = type_, cell_.size = size_, cell_.steps = steps_;
    return cell_;
  }

 private:
  /// Finds which states count iterations and which are a cell's.
  bool sort_states() {
    for (size_t i = 0; i < loop_.states.size(); ++i) {
      const Tensor& state = *loop_.states[i];
      if (state.is_debug()) return false;
      if (is_floating(state.dtype())) {
        if (state.rank() < 1 || !state.dims().back().is_constant() ||
            state.dims().back().constant() < 1)
          return false;
        kinds_[i] = StateKind::kFloat;
        floats_.push_back(i);
        continue;
      }
      const Layer* const made = loop_.next[i]->producer();
      const auto* op = params_of<ElementWise>(made);
      if (!is_number(state.dtype()) || op == nullptr || op->op != ElementWiseOperation::kSUM)
        return false;
      const bool is_first = made->input(0) == &state;
      if (!is_first && made->input(1) != &state) return false;
      const std::optional<Ints> step = known_integers(made->input(is_first ? 1 : 0));
      if (!step || step->size() != 1 || (*step)[0] != 1 ||
          !(numel(loop_.next[i]->dims()) == Expr(1)))
        return false;
      kinds_[i] = StateKind::kCounter;
    }
    return floats_.size() == 1 || floats_.size() == 2;
  }

  /// Reads the states after an iteration. If a condition keeps states, it must be the same for all.
  bool read_next() {
    next_.resize(loop_.states.size());
    const Tensor* condition = nullptr;
    size_t conditional = 0;
    for (const size_t i : floats_) {
      const Node* node = reader_->whole(*loop_.next[i]);
      if (node == nullptr || node->size != size_) return false;
      stored_[i] = node;
      if (node->kind == Kind::kSelect) {
        if (!is_state(node->operands[1], i) || (condition && condition != node->tensor))
          return false;
        condition = node->tensor, node = node->operands[0];
        ++conditional;
      }
      next_[i] = node;
    }
    if (condition == nullptr) return true;
    condition_ = condition;
    return conditional == floats_.size() && read_condition(*condition);
  }

  /// Whether the condition is that the place lies within the sequence. Keeps the sequence's
  /// lengths.
  bool read_condition(const Tensor& condition) {
    const Tensor* tensor = &condition;
    while (tensor->producer() != nullptr && reader_->is_inside(*tensor) && is_view(*tensor))
      tensor = tensor->producer()->input(0);
    const auto* op = params_of<ElementWise>(tensor->producer());
    if (op == nullptr) return false;
    const bool is_less = op->op == ElementWiseOperation::kLESS;
    if (!is_less && op->op != ElementWiseOperation::kGREATER) return false;
    const Tensor *place = tensor->producer()->input(is_less ? 0 : 1),
                 *lengths = tensor->producer()->input(is_less ? 1 : 0);
    if (reader_->is_inside(*lengths) || !is_number(lengths->dtype()) ||
        reader_->columns(*lengths) != 1 || reader_->columns(*tensor) != 1 || !is_place(*place))
      return false;
    cell_.lengths = lengths;
    return true;
  }
  static bool is_view(const Tensor& tensor) {
    const Layer& layer = *tensor.producer();
    return layer.num_outputs() == 1 && (hands_on(layer) || params_of<Shuffle>(&layer));
  }
  /// Whether the tensor is the number of the place in the sequence that is iterated over.
  bool is_place(const Tensor& given) {
    const Tensor* tensor = &given;
    const auto is_converted = [&] {
      const auto* cast = params_of<Cast>(tensor->producer());
      return cast != nullptr && is_number(cast->to);
    };
    while (tensor->producer() != nullptr && reader_->is_inside(*tensor) &&
           loop_.layers.contains(tensor->producer()) && tensor->producer()->num_inputs() > 0 &&
           (is_view(*tensor) || is_converted()) && is_no_element(tensor))
      tensor = tensor->producer()->input(0);
    if (tensor == loop_.iteration) {
      place_ = Place::kForward;
      return true;
    }
    for (size_t i = 0; i < loop_.states.size(); ++i)
      if (loop_.states[i] == tensor && kinds_[i] == StateKind::kCounter) {
        place_ = Place::kForward;
        const std::optional<Ints> first = known_integers(loop_.first[i]);
        return first && first->size() == 1 && (*first)[0] == 0;
      }
    for (const RepeatedLayers::Element& element : loop_.elements) {
      if (element.inside != tensor || !is_number(tensor->dtype())) continue;
      place_ = element.is_reverse ? Place::kReverse : Place::kForward;
      const std::optional<Ints> numbers = known_integers(element.whole);
      if (!numbers) return false;
      for (size_t i = 0; i < numbers->size(); ++i)
        if ((*numbers)[i] != static_cast<int64_t>(i)) return false;
      return true;
    }
    return false;
  }
  bool is_no_element(const Tensor* tensor) const {
    return std::ranges::none_of(loop_.elements,
                                [&](const auto& element) { return element.inside == tensor; });
  }

  bool is_state(const Node* node, size_t state) const {
    return is_whole_state(*node, state, size_);
  }

  bool match() {
    gates_.emplace(loop_, *reader_, next_, cell_, size_);
    if (floats_.size() == 2)
      return match_lstm(floats_[0], floats_[1]) || match_lstm(floats_[1], floats_[0]);
    return match_rnn(floats_[0]) || match_gru(floats_[0]);
  }
  void begin(RecurrentCell kind, size_t hidden, size_t gates) {
    cell_.kind = kind, cell_.hidden = static_cast<int>(hidden);
    cell_.gates.assign(gates, {});
    cell_.activations.clear(), cell_.sources.clear();
    cell_.input_forget = cell_.linear_before_reset = false;
  }
  bool match_rnn(size_t h) {
    const Node* const f = as_activation(next_[h]);
    if (f == nullptr) return false;
    begin(RecurrentCell::kRNN, h, 1);
    cell_.activations = {f->activation};
    return gates_->read(f->operands[0], cell_.gates[0]);
  }

  /// (1 - z) n + z h, or with z and 1 - z exchanged.
  bool match_gru(size_t h) {
    std::vector<Monomial> terms;
    if (!append_monomials(next_[h], false, terms) || terms.size() != 3) return false;
    const Node *n = nullptr, *z = nullptr;
    bool keeps = false;
    const auto negative = std::ranges::find_if(terms, &Monomial::is_negative);
    if (negative == terms.end() || negative->factors.size() != 2) return false;
    for (const Monomial& term : terms)
      if (term.factors.size() == 1 && !term.is_negative) {
        keeps = is_state(term.factors[0], h);
        n = keeps ? nullptr : term.factors[0];
      }
    const auto other_of = [](const Monomial& term, const Node* factor) -> const Node* {
      if (term.factors.size() != 2) return nullptr;
      if (term.factors[0] == factor) return term.factors[1];
      return term.factors[1] == factor ? term.factors[0] : nullptr;
    };
    const auto other_of_state = [&](const Monomial& term) -> const Node* {
      if (term.factors.size() != 2) return nullptr;
      if (is_state(term.factors[0], h)) return term.factors[1];
      return is_state(term.factors[1], h) ? term.factors[0] : nullptr;
    };
    if (keeps) {
      // h - z h + z n
      z = other_of_state(*negative);
      for (const Monomial& term : terms)
        if (z != nullptr && !term.is_negative && term.factors.size() == 2) n = other_of(term, z);
    } else if (n != nullptr) {
      // n - z n + z h
      z = other_of(*negative, n);
      bool has_state = false;
      for (const Monomial& term : terms)
        if (!term.is_negative && term.factors.size() == 2)
          has_state = z != nullptr && other_of_state(term) == z;
      if (!has_state) return false;
    }
    if (z == nullptr || n == nullptr || as_activation(z) == nullptr || as_activation(n) == nullptr)
      return false;
    begin(RecurrentCell::kGRU, h, 3);
    // 1 - sigmoid(x) = sigmoid(-x)
    if (keeps && z->activation.type != ActivationType::kSIGMOID) return false;
    cell_.gates[0].is_negated = keeps;
    cell_.activations = {z->activation, n->activation};
    return gates_->read(z->operands[0], cell_.gates[0]) && gates_->read_candidate(n->operands[0]);
  }

  /// h' = o act(c'), c' = f c + i g
  bool match_lstm(size_t h, size_t c) {
    const Node* const hidden = next_[h];
    if (hidden->kind != Kind::kMultiply) return false;
    begin(RecurrentCell::kLSTM, h, 4);
    cell_.memory = static_cast<int>(c);
    const Node *output = nullptr, *of_memory = nullptr;
    for (size_t i = 0; i < 2; ++i) {
      const Node *const a = hidden->operands[i], *const b = hidden->operands[1 - i];
      if (as_activation(a) && as_activation(b) && a->operands[0] == next_[c]) {
        of_memory = a, output = b;
        break;
      }
    }
    std::vector<Monomial> terms;
    if (output == nullptr || !append_monomials(next_[c], false, terms)) return false;
    const Node *forget = nullptr, *first = nullptr, *second = nullptr, *coupled = nullptr;
    bool keeps = false;
    for (const Monomial& term : terms) {
      const auto& factors = term.factors;
      const auto state =
          std::ranges::find_if(factors, [&](const Node* f) { return is_state(f, c); });
      if (state != factors.end()) {
        if (factors.size() == 1 && !term.is_negative && !keeps) {
          keeps = true;
          continue;
        }
        if (factors.size() != 2) return false;
        const Node*& gate = term.is_negative ? coupled : forget;
        if (gate != nullptr) return false;
        gate = factors[state == factors.begin() ? 1 : 0];
      } else {
        if (factors.size() != 2 || term.is_negative || first != nullptr) return false;
        first = factors[0], second = factors[1];
      }
    }
    // c - i c + i g, or f c + i g
    cell_.input_forget = keeps;
    if (first == nullptr ||
        (keeps ? coupled == nullptr || forget != nullptr : forget == nullptr || coupled != nullptr))
      return false;
    const Node* const like = keeps ? coupled : forget;
    for (const Node* gate : {like, first, second, output})
      if (as_activation(gate) == nullptr) return false;
    const ActivationParams& f = like->activation;
    if (!same(output->activation, f)) return false;
    const auto is_input = [&](const Node* gate) {
      return keeps ? gate == coupled : same(gate->activation, f);
    };
    if (!is_input(first)) std::swap(first, second);
    if (!is_input(first)) return false;
    cell_.activations = {f, second->activation, of_memory->activation};
    const bool all = gates_->read(first->operands[0], cell_.gates[0]) &&
                     gates_->read(output->operands[0], cell_.gates[1]) &&
                     gates_->read(second->operands[0], cell_.gates[3]);
    if (!all) return false;
    if (keeps)
      cell_.gates[2] = cell_.gates[0];
    else if (!gates_->read(forget->operands[0], cell_.gates[2]))
      return false;
    return !cell_.gates[3].peephole;
  }

  size_t h() const { return static_cast<size_t>(cell_.hidden); }

  /// Whether sums cover each column once, and directions and extents agree.
  bool check_input() {
    if (cell_.sources.empty()) return false;
    for (Gate& gate : cell_.gates)
      for (std::vector<Term>* terms : {&gate.inputs, &gate.states}) {
        std::ranges::sort(*terms, [](const Term& a, const Term& b) {
          return std::pair(a.source, a.column) < std::pair(b.source, b.column);
        });
        for (size_t i = 1; i < terms->size(); ++i) {
          const Term &before = (*terms)[i - 1], &term = (*terms)[i];
          if (before.source == term.source && before.column + before.columns > term.column)
            return false;
        }
      }
    const Cell::Source& first = cell_.sources[0];
    steps_ = first.whole->dims()[static_cast<size_t>(first.axis)];
    for (const Cell::Source& source : cell_.sources) {
      const Expr& extent = source.whole->dims()[static_cast<size_t>(source.axis)];
      if (source.is_reverse != first.is_reverse || source.whole->dtype() != type_) return false;
      if (!loop_.count) {
        if (!(extent == steps_)) return false;
      } else if (!(extent == *loop_.count)) {
        if (!extent.is_constant() || !loop_.count->is_constant() ||
            loop_.count->constant() > extent.constant())
          return false;
      }
    }
    if (loop_.count) steps_ = *loop_.count;
    if (cell_.lengths != nullptr) {
      if (!loop_.count || (place_ == Place::kReverse) != first.is_reverse) return false;
    }
    return true;
  }

  bool check_outputs() {
    const bool is_reverse = cell_.sources[0].is_reverse;
    for (size_t i = 0; i < loop_.stacked.size(); ++i) {
      const Tensor& tensor = *loop_.stacked[i];
      if (tensor.dtype() != type_) return false;
      const Node* node = reader_->whole(tensor);
      if (node == nullptr) return false;
      if (cell_.lengths != nullptr) {
        // The operator gives zeros behind the end of a sequence.
        if (node->kind != Kind::kSelect || node->tensor != condition_ ||
            node->operands[1]->kind != Kind::kFixed || number_of(*node->operands[1]->tensor) != 0.0)
          return false;
        node = node->operands[0];
        if (node == stored_[h()]) node = next_[h()];
      }
      if (node != next_[h()] || !outer_dims(loop_, h(), tensor)) return false;
      if (!loop_.count && is_reverse) return false;
      const std::optional<Expr>& length = loop_.lengths[i];
      if (!length && !loop_.count) return false;
      if (!length || *length == steps_) continue;
      if (!length->is_constant() || !steps_.is_constant() || is_reverse ||
          length->constant() > steps_.constant())
        return false;
    }
    return true;
  }
  bool check_fixed() const {
    const auto may = [&](const Tensor* inside) {
      return inside == nullptr || !loop_.may_leave || loop_.may_leave(*inside);
    };
    for (const Gate& gate : cell_.gates) {
      for (const std::vector<Term>* terms : {&gate.inputs, &gate.states})
        for (const Term& term : *terms)
          if (!may(term.inside)) return false;
      for (const std::vector<Bias>* biases : {&gate.biases, &gate.recurrent_biases})
        for (const Bias& bias : *biases)
          if (!may(bias.inside)) return false;
      if (gate.peephole && !may(gate.peephole->inside)) return false;
    }
    return may(cell_.lengths);
  }

  enum class Place : uint8_t { kForward, kReverse };

  const RepeatedLayers& loop_;
  std::vector<StateKind> kinds_;
  std::vector<size_t> floats_;
  std::optional<CellReader> reader_;
  std::vector<const Node*> next_;
  std::optional<GateReader> gates_;
  std::map<size_t, const Node*> stored_;  ///< the next states, with the condition that keeps them
  const Tensor* condition_ = nullptr;
  Place place_ = Place::kForward;
  DataType type_ = DataType::kFLOAT;
  int64_t size_ = 0;
  Cell cell_;
  Expr steps_;
};

}  // namespace

std::optional<RecurrentActivation> recurrent_activation(const ActivationParams& f) {
  switch (f.type) {
    case ActivationType::kRELU:
      return RecurrentActivation::kRELU;
    case ActivationType::kTANH:
      return RecurrentActivation::kTANH;
    case ActivationType::kSIGMOID:
      return RecurrentActivation::kSIGMOID;
    case ActivationType::kLEAKY_RELU:
      return RecurrentActivation::kLEAKY_RELU;
    case ActivationType::kSCALED_TANH:
      return RecurrentActivation::kSCALED_TANH;
    case ActivationType::kHARD_SIGMOID:
      return RecurrentActivation::kHARD_SIGMOID;
    case ActivationType::kELU:
      return RecurrentActivation::kELU;
    case ActivationType::kSOFTSIGN:
      return RecurrentActivation::kSOFTSIGN;
    case ActivationType::kSOFTPLUS:
      if (f.alpha == 1 && f.beta == 1) return RecurrentActivation::kSOFTPLUS;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Cell> match_cell(const RepeatedLayers& loop) { return CellMatcher(loop).run(); }

std::optional<SymShape> outer_dims(const RepeatedLayers& loop, size_t hidden,
                                   const Tensor& tensor) {
  const SymShape &inside = loop.states[hidden]->dims(), &outside = loop.first[hidden]->dims();
  SymShape dims;
  for (const Expr& extent : tensor.dims()) {
    const auto place = std::ranges::find(inside, extent);
    if (extent.is_constant())
      dims.push_back(extent);
    else if (place != inside.end())
      dims.push_back(outside[static_cast<size_t>(place - inside.begin())]);
    else
      return std::nullopt;
  }
  return dims;
}

}  // namespace opwright::recurrent
