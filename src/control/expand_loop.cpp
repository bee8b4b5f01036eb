// Expands a loop of the API into a recurrent layer, its iterations, or an operator with a body.

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "compile/expansion.h"
#include "control/body_inputs.h"
#include "control/iterations.h"
#include "control/known_elements.h"
#include "control/loop.h"
#include "control/recognize_recurrence.h"
#include "control/regions.h"
#include "operators/infer.h"

namespace opwright {
namespace {

/// Adds the loop's name to errors.
class LoopWriter final : public LayerWriter {
 public:
  using LayerWriter::LayerWriter;

 protected:
  [[noreturn]] void fail(const std::string& problem) const override {
    opwright::fail("Loop '", name(), "': ", problem);
  }
};

template <class Op>
const Op& op_of(const Layer& layer) {
  return static_cast<const Op&>(*layer.op());
}

/// The layers of a loop by their roles.
struct LoopLayers {
  const Layer *count = nullptr, *condition = nullptr;
  std::vector<const Layer*> recurrences, iterators, last_values, stacks;
  std::vector<const Layer*> interior;  ///< in order: each layer follows those that it depends on
};

class LoopExpansion {
 public:
  LoopExpansion(const LoopRegion& region, Expansion& expansion)
      : region_(region), expansion_(expansion), writer_(expansion.network(), region.name()) {
    sort_layers();
    check();
  }

  void run() {
    const std::optional<int64_t> count = known_count();
    if (recognize(count)) return;
    if (count && layers_.condition == nullptr && can_unroll(*count)) return unroll(*count);
    add_loop();
  }

 private:
  void sort_layers() {
    const std::vector<const Layer*> interior = region_.interior();
    layers_.interior = expansion_.in_order({interior.begin(), interior.end()});
    for (const Layer* layer : region_.boundary()) {
      const std::string_view kind = layer->op()->kind();
      if (kind == RecurrenceBoundary::kKind) layers_.recurrences.push_back(layer);
      if (kind == IteratorBoundary::kKind) layers_.iterators.push_back(layer);
      if (kind == TripLimitBoundary::kKind)
        (op_of<TripLimitBoundary>(*layer).params().kind == TripLimit::kCOUNT ? layers_.count
                                                                             : layers_.condition) =
            layer;
      if (kind == LoopOutputBoundary::kKind)
        (op_of<LoopOutputBoundary>(*layer).params().kind == LoopOutput::kLAST_VALUE
             ? layers_.last_values
             : layers_.stacks)
            .push_back(layer);
    }
  }

  void check() {
    if (layers_.count == nullptr && layers_.condition == nullptr)
      writer_.error("has no trip limit; expected one: add_trip_limit");
    for (const Layer* layer : layers_.recurrences) {
      const std::string_view name = layer->name();
      const Tensor* const next = layer->num_inputs() > 1 ? layer->input(1) : nullptr;
      if (next == nullptr)
        writer_.error("recurrence '", name,
                      "' has no second input, its value for the next iteration; expected one: "
                      "set_input(1, tensor)");
      const Tensor& first = *layer->input(0);
      bool differs = next->dtype() != first.dtype() || next->rank() != first.rank();
      for (size_t i = 0; !differs && i < first.dims().size(); ++i)
        differs = conflict(next->dims()[i], first.dims()[i]);
      if (differs)
        writer_.error("recurrence '", name, "' is ", opwright::name(first.dtype()), " of shape ",
                      first.dims(), " in the first iteration and ", opwright::name(next->dtype()),
                      " of shape ", next->dims(), " in the next one; expected the same");
    }
    for (const Layer* layer : layers_.last_values) {
      const Layer* const producer = layer->input(0)->producer();
      if (std::ranges::find(layers_.recurrences, producer) == layers_.recurrences.end())
        writer_.error("output '", layer->name(), "' is the last value of '",
                      layer->input(0)->name(), "'; expected an output of one of its recurrences");
    }
    for (const Layer* layer : layers_.iterators)
      if (op_of<IteratorBoundary>(*layer).params().reverse && layers_.count == nullptr)
        writer_.error("iterator '", layer->name(),
                      "' begins at the last iteration, but nothing says how many there are; "
                      "expected a trip limit of kind COUNT");
  }

  /// The most iterations, where the number is known now.
  std::optional<int64_t> known_count() {
    if (layers_.count == nullptr) return std::nullopt;
    const Tensor& tensor = *expansion_(*layers_.count->input(0));
    const TensorInfo& info = tensor.info();
    if (info.values && (*info.values)[0].is_constant())
      return std::max<int64_t>(0, (*info.values)[0].constant());
    KnownElements known;
    const std::optional<Blob> elements = known.of(tensor);
    if (!elements) return std::nullopt;
    const int64_t count =
        info.dtype == DataType::kINT32 ? *elements->as<int32_t>() : *elements->as<int64_t>();
    return std::max<int64_t>(0, count);
  }

  /// Replaces the loop by a recurrent layer if it repeats such a layer's cell. True if it does.
  bool recognize(const std::optional<int64_t>& count) {
    if (layers_.condition != nullptr) return false;
    RepeatedLayers loop;
    loop.layers.insert(layers_.interior.begin(), layers_.interior.end());
    for (const Layer* layer : layers_.recurrences) {
      loop.states.push_back(layer->output(0));
      loop.next.push_back(layer->input(1));
      loop.first.push_back(outside(*layer->input(0)));
    }
    for (const Layer* layer : layers_.iterators) {
      const IteratorParams& params = op_of<IteratorBoundary>(*layer).params();
      loop.elements.push_back({layer->output(0), outside(*layer->input(0)),
                               static_cast<int>(params.axis), params.reverse});
    }
    for (const Layer* layer : layers_.stacks) {
      loop.stacked.push_back(layer->input(0));
      loop.lengths.push_back((*layer->input(1)->info().values)[0]);
    }
    loop.limit = outside(*layers_.count->input(0));
    if (count)
      loop.count = Expr(*count);
    else if (const TensorInfo& info = loop.limit->info(); info.values)
      loop.count = (*info.values)[0];
    loop.outside = [&](const Tensor& tensor) { return outside(tensor); };
    const std::optional<RecurrentCellLayers> made = recognize_recurrence(loop, writer_);
    if (!made) return false;
    for (const Layer* layer : layers_.last_values)
      expansion_.set(*layer->output(0), made->last[state_of(*layer)]);
    for (size_t i = 0; i < layers_.stacks.size(); ++i)
      set_output(*layers_.stacks[i], made->stacked[i], made->is_reverse);
    return true;
  }

  /// The number of the recurrence whose last value this is.
  size_t state_of(const Layer& last_value) const {
    const auto place = std::ranges::find(layers_.recurrences, last_value.input(0)->producer());
    return static_cast<size_t>(place - layers_.recurrences.begin());
  }

  bool can_unroll(int64_t count) const {
    constexpr int64_t kMaxLayers = 1 << 15;
    const auto nodes = static_cast<int64_t>(layers_.interior.size() + layers_.iterators.size());
    if (!is_small_loop(count, nodes) ||
        expansion_.network().num_layers() + count * (nodes + 1) > kMaxLayers)
      return false;
    // A length that follows from shapes may differ from the number of iterations.
    return std::ranges::all_of(layers_.stacks, [](const Layer* layer) {
      return (*layer->input(1)->info().values)[0].is_constant();
    });
  }

  /// Sets the tensors that an iteration begins with: values of recurrences, and elements that
  /// iterators read.
  template <class Iterated>
  void begin_iteration(LayerCopies& copies, std::span<Tensor* const> states,
                       const Iterated& iterated) {
    for (size_t i = 0; i < layers_.recurrences.size(); ++i)
      copies.set(*layers_.recurrences[i]->output(0), states[i]);
    for (const Layer* layer : layers_.iterators) copies.set(*layer->output(0), iterated(*layer));
  }

  Tensor* outside(const Tensor& tensor) { return expansion_(tensor); }

  void set_output(const Layer& layer, Tensor* stacked, bool is_reverse = false) {
    const LoopOutputParams& params = op_of<LoopOutputBoundary>(layer).params();
    if ((params.kind == LoopOutput::kREVERSE) != is_reverse) stacked = reversed(writer_, stacked);
    expansion_.set(*layer.output(0),
                   move_first_axis(writer_, stacked, static_cast<int>(params.axis)));
  }

  void unroll(int64_t count) {
    std::vector<Tensor*> states;
    for (const Layer* layer : layers_.recurrences) states.push_back(outside(*layer->input(0)));
    std::vector<std::vector<Tensor*>> stacked(layers_.stacks.size());
    for (int64_t i = 0; i < count; ++i) {
      LayerCopies copies(
          expansion_.network(), [&](const Tensor& tensor) { return outside(tensor); }, str("/", i));
      begin_iteration(copies, states, [&](const Layer& layer) {
        const IteratorParams& params = op_of<IteratorBoundary>(layer).params();
        return pick(writer_, outside(*layer.input(0)), static_cast<int>(params.axis),
                    params.reverse ? count - 1 - i : i);
      });
      copies.add(layers_.interior);
      for (size_t s = 0; s < stacked.size(); ++s)
        if (i < length_of(*layers_.stacks[s]))
          stacked[s].push_back(copies(*layers_.stacks[s]->input(0)));
      for (size_t s = 0; s < states.size(); ++s)
        states[s] = copies(*layers_.recurrences[s]->input(1));
    }
    for (const Layer* layer : layers_.last_values)
      expansion_.set(*layer->output(0), states[state_of(*layer)]);
    for (size_t s = 0; s < stacked.size(); ++s) {
      const Layer& layer = *layers_.stacks[s];
      const int64_t missing = length_of(layer) - static_cast<int64_t>(stacked[s].size());
      if (missing > 0 || stacked[s].empty()) {
        SymShape dims = layer.input(0)->dims();
        dims.insert(dims.begin(), Expr(missing));
        FillParams zeros;
        zeros.to_type = layer.input(0)->dtype();
        Tensor* const rest = zeros_of(layer.input(0)->dtype(), dims);
        set_output(layer,
                   stacked[s].empty()
                       ? rest
                       : writer_.concatenate(
                             {stack(writer_, stacked[s], 0, "what is put together"), rest}, 0));
      } else {
        set_output(layer, stack(writer_, stacked[s], 0, "what is put together"));
      }
    }
  }

  Tensor* zeros_of(DataType type, const SymShape& dims) {
    // Fill supports neither BOOL nor quantized elements.
    const bool is_filled =
        type == DataType::kFLOAT || type == DataType::kINT32 || type == DataType::kINT64;
    FillParams params;
    params.to_type = is_filled ? type : DataType::kFLOAT;
    Tensor* const zeros = writer_.fill(params, dims);
    return writer_.cast(zeros, type);
  }

  static int64_t length_of(const Layer& layer) {
    return (*layer.input(1)->info().values)[0].constant();
  }

  Tensor* count_scalar(LayerWriter& writer) {
    Tensor* const given = outside(*layers_.count->input(0));
    return writer.cast(as_scalar(writer, given), DataType::kINT64);
  }

  /// The layers inside that the condition depends on.
  std::vector<const Layer*> condition_layers() const {
    const std::unordered_set<const Layer*> interior(layers_.interior.begin(),
                                                    layers_.interior.end());
    return expansion_.in_order(layers_behind({layers_.condition->input(0)}, interior));
  }

  void add_loop() {
    LoopBody body;
    const auto network = std::make_shared<Network>(region_.network().flags());
    std::vector<Tensor*> captured;
    std::vector<const Tensor*> for_extents;
    BodyInputs inputs(*network, captured, for_extents);
    LoopWriter inner(*network, region_.name() + "/body");
    Tensor* const iteration = network->add_input(kIterationInput, DataType::kINT64, Shape());
    std::vector<Tensor*> first, states, next;
    for (const Layer* layer : layers_.recurrences) {
      first.push_back(outside(*layer->input(0)));
      states.push_back(inputs.add(state_input(static_cast<int>(states.size())), *first.back()));
    }
    Tensor* const limit = layers_.count != nullptr ? count_scalar(writer_) : nullptr;
    const auto capture = [&](const Tensor& tensor) { return inputs.capture(outside(tensor)); };
    const auto iterated = [&](const Layer& layer, Tensor* number) {
      const IteratorParams& params = op_of<IteratorBoundary>(layer).params();
      if (params.reverse)
        number = inner.elementwise(
            ElementWiseOperation::kSUB,
            inner.elementwise(ElementWiseOperation::kSUB, inputs.capture(limit), 1.0), number);
      return pick(inner, capture(*layer.input(0)), static_cast<int>(params.axis), number);
    };
    LayerCopies copies(*network, capture, "");
    begin_iteration(copies, states, [&](const Layer& layer) { return iterated(layer, iteration); });
    copies.add(layers_.interior);
    for (const Layer* layer : layers_.recurrences) next.push_back(copies(*layer->input(1)));

    Tensor* begins = nullptr;
    if (layers_.condition != nullptr) {
      // The condition is computed before the first iteration, and at the end of each one for the
      // next.
      const std::vector<const Layer*> needed = condition_layers();
      LayerCopies before(
          expansion_.network(), [&](const Tensor& tensor) { return outside(tensor); }, "/begins");
      begin_iteration(before, first, [&](const Layer& layer) {
        const IteratorParams& params = op_of<IteratorBoundary>(layer).params();
        Tensor* const at = params.reverse
                               ? writer_.elementwise(ElementWiseOperation::kSUB, limit, 1.0)
                               : constant_scalar(writer_, 0);
        return pick(writer_, outside(*layer.input(0)), static_cast<int>(params.axis), at);
      });
      before.add(needed);
      begins = as_scalar(writer_, before(*layers_.condition->input(0)));
      Tensor* const following = inner.elementwise(ElementWiseOperation::kSUM, iteration, 1.0);
      LayerCopies behind(*network, capture, "/next");
      begin_iteration(behind, next, [&](const Layer& layer) { return iterated(layer, following); });
      behind.add(needed);
      Tensor* const goes_on = behind(*layers_.condition->input(0));
      const TensorInfo& info = goes_on->info();
      const bool is_true = info.constant ? *info.constant.as<uint8_t>() != 0
                                         : info.values && (*info.values)[0].is_constant() &&
                                               (*info.values)[0].constant() != 0;
      if (is_true && limit == nullptr)
        writer_.error(
            "never ends: its condition is always true, and it has no number of "
            "iterations");
      body.is_computed = true;
      mark_body_output(*network, goes_on);
    }
    for (Tensor* state : next) mark_body_output(*network, state);
    for (const Layer* layer : layers_.stacks) {
      mark_body_output(*network, copies(*layer->input(0)));
      body.lengths.push_back((*layer->input(1)->info().values)[0]);
    }
    remove_unused_inputs(*network, for_extents);
    body.network = network;
    body.states = static_cast<int>(first.size());
    body.captures = static_cast<int>(captured.size());
    body.stacked = static_cast<int>(layers_.stacks.size());

    std::vector<Tensor*> given = {limit, begins};
    given.insert(given.end(), first.begin(), first.end());
    given.insert(given.end(), captured.begin(), captured.end());
    Layer* const layer = expansion_.network().add_layer(
        std::make_shared<Loop>(std::move(body), false), given, region_.name());
    for (const Layer* output : layers_.last_values)
      expansion_.set(*output->output(0), layer->output(static_cast<int>(state_of(*output))));
    for (size_t i = 0; i < layers_.stacks.size(); ++i)
      set_output(*layers_.stacks[i], layer->output(static_cast<int>(first.size() + i)));
  }

  const LoopRegion& region_;
  Expansion& expansion_;
  LoopWriter writer_;
  LoopLayers layers_;
};

}  // namespace

void LoopRegion::expand(Expansion& expansion) const { LoopExpansion(*this, expansion).run(); }

}  // namespace opwright
