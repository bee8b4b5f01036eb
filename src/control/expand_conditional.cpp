// Expands a conditional of the API into one of its branches, both, or an operator with two bodies.

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "compile/expansion.h"
#include "control/body_inputs.h"
#include "control/conditional.h"
#include "control/iterations.h"
#include "control/known_elements.h"
#include "control/regions.h"

namespace opwright {
namespace {

class ConditionalWriter final : public LayerWriter {
 public:
  using LayerWriter::LayerWriter;

 protected:
  [[noreturn]] void fail(const std::string& problem) const override {
    opwright::fail("Conditional '", name(), "': ", problem);
  }
};

class ConditionalExpansion {
 public:
  ConditionalExpansion(const ConditionalRegion& region, Expansion& expansion)
      : region_(region), expansion_(expansion), writer_(expansion.network(), region.name()) {
    const std::vector<const Layer*> interior = region.interior();
    interior_.insert(interior.begin(), interior.end());
    for (const Layer* layer : region.boundary()) {
      const std::string_view kind = layer->op()->kind();
      if (kind == ConditionBoundary::kKind) condition_ = layer;
      if (kind == ConditionalInputBoundary::kKind) inputs_.push_back(layer);
      if (kind == ConditionalOutputBoundary::kKind) outputs_.push_back(layer);
    }
  }

  void run() {
    if (condition_ == nullptr) writer_.error("has no condition; expected one: set_condition");
    if (outputs_.empty()) return;
    Tensor* const condition = expansion_(*condition_->input(0));
    // Extents that only a run finds need the Conditional layer.
    const bool finds_extents = std::ranges::any_of(
        outputs_, [](const Layer* output) { return output->num_outputs() > 1; });
    const std::optional<bool> known = finds_extents ? std::nullopt : known_condition(*condition);
    if (known) {
      const int branch = *known ? 0 : 1;
      LayerCopies copies = add_branch(branch);
      for (const Layer* output : outputs_)
        expansion_.set(*output->output(0), copies(*output->input(branch)));
      return;
    }
    if (finds_extents || !is_pure()) return add_conditional(as_scalar(writer_, condition));
    LayerCopies branches[2] = {add_branch(0), add_branch(1)};
    for (const Layer* output : outputs_) {
      Tensor *a = branches[0](*output->input(0)), *b = branches[1](*output->input(1));
      const SymShape ones(static_cast<size_t>(a->rank()), Expr(1));
      Tensor* const mask =
          condition->rank() == a->rank() ? condition : writer_.reshape(condition, ones);
      expansion_.set(*output->output(0), a == b ? a : writer_.select(mask, a, b));
    }
  }

 private:
  static std::optional<bool> known_condition(const Tensor& condition) {
    const TensorInfo& info = condition.info();
    if (info.values && (*info.values)[0].is_constant()) return (*info.values)[0].constant() != 0;
    KnownElements known;
    const std::optional<Blob> elements = known.of(condition);
    if (!elements) return std::nullopt;
    return *elements->as<uint8_t>() != 0;
  }

  static bool is_open(const Layer& output, int axis) {
    const auto i = static_cast<size_t>(axis);
    return !(output.input(0)->dims()[i] == output.input(1)->dims()[i]);
  }

  /// Whether running the branch that is not chosen does no harm. Plugins are not asked, as bodies
  /// have none.
  bool is_pure() const {
    return std::ranges::none_of(interior_, [](const Layer* layer) {
      return layer->op()->kind() == "Assertion" || layer->op()->communicates();
    });
  }

  using Layers = std::unordered_set<const Layer*>;

  /// The layers inside that these tensors depend on.
  Layers behind(std::vector<const Tensor*> tensors) const {
    return layers_behind(std::move(tensors), interior_);
  }

  Layers behind_outputs(int branch) const {
    std::vector<const Tensor*> results;
    for (const Layer* output : outputs_) results.push_back(output->input(branch));
    return behind(std::move(results));
  }

  std::vector<const Layer*> layers_of(int branch) const {
    Layers needed = behind_outputs(branch);
    const Layers others = behind_outputs(1 - branch);
    const auto meets = [](const Layers& some, const Layers& set) {
      return std::ranges::any_of(some, [&](const Layer* layer) { return set.contains(layer); });
    };
    // An assertion has no outputs. It belongs to the branch whose tensors it reads, or to both.
    Layers assertions;
    for (const Layer* layer : interior_) {
      if (layer->op()->kind() != "Assertion") continue;
      Layers looked_at = behind({layer->input(0)});
      if (!meets(looked_at, needed) && meets(looked_at, others)) continue;
      looked_at.insert(layer);
      assertions.merge(looked_at);
    }
    needed.merge(assertions);
    return expansion_.in_order(needed);
  }

  LayerCopies add_branch(int branch) {
    LayerCopies copies(
        expansion_.network(), [this](const Tensor& tensor) { return expansion_(tensor); },
        branch == 0 ? "/then" : "/else");
    for (const Layer* input : inputs_) copies.set(*input->output(0), expansion_(*input->input(0)));
    copies.add(layers_of(branch));
    return copies;
  }

  void add_conditional(Tensor* condition) {
    std::array<std::shared_ptr<const Network>, 2> bodies;
    std::vector<Tensor*> captured;
    for (int branch = 0; branch < 2; ++branch) {
      const auto network = std::make_shared<Network>(region_.network().flags());
      std::vector<const Tensor*> for_extents;
      BodyInputs inputs(*network, captured, for_extents);
      const auto capture = [&](const Tensor& tensor) { return inputs.capture(expansion_(tensor)); };
      LayerCopies copies(*network, capture, "");
      for (const Layer* input : inputs_) copies.set(*input->output(0), capture(*input->input(0)));
      copies.add(layers_of(branch));
      for (const Layer* output : outputs_)
        mark_body_output(*network, copies(*output->input(branch)));
      remove_unused_inputs(*network, for_extents);
      bodies[static_cast<size_t>(branch)] = network;
    }
    std::vector<std::pair<int, int>> sizes;
    std::vector<const Tensor*> results;
    for (const Layer* output : outputs_) results.push_back(output->output(0));
    for (size_t o = 0; o < outputs_.size(); ++o) {
      int size = 1;
      for (int axis = 0; axis < outputs_[o]->output(0)->rank(); ++axis) {
        if (!is_open(*outputs_[o], axis)) continue;
        sizes.emplace_back(static_cast<int>(o), axis);
        results.push_back(outputs_[o]->output(size++));
      }
    }
    std::vector<Tensor*> inputs = {condition};
    inputs.insert(inputs.end(), captured.begin(), captured.end());
    Layer* const layer = expansion_.network().add_layer(
        std::make_shared<Conditional>(std::move(bodies), static_cast<int>(captured.size()),
                                      std::move(sizes)),
        inputs, region_.name());
    for (size_t i = 0; i < results.size(); ++i)
      expansion_.set(*results[i], layer->output(static_cast<int>(i)));
  }

  const ConditionalRegion& region_;
  Expansion& expansion_;
  ConditionalWriter writer_;
  std::unordered_set<const Layer*> interior_;
  const Layer* condition_ = nullptr;
  std::vector<const Layer*> inputs_, outputs_;
};

}  // namespace

void ConditionalRegion::expand(Expansion& expansion) const {
  ConditionalExpansion(*this, expansion).run();
}

}  // namespace opwright
