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

/// The network to compile: a copy in which other layers stand for composed layers, loops and
/// conditionals. Null where the network has none of these. Symbols, names and known values of
/// tensors stay. Throws Error for a region that is not complete.
std::shared_ptr<const Network> expand(const Network& network);

/// A weight that only a body reads.
struct BodyWeight {
  std::string name;  ///< the name by which an engine is refitted
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  Blob data;
};

/// The network with weights of bodies as constants that its layers hand to the bodies, so that an
/// engine can be refitted with other weights. Null where no body has weights. The network must be
/// expanded.
std::shared_ptr<const Network> lift_body_weights(const Network& network,
                                                 const IsRefittable& is_refittable);
/// A body whose weights became inputs. `input_name` names them by their number in `weights`.
/// Weights that are in the list already keep their place. Returns the body itself where it has no
/// weights.
std::shared_ptr<const Network> weights_as_inputs(
    std::shared_ptr<const Network> body, const IsRefittable& is_refittable,
    const std::function<std::string(size_t number)>& input_name, std::vector<BodyWeight>& weights);

/// The copy of a network while other layers replace its regions and composed layers.
class Expansion {
 public:
  explicit Expansion(const Network& from) : Expansion(from, {}) {}
  /// Replaces these constant layers by inputs of these names.
  Expansion(const Network& from, std::unordered_map<const Layer*, std::string> as_inputs);
  Expansion(const Expansion&) = delete;
  Expansion& operator=(const Expansion&) = delete;

  /// A copy with other extents of inputs and other elements of shape inputs. Infers the rest again.
  /// The network must be expanded.
  static std::shared_ptr<Network> with(const Network& from, const Substitution& values);

  /// The copy.
  Network& network() const { return *to_; }
  std::shared_ptr<Network> finish();
  /// The copy's tensor that stands for a tensor of the network. Only for tensors that exist before
  /// the region.
  Tensor* operator()(const Tensor& tensor) const;
  /// Lets `made` stand for an output of a region or a composed layer: gives it the output's name
  /// and the other settings.
  void set(const Tensor& tensor, Tensor* made);
  /// Sorts the layers so that each stands behind those that it depends on.
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
  /// Renames a tensor of the copy that took the name, so that a tensor of the network keeps it.
  void free_name(const std::string& name);

  const Network& from_;
  const std::unordered_map<const Layer*, std::string> as_inputs_;
  std::shared_ptr<Network> to_;
  std::vector<Layer*> order_;
  std::vector<Unit> units_;
  std::unordered_map<const Layer*, size_t> unit_of_;
  std::unordered_map<const Tensor*, Tensor*> tensors_;
  std::unordered_set<const Tensor*> taken_;  ///< tensors of the copy that already stand for one of
                                             ///< the network
};

/// Adds layers of a network to another network, or to the same one once more: the body of a loop, a
/// branch.
class LayerCopies {
 public:
  /// `outside` maps the tensors that set() was not told of and that no copied layer makes. `suffix`
  /// goes behind the names of layers.
  LayerCopies(Network& to, std::function<Tensor*(const Tensor&)> outside, std::string suffix)
      : to_(to), outside_(std::move(outside)), suffix_(std::move(suffix)) {}

  void set(const Tensor& from, Tensor* to) { tensors_[&from] = to; }
  Tensor* operator()(const Tensor& from);
  /// Adds the layers, each behind those that it depends on.
  void add(std::span<const Layer* const> layers);

 private:
  Network& to_;
  const std::function<Tensor*(const Tensor&)> outside_;
  const std::string suffix_;
  std::unordered_map<const Tensor*, Tensor*> tensors_;
  std::unordered_map<const Region*, Region*> regions_;
};

}  // namespace opwright
