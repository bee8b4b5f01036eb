#include "api/network.h"

#include <array>
#include <functional>
#include <type_traits>

#include "api/layer.h"
#include "api/tensor.h"
#include "network/shape_inputs.h"
#include "operators/builtin_layers.h"
#include "opwright/builder.h"
#include "plugin/abi/v2_model.h"
#include "plugin/abi/v3_model.h"

namespace opwright {
namespace {

Tensor& core(ITensor& tensor) { return TensorApi::of(tensor); }

/// Appends a caller's list.
void append(std::vector<Tensor*>& tensors, ITensor* const* list, int32_t count, const char* what) {
  require(count >= 0 && (count == 0 || list != nullptr), what, ": the list is null or its length ",
          count, " is negative");
  for (int32_t i = 0; i < count; ++i) {
    require(list[i] != nullptr, what, ": tensor ", i, " of ", count, " is null");
    tensors.push_back(&core(*list[i]));
  }
}

/// Element `index` of a list. Null, and an error, where it does not exist.
template <class T>
T* element(std::span<T* const> list, int32_t index, const char* what) {
  require(index >= 0 && index < static_cast<int32_t>(list.size()), "the network has no ", what, " ",
          index, ": it has ", list.size());
  return list[index];
}

/// A call of a method that adds a layer.
struct AddCall {
  NetworkApi& network;
  const char* method;
  std::span<const impl::LayerValue> arguments;
};

/// Argument `index` of the call, called `name`, in the type of the core function's parameter.
template <class T>
decltype(auto) argument(const AddCall& call, size_t index, const char* name) {
  using Value = std::decay_t<T>;
  const impl::LayerValue& value = call.arguments[index];
  if constexpr (std::is_same_v<Value, Tensor>) {
    return TensorApi::of(*value.tensor);
  } else if constexpr (std::is_same_v<Value, Tensor*>) {
    return value.tensor == nullptr ? nullptr : &TensorApi::of(*value.tensor);
  } else if constexpr (std::is_same_v<Value, std::vector<Tensor*>>) {
    std::vector<Tensor*> tensors;
    append(tensors, value.tensors, value.count, call.method);
    return tensors;
  } else if constexpr (std::is_same_v<Value, std::string>) {
    require(value.text != nullptr, call.method, ", ", name, ": the text is null");
    return std::string(value.text);
  } else if constexpr (std::is_same_v<Value, Ints>) {
    return to_ints(value.dims);
  } else if constexpr (std::is_same_v<Value, Shape>) {
    return Shape(value.dims);
  } else if constexpr (std::is_same_v<Value, WeightsArray>) {
    return call.network.copy_of(value.weights, str(call.method, ", ", name));
  } else {
    return value.as<Value>();
  }
}

using AddFunction = std::function<Layer*(const AddCall&)>;

/// Collects the functions by the methods' names in C++.
class AddFunctions {
 public:
  template <class Function, class... Arguments>
  void operator()(AddMethod method, Function function, Arguments... arguments) {
    add(method.cpp_name, std::function(function), std::array{argument_name(arguments)...});
  }
  std::unordered_map<std::string_view, AddFunction> take() { return std::move(functions_); }

 private:
  template <class R, class... T, size_t count>
  void add(const char* method, std::function<R(Network&, T...)> function,
           std::array<const char*, count> names) {
    static_assert(sizeof...(T) == count);
    functions_.emplace(method, [=](const AddCall& call) -> Layer* {
      require(call.arguments.size() == count, call.method, ": ", call.arguments.size(),
              " arguments came; expected ", count);
      return invoke<T...>(function, call, names, std::index_sequence_for<T...>());
    });
  }
  template <class... T, class Function, class Names, size_t... i>
  static Layer* invoke(const Function& function, const AddCall& call, const Names& names,
                       std::index_sequence<i...>) {
    const auto added = function(call.network.network(), argument<T>(call, i, names[i])...);
    if constexpr (requires { added.layer; })
      return added.layer;
    else
      return added;
  }

  std::unordered_map<std::string_view, AddFunction> functions_;
};

const std::unordered_map<std::string_view, AddFunction>& add_methods() {
  static const auto methods = [] {
    AddFunctions functions;
    each_add_method(functions);
    functions(
        {"add_dist_collective", "addDistCollective", ""},
        [](Network& network, Tensor& input, CollectiveOperation op, ReduceOperation reduce_op,
           int64_t root, const WeightsArray& groups) {
          Ints ranks;
          for (int64_t i = 0; i < groups.shape.numel() && groups.data.size() > 0; ++i)
            ranks.push_back(groups.data.as<int64_t>()[i]);
          return add_dist_collective(network, input, op, reduce_op, root, std::move(ranks));
        },
        "input", "distCollectiveOp", "reduceOp", "root", "groups");
    return functions.take();
  }();
  return methods;
}

}  // namespace

NetworkApi::NetworkApi(IBuilder& builder, NetworkDefinitionCreationFlags flags, Log log,
                       IErrorRecorder* recorder)
    : builder_(builder),
      network_(network_flags(flags), {std::shared_ptr<void>(), &builder.getPluginRegistry()}, log),
      errors_(network_.errors()) {
  errors_.set_recorder(recorder);
}

NetworkApi::~NetworkApi() noexcept = default;

WeightsArray NetworkApi::copy_of(const Weights& weights, std::string_view what) const {
  require(weights.count >= 0 && (weights.count == 0 || weights.values != nullptr), what,
          ": the weights have no values, but ", weights.count, " elements");
  if (weights.count == 0) return {weights.type, Shape{0}, Blob()};
  const auto bytes = static_cast<size_t>(bytes_of(weights.type, weights.count));
  Blob copy = Blob::copy(weights.values, bytes);
  copies_.emplace(weights.values, copy.data());
  return {weights.type, Shape{weights.count}, std::move(copy)};
}

bool NetworkApi::setWeightsName(Weights weights, char const* name) noexcept {
  return errors_.run([&] {
    require(name != nullptr, "setWeightsName: the name is null");
    std::vector<const void*> elements{weights.values};
    const auto [first, last] = copies_.equal_range(weights.values);
    for (auto copy = first; copy != last; ++copy) elements.push_back(copy->second);
    set_weights_name(network_, elements, name);
  });
}

bool NetworkApi::markWeightsRefittable(char const* name) noexcept {
  return errors_.guard(
      false, [&] { return name != nullptr && mark_weights_refittable(network_, name, true); });
}

bool NetworkApi::unmarkWeightsRefittable(char const* name) noexcept {
  return errors_.guard(
      false, [&] { return name != nullptr && mark_weights_refittable(network_, name, false); });
}

bool NetworkApi::areWeightsMarkedRefittable(char const* name) const noexcept {
  return errors_.guard(
      false, [&] { return name != nullptr && are_weights_marked_refittable(network_, name); });
}

ITensor* NetworkApi::tensor(Tensor* tensor) const {
  if (tensor == nullptr) return nullptr;
  std::unique_ptr<TensorApi>& api = tensors_[tensor];
  if (api == nullptr) api = std::make_unique<TensorApi>(*tensor, errors_);
  return api.get();
}

ILayer* NetworkApi::layer(Layer& layer) const {
  std::shared_ptr<ILayer>& api = layers_[&layer];
  if (api == nullptr) {
    api = make_layer_api({*this, layer});
  }
  return api.get();
}

void NetworkApi::setName(char const* name) noexcept {
  errors_.run([&] { network_.set_name(name == nullptr ? "" : name); });
}

bool NetworkApi::getFlag(NetworkDefinitionCreationFlag flag) const noexcept {
  return (network_.flags().bits >> static_cast<int32_t>(flag) & 1U) != 0;
}

ITensor* NetworkApi::addInput(char const* name, DataType type, Dims const& dimensions) noexcept {
  return errors_.guard<ITensor*>(nullptr, [&] {
    require(name != nullptr, "addInput: the name is null");
    return tensor(network_.add_input(name, type, Shape(dimensions)));
  });
}

void NetworkApi::markOutput(ITensor& tensor) noexcept {
  errors_.run([&] { network_.mark_output(core(tensor)); });
}

void NetworkApi::unmarkOutput(ITensor& tensor) noexcept {
  errors_.run([&] { network_.unmark_output(core(tensor)); });
}

bool NetworkApi::markOutputForShapes(ITensor& tensor) noexcept {
  return errors_.guard(false, [&] { return network_.mark_output_for_shapes(core(tensor)); });
}

bool NetworkApi::unmarkOutputForShapes(ITensor& tensor) noexcept {
  return errors_.guard(false, [&] { return network_.unmark_output_for_shapes(core(tensor)); });
}

void NetworkApi::removeTensor(ITensor& tensor) noexcept {
  errors_.run([&] { network_.remove_tensor(core(tensor)); });
}

bool NetworkApi::markDebug(ITensor& tensor) noexcept {
  return errors_.run([&] { network_.mark_debug(core(tensor)); });
}

bool NetworkApi::unmarkDebug(ITensor& tensor) noexcept {
  return errors_.run([&] { network_.mark_debug(core(tensor), false); });
}

int32_t NetworkApi::getNbInputs() const noexcept {
  return static_cast<int32_t>(network_.inputs().size());
}

ITensor* NetworkApi::getInput(int32_t index) const noexcept {
  return errors_.guard<ITensor*>(
      nullptr, [&] { return tensor(element(network_.inputs(), index, "input")); });
}

int32_t NetworkApi::getNbOutputs() const noexcept {
  return static_cast<int32_t>(network_.outputs().size());
}

ITensor* NetworkApi::getOutput(int32_t index) const noexcept {
  return errors_.guard<ITensor*>(
      nullptr, [&] { return tensor(element(network_.outputs(), index, "output")); });
}

ILayer* NetworkApi::getLayer(int32_t index) const noexcept {
  return errors_.guard<ILayer*>(nullptr, [&] {
    require(index >= 0 && index < network_.num_layers(), "the network has no layer ", index,
            ": it has ", network_.num_layers());
    return layer(*network_.layer(index));
  });
}

IPluginV2Layer* NetworkApi::addPluginV2(ITensor* const* inputs, int32_t nbInputs,
                                        IPluginV2& plugin) noexcept {
  return added<IPluginV2Layer>([&] {
    std::vector<Tensor*> tensors;
    append(tensors, inputs, nbInputs, "addPluginV2, inputs");
    return network_.add_layer(make_plugin_v2_operator(plugin, nbInputs), tensors);
  });
}

IPluginV3Layer* NetworkApi::addPluginV3(ITensor* const* inputs, int32_t nbInputs,
                                        ITensor* const* shapeInputs, int32_t nbShapeInputs,
                                        IPluginV3& plugin) noexcept {
  return added<IPluginV3Layer>([&] {
    std::vector<Tensor*> tensors;
    append(tensors, inputs, nbInputs, "addPluginV3, inputs");
    append(tensors, shapeInputs, nbShapeInputs, "addPluginV3, shapeInputs");
    for (int32_t i = nbInputs; i < nbInputs + nbShapeInputs; ++i) {
      if (&tensors[i]->network() == &network_) make_shape_inputs(*tensors[i]);
    }
    return network_.add_layer(make_plugin_v3_operator(plugin, nbInputs, nbShapeInputs), tensors);
  });
}

ILayer* NetworkApi::addLayer(char const* method, impl::LayerValue const* arguments,
                             int32_t nbArguments) noexcept {
  return errors_.guard<ILayer*>(nullptr, [&] {
    const auto found = add_methods().find(method);
    require(found != add_methods().end(), "this library has no ", method,
            ": the program was compiled with headers of a later version");
    return layer(*found->second({*this, method, {arguments, arguments + nbArguments}}));
  });
}

}  // namespace opwright
