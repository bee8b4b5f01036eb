#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "network/operator.h"
#include "network/operator_registry.h"
#include "plugin/model/plugin_operator.h"

namespace opwright {

/// What a test wants of an operator.
struct TestBehaviour {
  using Run = std::function<void(void const* const*, void* const*, std::span<const Shape>)>;
  /// Outputs; by default one like input 0.
  std::function<std::vector<OutputInfo>(InferContext&)> infer;
  /// By default one that keeps the query's types.
  std::function<std::vector<Candidate>(const CandidateQuery&)> candidates;
  /// Called before a kernel is made: may throw.
  std::function<void(const KernelArgs&)> make;
  Run run;
  /// Called before `run` with the candidate that the kernel was made for.
  std::function<void(const Candidate&)> run_as;
  /// Called behind `run` with the workspace.
  std::function<void(void*)> use_workspace;
  /// Whether outputs are as they were when `run` is called. Else they are zeros, but for those in
  /// an input's memory.
  bool leaves_outputs = false;
  std::vector<PluginRequirement> requirements;
  bool pure = true;
  size_t workspace = 0;
  std::optional<std::string> timing_key;  ///< by default that of all operators
  bool is_timed_every_time = false;
};

/// An operator that does what the test that added it says; it finds its behaviour again by number
/// when an engine is loaded.
class TestOperator final : public Operator {
 public:
  explicit TestOperator(int id) : id_(id) {}
  static OperatorPtr add(TestBehaviour behaviour) {
    register_operator_kind("Test", [](const Attributes& attributes, const OperatorLoadContext&) {
      return std::make_shared<Planned>(
          static_cast<int>(std::get<int64_t>(*find(attributes, "id"))));
    });
    const int id = static_cast<int>(behaviours().size());
    behaviours()[id] = std::move(behaviour);
    if (!behaviours()[id].requirements.empty())
      return std::make_shared<PluginOperator>(std::make_shared<Plugin>(id));
    return std::make_shared<TestOperator>(id);
  }

  std::string_view kind() const override { return "Test"; }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    if (self().infer) return self().infer(context);
    OutputInfo output;
    output.dtype = context.inputs[0]->dtype;
    output.dims = context.inputs[0]->dims;
    return {output};
  }
  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    if (self().candidates) return self().candidates(query);
    return {like(query)};
  }
  /// The candidate with the query's types and LINEAR formats.
  static Candidate like(const CandidateQuery& query, int64_t tactic = 0) {
    Candidate candidate;
    candidate.tactic = tactic;
    for (const PortDesc& port : query.inputs) candidate.inputs.push_back(port.type);
    for (const PortDesc& port : query.outputs) candidate.outputs.push_back(port.type);
    return candidate;
  }
  PlannedOperatorPtr plan(const KernelArgs&) const override {
    return std::make_shared<Planned>(id_);
  }
  Attributes attributes() const override { return {{"id", int64_t{id_}}}; }
  bool is_pure() const override { return self().pure; }
  std::optional<std::string> timing_key() const override {
    if (self().is_timed_every_time) return std::nullopt;
    return self().timing_key ? self().timing_key : Operator::timing_key();
  }

 private:
  class Planned final : public PlannedOperator {
   public:
    explicit Planned(int id) : id_(id) {}
    std::string_view kind() const override { return op().kind(); }
    std::vector<OutputInfo> infer(InferContext& context) const override {
      return op().infer(context);
    }
    std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
      if (op().self().make) op().self().make(args);
      return std::make_unique<TestKernel>(op().self(), *args.candidate);
    }
    Attributes attributes() const override { return op().attributes(); }
    std::vector<PluginRequirement> requirements() const override {
      return op().self().requirements;
    }

   private:
    TestOperator op() const { return TestOperator(id_); }
    const int id_;
  };
  /// One that calls code of a plugin's own.
  class Plugin final : public PluginModel {
   public:
    explicit Plugin(int id)
        : id_(id), identity_{required().name, required().version, required().plugin_namespace} {}
    std::string_view kind() const override { return op().kind(); }
    const CreatorIdentity& identity() const override { return identity_; }
    std::vector<OutputInfo> infer(InferContext& context) const override {
      return op().infer(context);
    }
    std::vector<Candidate> candidates(const CandidateQuery& query) const override {
      return op().candidates(query);
    }
    std::optional<std::string> timing_key() const override { return op().timing_key(); }
    PluginModelPtr configure(const KernelArgs&) const override {
      return std::make_shared<Plugin>(id_);
    }
    Attributes store(std::string_view) const override { return op().attributes(); }
    void check(const StoredPorts&, const KernelArgs&) const override {}
    std::unique_ptr<Kernel> attach(const KernelArgs& args) const override {
      return Planned(id_).make_kernel(args);
    }

   private:
    TestOperator op() const { return TestOperator(id_); }
    const PluginRequirement& required() const { return behaviours().at(id_).requirements[0]; }
    const int id_;
    const CreatorIdentity identity_;
  };
  class TestKernel final : public Kernel {
   public:
    TestKernel(const TestBehaviour& behaviour, const Candidate& candidate)
        : behaviour_(behaviour), candidate_(candidate) {}
    size_t workspace_size() const override { return behaviour_.workspace; }
    void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
      shapes_.assign(inputs.begin(), inputs.end());
      output_shapes_.assign(outputs.begin(), outputs.end());
    }
    void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
      for (size_t i = 0; !behaviour_.leaves_outputs && i < output_shapes_.size(); ++i) {
        const auto* const end = inputs + shapes_.size();
        if (std::find(inputs, end, outputs[i]) != end) continue;
        const auto& [dtype, format] = candidate_.outputs[i];
        std::memset(outputs[i], 0, tensor_bytes(output_shapes_[i], dtype, format));
      }
      if (behaviour_.run_as) behaviour_.run_as(candidate_);
      if (behaviour_.run) behaviour_.run(inputs, outputs, shapes_);
      if (behaviour_.use_workspace) behaviour_.use_workspace(workspace);
    }

   private:
    const TestBehaviour& behaviour_;
    const Candidate candidate_;
    std::vector<Shape> shapes_, output_shapes_;
  };
  static std::map<int, TestBehaviour>& behaviours() {
    static std::map<int, TestBehaviour> all;
    return all;
  }
  const TestBehaviour& self() const { return behaviours().at(id_); }
  int id_;
};

}  // namespace opwright
