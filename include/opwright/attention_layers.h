#pragma once

/// \file
/// The interfaces of attention layers, for sources that ask a layer for its type and then for
/// these. Networks have no such layers yet: ILayer::getType() gives neither kATTENTION_INPUT nor
/// kATTENTION_OUTPUT, and INetworkDefinition has no method that adds one.

#include "network.h"

namespace opwright {

/// An attention as a whole, between its input and its output layer.
class IAttention : public INoCopy {
 public:
  virtual bool setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;
  /// Whether it may be run as several layers where no single kernel does it.
  virtual bool setDecomposable(bool decomposable) noexcept = 0;
  virtual bool getDecomposable() const noexcept = 0;

 protected:
  ~IAttention() noexcept override = default;
};

/// A layer at the border of an attention.
class IAttentionBoundaryLayer : public ILayer {
 public:
  virtual IAttention* getAttention() const noexcept = 0;

 protected:
  ~IAttentionBoundaryLayer() noexcept override = default;
};

class IAttentionInputLayer : public IAttentionBoundaryLayer {
 protected:
  ~IAttentionInputLayer() noexcept override = default;
};

class IAttentionOutputLayer : public IAttentionBoundaryLayer {
 protected:
  ~IAttentionOutputLayer() noexcept override = default;
};

}  // namespace opwright
