#include "onnx/functions.h"

#include <algorithm>

#include "base/error.h"

namespace opwright::onnx {
namespace {

std::string key(const std::string& domain, const std::string& name, const std::string& overload) {
  std::string all;
  for (const std::string* part : {&domain, &name, &overload}) all.append(*part).push_back('\0');
  return all;
}

}  // namespace

FunctionTable::FunctionTable(const std::vector<FunctionProto>& functions) {
  for (const FunctionProto& function : functions) {
    const bool is_new =
        functions_.emplace(key(function.domain, function.name, function.overload), &function)
            .second;
    require(is_new, "ONNX: the model defines the function '", full_name(function), "' twice");
  }
}

const FunctionProto* FunctionTable::find(const NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find(key(node.domain, node.op_type, node.overload));
  return found != functions_.end() ? found->second : nullptr;
}

std::string full_name(const FunctionProto& function) {
  return str(function.domain, function.domain.empty() ? "" : "::", function.name,
             function.overload.empty() ? "" : ":", function.overload);
}

BoundAttributes bind_attributes(const FunctionProto& function, const NodeProto& call) {
  BoundAttributes bound;
  for (const AttributeProto& a : function.defaults) bound[a.name] = &a;
  for (const AttributeProto& a : call.attributes) bound[a.name] = &a;
  return bound;
}

bool has_references(const NodeProto& node) {
  return std::any_of(node.attributes.begin(), node.attributes.end(),
                     [](const AttributeProto& a) { return !a.reference.empty(); });
}

NodeProto resolve_references(const NodeProto& node, const BoundAttributes& bound) {
  NodeProto resolved;
  resolved.name = node.name;
  resolved.op_type = node.op_type;
  resolved.domain = node.domain;
  resolved.overload = node.overload;
  resolved.inputs = node.inputs;
  resolved.outputs = node.outputs;
  for (const AttributeProto& a : node.attributes) {
    if (a.reference.empty()) {
      resolved.attributes.push_back(a);
      continue;
    }
    const auto found = bound.find(a.reference);
    if (found == bound.end()) continue;
    resolved.attributes.push_back(*found->second);
    resolved.attributes.back().name = a.name;
  }
  return resolved;
}

}  // namespace opwright::onnx
