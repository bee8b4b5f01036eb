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
  /// `functions` must outlive it. Throws Error when two functions have the same identity.
  explicit FunctionTable(const std::vector<FunctionProto>& functions);
  /// The function that a node calls; null when it calls none.
  const FunctionProto* find(const NodeProto& node) const;

 private:
  std::unordered_map<std::string, const FunctionProto*> functions_;
};

/// "pkg.nn::Block", with the overload if there is one.
std::string full_name(const FunctionProto& function);

using BoundAttributes = std::unordered_map<std::string, const AttributeProto*>;

/// A function's attributes in a call: those of the call, else their default values. Points into
/// both.
BoundAttributes bind_attributes(const FunctionProto& function, const NodeProto& call);

/// Whether an attribute of the node refers to an attribute of the function around it.
bool has_references(const NodeProto& node);
/// The node with such references replaced. Attributes that the call lacks are left out.
NodeProto resolve_references(const NodeProto& node, const BoundAttributes& bound);

}  // namespace opwright::onnx
