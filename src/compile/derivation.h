#pragma once

#include <memory>
#include <vector>

#include "network/operator.h"

namespace opwright {

/// An operator that a pass applied to constants, or weights of the network.
struct Derivation;

/// A result of a derivation.
struct Derived {
  std::shared_ptr<const Derivation> from;  ///< null: a constant that stays
  int output = 0;
  explicit operator bool() const { return from != nullptr; }
};

struct Derivation {
  int weight = -1;   ///< number of the weights; -1: made by the operator
  std::string name;  ///< of the layer
  OperatorPtr op;
  struct Operand {
    bool present = false;
    Derived origin;
    TensorInfo info;  ///< with its elements where `origin` is null
  };
  std::vector<Operand> inputs;
  std::vector<TensorInfo> outputs;  ///< types and shapes
};

}  // namespace opwright
