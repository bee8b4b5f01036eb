#pragma once

#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "onnx/model.h"

namespace opwright::onnx {

/// The functions that a model defines, by domain, name and overload.
class FunctionTable {
 public:
  /// `functions` must outlive it. Throws Error when two have the same identity.
  explicit FunctionTable(const std::vector<FunctionProto>& functions);
  /// The function that a node calls; null when it calls none.
  const FunctionProto* find(const NodeProto& node) const;

 private:
  std::unordered_map<std::string, const FunctionProto*> functions_;
};

/// "pkg.nn::Block", with its overload where it has one.
std::string full_name(const FunctionProto& function);

using BoundAttributes = std::unordered_map<std::string, const AttributeProto*>;

/// What the attributes of a function are in a call: the call's, else their default values. Points
/// into both.
BoundAttributes bind_attributes(const FunctionProto& function, const NodeProto& call);

/// Whether an attribute of the node stands for one of the function that it lies in.
bool has_references(const NodeProto& node);
/// The node with such attributes replaced; those that the call does not have are left out.
NodeProto resolve_references(const NodeProto& node, const BoundAttributes& bound);

}  // namespace opwright::onnx
