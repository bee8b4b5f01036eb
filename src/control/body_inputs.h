#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "network/network.h"

namespace opwright {

/// The inputs of a body's network, like tensors outside: what it reads of the network around it.
class BodyInputs {
 public:
  /// \param captured the tensors outside that inputs are; what it has already keeps its place.
  /// \param for_extents becomes the inputs that are there for their extents.
  BodyInputs(Network& body, std::vector<Tensor*>& captured, std::vector<const Tensor*>& for_extents)
      : body_(body), outside_(captured), for_extents_(for_extents) {}

  /// An input of the name and of the type and shape of a tensor outside. Extents that are equal
  /// outside have one name.
  Tensor* add(const std::string& name, const Tensor& outside);
  /// What a tensor outside is in the body: a constant, what follows from extents, or an input.
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

/// Makes the tensor an output of a body; one that is an input or an output already through an
/// identity.
void mark_body_output(Network& body, Tensor* tensor);
/// Takes out the inputs that nothing reads and whose extents nothing needs.
void remove_unused_inputs(Network& body, const std::vector<const Tensor*>& for_extents);

}  // namespace opwright
