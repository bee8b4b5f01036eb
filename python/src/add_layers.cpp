// The add_* methods of INetworkDefinition bind the core's functions with Python's types.

#include <array>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "held.h"
#include "layers.h"
#include "operators/builtin_layers.h"
#include "regions.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// Dimensions and weights are accepted as any Python object that converts to them.
template <class T>
using GivenAs = std::conditional_t<std::is_same_v<std::decay_t<T>, Ints> ||
                                       std::is_same_v<std::decay_t<T>, Shape> ||
                                       std::is_same_v<std::decay_t<T>, WeightsArray>,
                                   nb::handle, T>;

template <class T>
decltype(auto) to_core(GivenAs<T>& given, const char* name) {
  using Value = std::decay_t<T>;
  if constexpr (std::is_same_v<Value, Ints>) {
    const Shape shape = to_shape(given);
    return Ints(shape.begin(), shape.end());
  } else if constexpr (std::is_same_v<Value, Shape>) {
    return to_shape(given);
  } else if constexpr (std::is_same_v<Value, WeightsArray>) {
    return to_weights(given, name);
  } else {
    return static_cast<T&>(given);
  }
}

nb::arg to_python(const char* name) { return nb::arg(name); }
auto to_python(OptionalWeights argument) { return nb::arg(argument.name).none() = nb::none(); }
auto to_python(OptionalTensor argument) { return nb::arg(argument.name).none() = nb::none(); }
template <class T>
auto to_python(const DefaultArgument<T>& argument) {
  return nb::arg(argument.name) = argument.value;
}

class MethodBinder {
 public:
  explicit MethodBinder(ReportingClass<Network>& c) : class_(c) {}

  template <class Function, class... Arguments>
  void operator()(AddMethod method, Function function, Arguments... arguments) {
    bind(method, std::function(function), arguments...);
  }

 private:
  template <class R, class... T, class... Arguments>
  void bind(const AddMethod& method, std::function<R(Network&, T...)> function,
            Arguments... arguments) {
    const std::array names{argument_name(arguments)...};
    if constexpr (std::is_same_v<R, AddedPadding>) {
      class_.def(
          method.name,
          [=](Network& network, GivenAs<T>... given) {
            return layer_object(
                *call<T...>(function, network, names, std::index_sequence_for<T...>(), given...)
                     .layer,
                nb::find(network));
          },
          to_python(arguments)..., method.doc,
          nb::sig("def add_padding_nd(self, input: ITensor, pre_padding: object, post_padding: "
                  "object) -> IPaddingLayer"));
    } else if constexpr (std::is_same_v<R, AddedAttention>) {
      class_.def(
          method.name,
          [=](Network& network, GivenAs<T>... given) {
            return AttentionHandle{
                call<T...>(function, network, names, std::index_sequence_for<T...>(), given...)
                    .layer};
          },
          to_python(arguments)..., method.doc, nb::call_policy<HoldsMaker>());
    } else {
      class_.def(
          method.name,
          [=](Network& network, GivenAs<T>... given) {
            return call<T...>(function, network, names, std::index_sequence_for<T...>(), given...);
          },
          to_python(arguments)..., method.doc, nb::rv_policy::reference,
          nb::call_policy<HoldsMaker>());
    }
  }
  template <class... T, class Function, class Names, size_t... i>
  static auto call(const Function& function, Network& network, const Names& names,
                   std::index_sequence<i...>, GivenAs<T>&... given) {
    // Converts all arguments, in their order, before the network changes.
    std::tuple<decltype(to_core<T>(given, ""))...> values{to_core<T>(given, names[i])...};
    return std::apply([&](auto&&... value) { return function(network, value...); }, values);
  }

  ReportingClass<Network>& class_;
};

/// Sets the operator's parameters that a dict names. All other parameters keep their values.
class ParameterSetter : public StoredParameterVisitor<ParameterSetter> {
 public:
  explicit ParameterSetter(const nb::dict& given) : given_(given) {}
  template <class T, class... Hints>
  void operator()(const char* name, T& member, Hints...) {
    if (!given_.contains(name)) return;
    ++used_;
    if constexpr (std::is_enum_v<T>)
      member = static_cast<T>(nb::cast<int64_t>(given_[name]));
    else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string> ||
                       std::is_same_v<T, Ints> || std::is_same_v<T, Floats>)
      member = nb::cast<T>(given_[name]);
    else
      fail("_add_operator: the parameter '", name, "' cannot be given");
  }
  bool used_all() const { return used_ == given_.size(); }

 private:
  const nb::dict& given_;
  size_t used_ = 0;
};

Layer* add_operator(Network& network, const std::string& kind, const nb::dict& parameters,
                    const std::vector<Tensor*>& inputs) {
  Layer* added = nullptr;
  each_builtin_operator([&]<class Op>() {
    if constexpr (requires(typename Op::Params params, ParameterSetter & setter) {
                    params.visit(setter);
                    Op(params);
                  }) {
      if (kind != Op::kKind) return;
      typename Op::Params params;
      ParameterSetter setter(parameters);
      params.visit(setter);
      require(setter.used_all(), "_add_operator: ", kind, " has not all of these parameters");
      added = network.add<Op>(std::move(params), inputs);
    }
  });
  require(added != nullptr, "_add_operator: there is no operator '", kind, "'");
  return added;
}

}  // namespace

void bind_add_layers(nb::module_& m) {
  auto network = nb::borrow<ReportingClass<Network>>(m.attr("INetworkDefinition"));
  MethodBinder binder(network);
  each_add_method(binder);
  network.def(
      "add_dist_collective",
      [](Network& self, Tensor& input, CollectiveOperation op,
         std::optional<ReduceOperation> reduce_op, std::optional<int64_t> root,
         const std::optional<Ints>& groups) {
        return add_dist_collective(self, input, op, reduce_op.value_or(ReduceOperation::kNONE),
                                   root.value_or(-1), groups.value_or(Ints()));
      },
      nb::arg("input"), nb::arg("dist_collective_op"), nb::arg("reduce_op").none(),
      nb::arg("root").none(), nb::arg("groups").none(), nb::rv_policy::reference,
      nb::call_policy<HoldsMaker>(),
      "Exchanges a tensor with other ranks: engines that run the same network in other processes. "
      "`num_ranks` of the layer says how many there are. `reduce_op` is for ALL_REDUCE, REDUCE and "
      "REDUCE_SCATTER; `root`, a rank, for BROADCAST, REDUCE, GATHER and SCATTER. `groups` are the "
      "ranks that take part, in their order; None or empty: all. A rank that receives nothing gets "
      "zeros.",
      nb::sig("def add_dist_collective(self, input: ITensor, dist_collective_op: "
              "CollectiveOperation, reduce_op: ReduceOperation | None, root: int | None, groups: "
              "collections.abc.Sequence[int] | None) -> IDistCollectiveLayer"));
  // opwright.torch adds operators, and sets parameters, that the public API does not have.
  network.def("_add_operator", add_operator, nb::arg("kind"), nb::arg("parameters"),
              nb::arg("inputs"), nb::rv_policy::reference, nb::call_policy<HoldsMaker>(),
              nb::sig("def _add_operator(self, kind: str, parameters: dict[str, object], inputs: "
                      "Sequence[ITensor | None]) -> ILayer"));
}

}  // namespace opwright::python
