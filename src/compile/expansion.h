#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "network/network.h"
#include "symbolic/substitution.h"

namespace opwright {

/// The network with other layers for its composed ones, loops and conditionals: what is compiled.
/// Null where it has none of them. Symbols, names and what is known of tensors stay. Throws Error
/// for a region that is not complete.
std::shared_ptr<const Network> expand(const Network& network);

/// Weights that only a body reads.
struct BodyWeight {
  std::string name;  ///< by which an engine is refitted
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  Blob data;
};

/// The network with weights of bodies as constants that its layers hand to them, so that an engine
/// can be refitted with others. Null where no body has any. For a network that was expanded.
std::shared_ptr<const Network> lift_body_weights(const Network& network,
                                                 const IsRefittable& is_refittable);
/// A body without its weights, which become inputs that `input_name` names by their number in
/// `weights`; what is there already keeps its place. The body itself where it has none.
std::shared_ptr<const Network> weights_as_inputs(
    std::shared_ptr<const Network> body, const IsRefittable& is_refittable,
    const std::function<std::string(size_t number)>& input_name, std::vector<BodyWeight>& weights);

/// The copy of a network while regions and composed layers become others.
class Expansion {
 public:
  explicit Expansion(const Network& from) : Expansion(from, {}) {}
  /// The same with inputs of these names in the place of constant layers.
  Expansion(const Network& from, std::unordered_map<const Layer*, std::string> as_inputs);
  Expansion(const Expansion&) = delete;
  Expansion& operator=(const Expansion&) = delete;

  /// A copy with other extents of inputs and other elements of shape inputs, from which the rest
  /// is inferred anew. For a network that was expanded.
  static std::shared_ptr<Network> with(const Network& from, const Substitution& values);

  /// The copy.
  Network& network() const { return *to_; }
  std::shared_ptr<Network> finish();
  /// What a tensor of the network is in the copy. Only for what was there before the region.
  Tensor* operator()(const Tensor& tensor) const;
  /// The copy has `made` for an output of a region or a composed layer: it gets the name and what
  /// else was said of it.
  void set(const Tensor& tensor, Tensor* made);
  /// The layers among these, each behind those that it depends on.
  std::vector<const Layer*> in_order(const std::unordered_set<const Layer*>& layers) const;

 private:
  struct Unit {
    const Layer* layer = nullptr;
    const Region* region = nullptr;
    std::vector<const Layer*> members;
  };

  void make_units();
  void run_all();
  void run(const Unit& unit);
  std::vector<size_t> needs_of(size_t unit) const;
  void copy(const Layer& layer);
  void copy_as_input(const Layer& constant, const std::string& name);
  void compose(const Layer& layer);
  Tensor* copy_tensor(const Tensor& tensor);
  /// Frees the name for a tensor that has it in the network.
  void free_name(const std::string& name);

  const Network& from_;
  const std::unordered_map<const Layer*, std::string> as_inputs_;
  std::shared_ptr<Network> to_;
  std::vector<Layer*> order_;
  std::vector<Unit> units_;
  std::unordered_map<const Layer*, size_t> unit_of_;
  std::unordered_map<const Tensor*, Tensor*> tensors_;
  std::unordered_set<const Tensor*> taken_;  ///< tensors of the copy that stand for one already
};

/// Adds layers of a network to another one, or to the same once more: the body of a loop, a branch.
class LayerCopies {
 public:
  /// `outside` is what tensors are that set() was not told of and that no copied layer makes.
  /// `suffix` goes behind the names of layers.
  LayerCopies(Network& to, std::function<Tensor*(const Tensor&)> outside, std::string suffix)
      : to_(to), outside_(std::move(outside)), suffix_(std::move(suffix)) {}

  void set(const Tensor& from, Tensor* to) { tensors_[&from] = to; }
  Tensor* operator()(const Tensor& from);
  /// The layers, each behind those that it depends on.
  void add(std::span<const Layer* const> layers);

 private:
  Network& to_;
  const std::function<Tensor*(const Tensor&)> outside_;
  const std::string suffix_;
  std::unordered_map<const Tensor*, Tensor*> tensors_;
  std::unordered_map<const Region*, Region*> regions_;
};

}  // namespace opwright
