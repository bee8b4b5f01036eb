#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "network/operator.h"

namespace opwright {

class Expansion;

/// A part of a network that runs as the layers at its border say: a loop or a conditional. The
/// layers inside are found by following who reads whose results. Compilation replaces the region by
/// other layers.
class Region {
 public:
  explicit Region(Network& network, std::string name) : network_(network), name_(std::move(name)) {}
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  Network& network() const { return network_; }
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  /// The layers at the region's border, in the order in which they were added.
  std::span<Layer* const> boundary() const { return boundary_; }
  /// The layers that run inside, with borders of nested regions. Throws Error if a tensor leaves
  /// the region without an output layer, or an input of the region depends on its output.
  virtual std::vector<const Layer*> interior() const = 0;
  /// Adds the layers that the region stands for to a copy of its network. Throws Error if it is
  /// incomplete.
  virtual void expand(Expansion& expansion) const = 0;
  /// Adds a region of the same kind, without layers, to a network.
  virtual Region* add_copy_to(Network& network) const = 0;
  /// Adds a copied layer of another network's region.
  void add_boundary(Layer& layer) { boundary_.push_back(&layer); }

 protected:
  Network& network_;
  std::string name_;
  std::vector<Layer*> boundary_;
};

/// Second base class of the operators of layers at a border.
class BoundaryOperator {
 public:
  virtual Region& region() const = 0;
  virtual OperatorPtr moved_to(Region& region) const = 0;

 protected:
  ~BoundaryOperator() = default;
};

/// The layer's operator; null unless the layer is at a border.
const BoundaryOperator* boundary_of(const Layer& layer);

}  // namespace opwright
