#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "network/network.h"

namespace opwright {

/// The inputs of a body's network, and the tensors of the network around it that they stand for.
class BodyInputs {
 public:
  /// \param captured receives the tensors outside that inputs stand for; earlier ones stay
  /// \param for_extents receives the inputs that are needed for their extents
  BodyInputs(Network& body, std::vector<Tensor*>& captured, std::vector<const Tensor*>& for_extents)
      : body_(body), outside_(captured), for_extents_(for_extents) {}

  /// Adds an input with this name, and with the type and shape of a tensor outside. Extents that
  /// are equal outside share one name.
  Tensor* add(const std::string& name, const Tensor& outside);
  /// The body's tensor for a tensor outside: a constant, values that follow from extents, or an
  /// input.
  Tensor* capture(Tensor* outside);

 private:
  std::optional<std::vector<Expr>> values_inside(const Tensor& outside);
  std::optional<Expr> inside_of(const Expr& e, Network& network, int depth);
  std::string name_of(const Expr& extent);
  void copy_name(const Tensor& outside, const Layer& made);

  Network& body_;
  std::vector<Tensor*>& outside_;
  std::vector<const Tensor*>& for_extents_;
  std::unordered_map<const Tensor*, Tensor*> captured_;
  std::vector<Expr> extents_;
};

/// Makes the tensor an output of a body, through an identity if it is an input or an output
/// already.
void mark_body_output(Network& body, Tensor* tensor);
/// Removes inputs that no layer reads and whose extents are not needed.
void remove_unused_inputs(Network& body, const std::vector<const Tensor*>& for_extents);

}  // namespace opwright
