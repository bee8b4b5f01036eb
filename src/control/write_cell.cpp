#include <utility>

#include "base/types.h"
#include "control/recurrent_cell.h"

namespace opwright::recurrent {
namespace {

class CellWriter {
 public:
  CellWriter(const RepeatedLayers& loop, const Cell& cell, LayerWriter& writer)
      : loop_(loop), cell_(cell), writer_(writer) {}

  RecurrentCellLayers write() {
    const SymShape& dims = loop_.first[h()]->dims();
    batch_ = numel(std::span(dims).first(dims.size() - 1));
    offsets_ = {0};
    for (const Cell::Source& source : cell_.sources)
      offsets_.push_back(offsets_.back() + source.columns);
    RecurrenceParams params;
    params.cell = cell_.kind;
    const bool is_reverse = cell_.sources[0].is_reverse;
    params.direction = is_reverse ? RecurrentDirection::kREVERSE : RecurrentDirection::kFORWARD;
    for (const ActivationParams& activation : cell_.activations) {
      params.activations.push_back(static_cast<int64_t>(*recurrent_activation(activation)));
      params.alphas.push_back(activation.alpha);
      params.betas.push_back(activation.beta);
    }
    params.input_forget = cell_.input_forget;
    params.linear_before_reset = cell_.linear_before_reset;
    const auto state = [&](int index) -> Tensor* {
      if (index < 0) return nullptr;
      return writer_.reshape(loop_.first[static_cast<size_t>(index)],
                             SymShape{Expr(1), batch_, Expr(cell_.size)});
    };
    std::vector<Tensor*> inputs = {input(),      all_weights(true), all_weights(false),
                                   all_biases(), lengths(),         state(cell_.hidden)};
    if (cell_.kind == RecurrentCell::kLSTM) {
      inputs.push_back(state(cell_.memory));
      inputs.push_back(all_peepholes());
    }
    while (inputs.back() == nullptr) inputs.pop_back();
    Layer* const layer =
        writer_.network().add<Recurrence>(std::move(params), inputs, writer_.next_name());
    RecurrentCellLayers made;
    made.is_reverse = is_reverse;
    for (size_t i = 0; i < loop_.states.size(); ++i) made.last.push_back(last_of(i, *layer));
    for (size_t i = 0; i < loop_.stacked.size(); ++i) {
      SymShape shape = *outer_dims(loop_, h(), *loop_.stacked[i]);
      shape.insert(shape.begin(), cell_.steps);
      Tensor* y = writer_.reshape(layer->output(0), shape);
      if (const std::optional<Expr>& length = loop_.lengths[i]; length && !(*length == cell_.steps))
        y = writer_.slice_axis(y, 0, 0, *length);
      made.stacked.push_back(y);
    }
    return made;
  }

 private:
  size_t h() const { return static_cast<size_t>(cell_.hidden); }

  Tensor* given(const Tensor* inside, Tensor* outside) {
    return outside != nullptr ? outside : loop_.outside(*inside);
  }
  Tensor* zeros(int64_t rows, int64_t columns) {
    const std::vector<float> values(static_cast<size_t>(rows * columns));
    return writer_.constant_of({rows, columns}, values, cell_.type);
  }
  Tensor* negative(Tensor* x) { return writer_.elementwise(ElementWiseOperation::kPROD, x, -1.0); }
  Tensor* reshaped(Tensor* x, const SymShape& dims) {
    return x->dims() == dims ? x : writer_.reshape(x, dims);
  }

  /// The weights: a row for each unit, a column for each element that it multiplies.
  Tensor* weights_of(const std::vector<Term>& terms, bool is_input, bool is_negated) {
    std::vector<Tensor*> parts;
    int64_t at = 0;
    const auto fill_up = [&](int64_t to) {
      if (to > at) parts.push_back(zeros(cell_.size, to - at));
      at = to;
    };
    for (const Term& term : terms) {
      fill_up((is_input ? offsets_[static_cast<size_t>(term.source)] : 0) + term.column);
      Tensor* weights = given(term.inside, term.outside);
      const size_t rank = weights->dims().size();
      if (rank > 2)
        weights = writer_.reshape(weights, {weights->dims().end() - 2, weights->dims().end()});
      const int in = term.by_output ? 1 : 0;
      const auto cut = [&](int axis, int64_t start, int64_t size) {
        if (!(weights->dims()[static_cast<size_t>(axis)] == Expr(size)))
          weights = writer_.slice_axis(weights, axis, start, size);
      };
      cut(in, term.weight_in, term.columns);
      cut(1 - in, term.weight_out, cell_.size);
      if (!term.by_output) weights = writer_.transpose(weights, {1, 0});
      parts.push_back(is_negated ? negative(weights) : weights);
      at += term.columns;
    }
    fill_up(is_input ? offsets_.back() : cell_.size);
    return parts.size() == 1 ? parts[0] : writer_.concatenate(parts, 1);
  }
  Tensor* all_weights(bool is_input) {
    std::vector<Tensor*> parts;
    for (const Gate& gate : cell_.gates)
      parts.push_back(weights_of(is_input ? gate.inputs : gate.states, is_input, gate.is_negated));
    Tensor* const all = parts.size() == 1 ? parts[0] : writer_.concatenate(parts, 0);
    return writer_.unsqueeze(all, {0});
  }
  /// [1, hidden]
  Tensor* bias_of(const std::vector<Bias>& biases, bool is_negated) {
    Tensor* sum = nullptr;
    for (const Bias& bias : biases) {
      Tensor* const part = row_of(given(bias.inside, bias.outside), bias.start);
      sum = sum == nullptr ? part : writer_.elementwise(ElementWiseOperation::kSUM, sum, part);
    }
    if (sum == nullptr) return zeros(1, cell_.size);
    return is_negated ? negative(sum) : sum;
  }
  /// [1, hidden]: columns of a tensor, or its only element.
  Tensor* row_of(Tensor* x, int64_t start) {
    x = reshaped(x, {Expr(1), numel(x->dims())});
    if (start < 0)
      return cell_.size == 1 ? x : writer_.expand(x, SymShape{Expr(1), Expr(cell_.size)});
    return x->dims()[1] == Expr(cell_.size) ? x : writer_.slice_axis(x, 1, start, cell_.size);
  }
  Tensor* all_biases() {
    std::vector<Tensor*> parts;
    bool is_there = false;
    for (const Gate& gate : cell_.gates)
      is_there |= !gate.biases.empty() || !gate.recurrent_biases.empty();
    if (!is_there) return nullptr;
    for (const Gate& gate : cell_.gates) parts.push_back(bias_of(gate.biases, gate.is_negated));
    for (const Gate& gate : cell_.gates) parts.push_back(bias_of(gate.recurrent_biases, false));
    return writer_.concatenate(parts, 1);
  }
  Tensor* all_peepholes() {
    std::vector<Tensor*> parts;
    bool is_there = false;
    for (size_t i = 0; cell_.kind == RecurrentCell::kLSTM && i < 3; ++i) {
      is_there |= cell_.gates[i].peephole.has_value();
    }
    if (!is_there) return nullptr;
    for (size_t i = 0; i < 3; ++i) {
      const std::optional<Bias>& weights = cell_.gates[i].peephole;
      parts.push_back(weights ? row_of(given(weights->inside, nullptr), weights->start)
                              : zeros(1, cell_.size));
    }
    return writer_.concatenate(parts, 1);
  }

  /// [steps, batch, input]
  Tensor* input() {
    std::vector<Tensor*> parts;
    for (const Cell::Source& source : cell_.sources) {
      Tensor* x = source.whole;
      if (source.axis != 0) {
        Ints order = {source.axis};
        for (int i = 0; i < x->rank(); ++i)
          if (i != source.axis) order.push_back(i);
        x = writer_.transpose(x, order);
      }
      if (loop_.count && !(x->dims()[0] == cell_.steps))
        x = writer_.slice_axis(x, 0, 0, cell_.steps);
      parts.push_back(reshaped(x, {cell_.steps, batch_, Expr(source.columns)}));
    }
    return parts.size() == 1 ? parts[0] : writer_.concatenate(parts, 2);
  }
  /// [batch], or null
  Tensor* lengths() {
    Tensor* given = nullptr;
    if (cell_.lengths != nullptr)
      given = reshaped(loop_.outside(*cell_.lengths), {batch_});
    else if (!loop_.count)
      given = writer_.expand(reshaped(loop_.limit, {Expr(1)}), SymShape{batch_});
    return given == nullptr ? nullptr : writer_.cast(given, DataType::kINT32);
  }
  Tensor* last_of(size_t state, const Layer& layer) {
    Tensor* const first = loop_.first[state];
    if (cell_.states[state] == StateKind::kFloat)
      return reshaped(layer.output(state == h() ? 1 : 2), first->dims());
    Tensor* const count = writer_.cast(reshaped(loop_.limit, first->dims()), first->dtype());
    return writer_.elementwise(ElementWiseOperation::kSUM, first,
                               writer_.elementwise(ElementWiseOperation::kMAX, count, 0.0));
  }

  const RepeatedLayers& loop_;
  const Cell& cell_;
  LayerWriter& writer_;
  Expr batch_;
  std::vector<int64_t> offsets_;  ///< offset of each source in the input, and the sum
};

}  // namespace

RecurrentCellLayers write_cell(const RepeatedLayers& loop, const Cell& cell, LayerWriter& writer) {
  return CellWriter(loop, cell, writer).write();
}

}  // namespace opwright::recurrent
