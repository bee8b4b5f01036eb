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

/// A part of a network that runs as layers at its border say: a loop or a conditional. What lies
/// between them follows from who reads whose results; it becomes other layers when the network is
/// compiled.
class Region {
 public:
  explicit Region(Network& network, std::string name) : network_(network), name_(std::move(name)) {}
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  Network& network() const { return network_; }
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  /// The layers at its border, as they were added.
  std::span<Layer* const> boundary() const { return boundary_; }
  /// The layers that run inside, borders of other regions among them. Throws Error where something
  /// leaves the region without a layer that lets it out, or its input depends on its output.
  virtual std::vector<const Layer*> interior() const = 0;
  /// Adds what it stands for to a copy of its network. Throws Error where it is not complete.
  virtual void expand(Expansion& expansion) const = 0;
  /// Another one of the kind, without layers, in a network.
  virtual Region* add_copy_to(Network& network) const = 0;
  /// A layer of another network's region, copied.
  void add_boundary(Layer& layer) { boundary_.push_back(&layer); }

 protected:
  Network& network_;
  std::string name_;
  std::vector<Layer*> boundary_;
};

/// What the operators of layers at a border are, too.
class BoundaryOperator {
 public:
  virtual Region& region() const = 0;
  virtual OperatorPtr moved_to(Region& region) const = 0;

 protected:
  ~BoundaryOperator() = default;
};

/// Null for a layer that is no border.
const BoundaryOperator* boundary_of(const Layer& layer);

}  // namespace opwright
