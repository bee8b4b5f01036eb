#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "error_of.h"
#include "network/operator.h"
#include "network/operator_registry.h"
#include "plugin/lookup.h"
#include "symbolic/expr.h"

namespace opwright {

// Libraries of tests/cpp/plugins.
inline const std::string kCircPad = std::string(OPWRIGHT_TEST_PLUGIN_DIR) + "/circ_pad_plugin.so";
inline const std::string kIdentity = std::string(OPWRIGHT_TEST_PLUGIN_DIR) + "/identity_plugin.so";

/// The message of the Error that `function` throws; a test failure when it throws none.
template <class F>
std::string thrown_error(F&& function) {
  const std::string message = error_of(function);
  EXPECT_NE(message, "no error");
  return message;
}

/// The operator of the plugin that a node names; null when nobody knows it.
inline OperatorPtr make_plugin_for_node(const PluginNode& node, IPluginRegistry* registry,
                                        const NetworkFlags& flags, const Log& log = {}) {
  return make_found_plugin(find_plugin(node, registry), node, flags, log);
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "in: " << (text)

/// Infers one operator outside of a network. Size tensors get the symbols from 100 on.
class TestContext final : public InferContext {
 public:
  explicit TestContext(std::vector<TensorInfo> tensors) : tensors_(std::move(tensors)) {
    for (const TensorInfo& tensor : tensors_) pointers_.push_back(&tensor);
    inputs = pointers_;
    layer = "test layer";
  }
  Expr declare_size_tensor(int output, const Expr& opt, const Expr& upper_bound) override {
    declared.push_back({output, opt, upper_bound});
    return Expr::symbol(99 + static_cast<int>(declared.size()));
  }
  struct Declared {
    int output;
    Expr opt, upper_bound;
  };
  std::vector<Declared> declared;

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<const TensorInfo*> pointers_;
};

inline TensorInfo tensor(DataType dtype, SymShape dims) {
  TensorInfo info;
  info.dtype = dtype;
  info.dims = std::move(dims);
  return info;
}

inline PortDesc port(DataType dtype, Shape shape, TensorFormat format = TensorFormat::kLINEAR) {
  PortDesc desc;
  desc.type = {dtype, format};
  desc.min = desc.opt = desc.max = shape;
  return desc;
}

inline CandidateQuery make_query(const std::vector<PortDesc>& inputs,
                                 const std::vector<PortDesc>& outputs) {
  CandidateQuery query;
  query.layer = "test layer";
  query.inputs = inputs;
  query.outputs = outputs;
  return query;
}

/// Ports with the types of a candidate, for KernelArgs.
inline std::vector<PortDesc> with_types(std::vector<PortDesc> ports,
                                        const std::vector<PortType>& types) {
  for (size_t i = 0; i < ports.size(); ++i) ports[i].type = types[i];
  return ports;
}

inline KernelArgs make_args(const Candidate& candidate, const std::vector<PortDesc>& inputs,
                            const std::vector<PortDesc>& outputs) {
  KernelArgs args;
  args.layer = "test layer";
  args.candidate = &candidate;
  args.inputs = inputs;
  args.outputs = outputs;
  return args;
}

/// A kernel and what a plan would store of its operator.
struct PlannedKernel {
  PlannedOperatorPtr op;
  std::unique_ptr<Kernel> kernel;
  Kernel* operator->() const { return kernel.get(); }
};
inline PlannedKernel make_kernel(const Operator& op, const KernelArgs& args) {
  PlannedOperatorPtr planned = op.plan(args);
  std::unique_ptr<Kernel> kernel = planned->make_kernel(args);
  return {std::move(planned), std::move(kernel)};
}

}  // namespace opwright
