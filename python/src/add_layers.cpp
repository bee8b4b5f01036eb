// The add_* methods of INetworkDefinition: core's functions, in Python's types.

#include <array>
#include <functional>
#include <tuple>
#include <utility>

#include "layers.h"
#include "operators/builtin_layers.h"
#include "operators/recurrence.h"
#include "regions.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// Dimensions and weights come as any object that stands for some.
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
          to_python(arguments)..., method.doc, nb::keep_alive<0, 1>());
    } else {
      class_.def(
          method.name,
          [=](Network& network, GivenAs<T>... given) {
            return call<T...>(function, network, names, std::index_sequence_for<T...>(), given...);
          },
          to_python(arguments)..., method.doc, nb::rv_policy::reference_internal);
    }
  }
  template <class... T, class Function, class Names, size_t... i>
  static auto call(const Function& function, Network& network, const Names& names,
                   std::index_sequence<i...>, GivenAs<T>&... given) {
    // All are converted, in their order, before the network changes.
    std::tuple<decltype(to_core<T>(given, ""))...> values{to_core<T>(given, names[i])...};
    return std::apply([&](auto&&... value) { return function(network, value...); }, values);
  }

  ReportingClass<Network>& class_;
};

/// The API has no layer for it; opwright.torch adds it for PyTorch's LSTM, GRU and RNN.
Layer* add_recurrence(Network& network, RecurrentCell cell, bool bidirectional, bool relu,
                      const std::vector<Tensor*>& weights, Tensor& x, Tensor& h, Tensor* c) {
  require(weights.size() == 3, "_add_recurrence: expected W, R and B");
  RecurrenceParams params;
  params.cell = cell;
  params.linear_before_reset = cell == RecurrentCell::kGRU;
  if (bidirectional) params.direction = RecurrentDirection::kBIDIRECTIONAL;
  const auto gate = cell == RecurrentCell::kRNN
                        ? (relu ? RecurrentActivation::kRELU : RecurrentActivation::kTANH)
                        : RecurrentActivation::kSIGMOID;
  for (int direction = 0; direction < params.directions(); ++direction)
    for (int i = 0; i < activation_count(cell); ++i)
      params.activations.push_back(
          static_cast<int64_t>(i == 0 ? gate : RecurrentActivation::kTANH));
  params.alphas.resize(params.activations.size());
  params.betas.resize(params.activations.size());
  std::vector<Tensor*> inputs{&x, weights[0], weights[1], weights[2], nullptr, &h};
  if (c != nullptr) inputs.push_back(c);
  return network.add<Recurrence>(std::move(params), inputs);
}

}  // namespace

void bind_add_layers(nb::module_& m) {
  auto network = nb::borrow<ReportingClass<Network>>(m.attr("INetworkDefinition"));
  MethodBinder binder(network);
  each_add_method(binder);
  network.def(
      "_add_recurrence",
      [](Network& network, const std::string& cell, bool bidirectional, bool relu,
         const std::vector<Tensor*>& weights, Tensor& x, Tensor& h, Tensor* c) {
        const auto kind = cell == "lstm"  ? RecurrentCell::kLSTM
                          : cell == "gru" ? RecurrentCell::kGRU
                                          : RecurrentCell::kRNN;
        return add_recurrence(network, kind, bidirectional, relu, weights, x, h, c);
      },
      nb::arg("cell"), nb::arg("bidirectional"), nb::arg("relu"), nb::arg("weights"), nb::arg("x"),
      nb::arg("h"), nb::arg("c").none() = nb::none(), nb::rv_policy::reference_internal);
}

}  // namespace opwright::python
