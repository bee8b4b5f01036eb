#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "network/operator.h"
#include "network/operator_registry.h"
#include "opwright/layers.h"

namespace opwright {

/// Plans a built-in operator for Operator::plan(): on a GPU as the kernel that is compiled for it,
/// else as the operator itself, whose kernel is in the device's backend.
PlannedOperatorPtr plan_builtin(OperatorPtr op, const KernelArgs& args);
/// Loads the operator itself from a plan.
PlannedOperatorPtr load_builtin(OperatorPtr op);
/// The plan's built-in operator; null for a plugin or a compiled kernel.
const Operator* builtin_of(const PlannedOperator& planned);

/// An enumerator of a parameter, as Python shows it.
template <class E>
struct NamedValue {
  const char* name;
  E value;
  const char* doc;
};
/// An enumeration of parameters, as Python shows it. `Row` is a NamedValue or has its members.
template <class Row, size_t count>
struct Enumeration {
  const char* name;
  const char* doc;
  std::array<Row, count> values;
};
template <class E, class Row = NamedValue<E>, size_t count>
constexpr Enumeration<Row, count> enumeration(const char* name, const char* doc,
                                              const Row (&values)[count]) {
  return {name, doc, std::to_array(values)};
}
/// Specialized for each enumeration beside the layer that declares the enumeration.
template <class E>
inline constexpr std::nullptr_t kEnumeration = nullptr;

/// The class by which TensorRT's API shows the layer of a built-in operator.
template <class InterfaceType>
struct LayerClass {
  using Interface = InterfaceType;
  LayerType type;
  const char* name;
  const char* doc;
};

/// A built-in operator. Its parameters are reflected into attributes, and its kernels come from the
/// device's backend. A derived class declares `struct Params` (with `visit`), `static constexpr
/// std::string_view kKind`, `infer`, `kLayer` if the API has a layer of it, and `kHasNoKernels` if
/// it stands in no plan. Params may declare
/// `bool is_set(std::string_view property) const`;
/// `void was_set(std::string_view property)`, which changes further parameters;
/// `Params without_scales() const`, or a member `fused` that has it. These are the parameters for
/// timing: numbers that affect only results are all alike.
template <class Derived, class ParamsType>
class BuiltinOperator : public Operator {
 public:
  using Params = ParamsType;
  BuiltinOperator() = default;
  explicit BuiltinOperator(Params params) : params_(std::move(params)) {}
  const Params& params() const { return params_; }

  std::string_view kind() const final { return Derived::kKind; }
  std::optional<int> num_outputs() const override { return 1; }
  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    return query.device->candidates(*this, query);
  }
  PlannedOperatorPtr plan(const KernelArgs& args) const override {
    return plan_builtin(std::make_shared<Derived>(params_), args);
  }
  Attributes attributes() const override {
    AttributeWriter writer;
    const_cast<Params&>(params_).visit(writer);
    return std::move(writer.attributes);
  }
  std::optional<std::string> timing_key() const override {
    if constexpr (requires { params_.without_scales(); }) {
      return Derived(params_.without_scales()).Operator::timing_key();
    } else if constexpr (requires { params_.fused.without_scales(); }) {
      Params params = params_;
      params.fused = params.fused.without_scales();
      return Derived(std::move(params)).Operator::timing_key();
    } else {
      return Operator::timing_key();
    }
  }
  static PlannedOperatorPtr load(const Attributes& attributes, const OperatorLoadContext&) {
    Params params;
    AttributeReader reader(Derived::kKind, attributes);
    params.visit(reader);
    return load_builtin(std::make_shared<Derived>(std::move(params)));
  }

 private:
  Params params_;
};

struct NoParams {
  template <class V>
  void visit(V&) {}
};

/// Whether a built-in operator is of the kind.
bool is_builtin_operator(std::string_view kind);

}  // namespace opwright
