#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error_report.h"
#include "network/model_metadata.h"
#include "network/operator.h"
#include "network/region.h"
#include "network/weight_names.h"
#include "opwright/layer.h"

namespace opwright {

class Expansion;
class IPluginRegistry;
class Layer;
class Network;

/// A tensor of a network that is being defined. Its Network owns it; addresses are stable. Type and
/// shape are inferred on demand. While a layer does not fit, queries that depend on it throw its
/// Error.
class Tensor {
 public:
  const std::string& name() const { return name_; }
  /// Names are unique within a network; throws Error when another tensor has this one.
  void set_name(std::string name);
  DataType dtype() const { return info().dtype; }
  const SymShape& dims() const { return info().dims; }
  /// Extents, -1 where not constant.
  Shape shape() const;
  int rank() const { return static_cast<int>(info().dims.size()); }
  const TensorInfo& info() const;
  Network& network() const { return *network_; }
  /// The layer that makes the tensor; null for network inputs.
  Layer* producer() const { return producer_; }
  int producer_output() const { return producer_output_; }
  /// The number of layers' inputs that read the tensor.
  int num_users() const { return static_cast<int>(users_.size()); }
  /// The layers that read the tensor. A layer that reads it twice is in the list twice.
  std::span<Layer* const> users() const { return users_; }
  /// The producer's input whose memory the tensor shares (an in-place output), or -1.
  int aliased_input() const;
  bool is_network_input() const { return is_input_; }
  bool is_network_output() const { return is_output_; }
  /// Whether Network::mark_debug() marked it.
  bool is_debug() const { return is_debug_; }
  /// Whether its elements are known when shapes are known, and its rank is 0 or 1.
  bool is_shape_tensor() const { return info().values != nullptr && rank() <= 1; }
  /// Whether it is a network input whose elements determine shapes.
  bool is_shape_input() const { return is_shape_input_; }
  /// Names a dimension; network inputs only. Equal names mean equal extents at run time. An empty
  /// name removes the name.
  void set_dimension_name(int index, std::string name);
  /// The name that was set, or empty.
  std::string dimension_name(int index) const;
  /// Sets the shape of a network input. For other tensors, throws Error if it would change.
  /// Everything that depends on the tensor is inferred again on demand.
  void set_shape(const Shape& shape);
  /// Sets the type of a network input. In weakly typed networks, outputs get the type as their
  /// stored_type(). So does an input whose layers would no longer fit; for the layers it keeps its
  /// type.
  void set_dtype(DataType dtype);
  /// The range of values that INT8 elements of this tensor cover, symmetric about 0. With it, a
  /// weakly typed network that allows INT8 can quantize the tensor for plugins. Throws Error unless
  /// min <= max, both are finite, and one of them is not 0.
  void set_dynamic_range(float min, float max);
  void reset_dynamic_range() { dynamic_range_.reset(); }
  const std::optional<std::pair<float, float>>& dynamic_range() const { return dynamic_range_; }
  /// The step of INT8 elements, max(|min|, |max|) / 127; 0 without a range.
  float scale() const;
  /// A bit per TensorFormat. Network inputs and outputs only.
  uint32_t allowed_formats() const { return allowed_formats_; }
  /// Whether set_allowed_formats() was called.
  bool has_allowed_formats() const { return has_allowed_formats_; }
  void set_allowed_formats(uint32_t formats);
  /// The type in which the layer stores the tensor, in weakly typed networks. An output of the
  /// network has this type. On other tensors it is a constraint like Layer::precision().
  const std::optional<DataType>& stored_type() const { return stored_type_; }
  /// Throws Error if the elements cannot be stored in the type: the type or the tensor is not
  /// floating.
  void set_stored_type(DataType dtype);
  void reset_stored_type() { stored_type_.reset(); }
  /// The tensor's type in an engine, as far as the network determines it: stored_type(), or
  /// dtype().
  DataType engine_type() const { return stored_type_ ? *stored_type_ : dtype(); }

 private:
  friend class Expansion;
  friend class Network;
  friend class Layer;
  Tensor(Network& network, std::string name) : network_(&network), name_(std::move(name)) {}

  Network* network_;
  std::string name_;
  TensorInfo info_;
  Layer* producer_ = nullptr;
  int producer_output_ = 0;
  std::vector<Layer*> users_;  // a layer that uses the tensor twice is in the list twice
  int aliased_input_ = -1;
  bool is_input_ = false;
  bool is_output_ = false;
  bool is_debug_ = false;
  bool is_shape_input_ = false;
  Shape declared_shape_;                      // network inputs: -1 where dynamic
  std::vector<std::string> dimension_names_;  // network inputs
  std::optional<std::pair<float, float>> dynamic_range_;
  std::optional<DataType> stored_type_;
  uint32_t allowed_formats_ = 1u << static_cast<int>(TensorFormat::kLINEAR);
  bool has_allowed_formats_ = false;
};

/// An operator applied to tensors. The operator is immutable; a change of a layer's parameters
/// gives the layer another operator. Then this layer and all layers downstream are inferred again
/// on demand. A layer is inferred at once if its operator does not know its number of outputs, as
/// operators of plugins.
class Layer {
 public:
  virtual ~Layer() = default;
  const std::string& name() const { return name_; }
  /// Names need not be unique.
  void set_name(std::string name);
  const std::string& metadata() const { return metadata_; }
  void set_metadata(std::string metadata) { metadata_ = std::move(metadata); }
  /// The requested kind of layer where the operator does not tell: kPADDING of a slice.
  const std::optional<LayerType>& added_as() const { return added_as_; }
  void set_added_as(LayerType type) { added_as_ = type; }
  /// The type for computing floating inputs in weakly typed networks. Builds follow
  /// BuilderConfig::constraints.
  const std::optional<DataType>& precision() const { return precision_; }
  void set_precision(DataType type);
  /// precision(), or the type of the first floating input or output, or of the first input.
  DataType computed_in() const;
  void reset_precision() { precision_.reset(); }
  const OperatorPtr& op() const { return op_; }
  Network& network() const { return *network_; }
  /// The layer's index in the network.
  int number() const { return index_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  /// Null for an optional input that is absent.
  Tensor* input(int index) const;
  Tensor* output(int index) const;
  std::span<Tensor* const> inputs() const { return inputs_; }
  std::span<Tensor* const> outputs() const { return outputs_; }
  /// Replaces an input, or appends when `index` is num_inputs() or more (gaps become absent
  /// inputs). Throws Error, and changes nothing, when the tensor depends on this layer, or when the
  /// layer is inferred at once and that fails.
  void set_input(int index, Tensor* tensor);
  /// Replaces the operator. Changes nothing if the layer is inferred at once and that throws.
  void set_op(OperatorPtr op);
  /// Infers the outputs and everything that they depend on, if that is outstanding. Throws Error
  /// naming the layer that does not fit.
  void infer();

 protected:
  friend class Expansion;
  friend class Network;
  friend class Tensor;
  Layer() = default;

 private:
  /// Called after a change. `undo` reverts the change if it is refused.
  template <class Undo>
  void changed(Undo&& undo);

  Network* network_ = nullptr;
  int index_ = 0;  // in the network
  std::string name_;
  std::string metadata_;
  std::optional<LayerType> added_as_;
  std::optional<DataType> precision_;
  OperatorPtr op_;
  std::vector<Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
  // Whether the outputs are up to date. Then all layers upstream are, too.
  bool inferred_ = false;
};

inline const TensorInfo& Tensor::info() const {
  if (producer_ != nullptr && !producer_->inferred_) producer_->infer();
  return info_;
}

/// A base class that several classes of layers share in the languages: `LayerBase` of their
/// operators.
template <class Op>
struct LayerBaseOf {
  using Type = Layer;
};
template <class Op>
requires requires { typename Op::LayerBase; }
struct LayerBaseOf<Op> {
  using Type = typename Op::LayerBase;
};

/// The layer of an operator class. The languages see it as a class.
template <class Op>
class TypedLayer : public LayerBaseOf<Op>::Type {
 public:
  const typename Op::Params& params() const { return static_cast<const Op&>(*this->op()).params(); }
};

struct NetworkFlags {
  bool strongly_typed = false;
  bool prefer_aot_python_plugins = false;
  bool prefer_jit_python_plugins = false;
  uint32_t bits = 0;  ///< 1 << NetworkDefinitionCreationFlag, as given
};
/// Reads bits 1 << NetworkDefinitionCreationFlag.
NetworkFlags network_flags(uint32_t bits);

/// A network that is being defined: tensors and layers. Types and shapes are inferred on demand,
/// each once until something upstream changes.
class Network {
 public:
  /// `plugins` is the registry in which models look up plugins (null: the process's). `log` and the
  /// recorder of errors() hear of failures.
  explicit Network(NetworkFlags flags = {}, std::shared_ptr<IPluginRegistry> plugins = nullptr,
                   Log log = {});
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// `shape` has -1 for extents that are only known at run time. Throws Error for a name in use, a
  /// rank above 8 or an extent below -1.
  Tensor* add_input(std::string name, DataType dtype, const Shape& shape);
  /// Marks the tensor as an output. Throws Error when it is an output already or is a network
  /// input.
  void mark_output(Tensor& tensor);
  void unmark_output(Tensor& tensor);
  /// Marks a tensor whose elements are known when shapes are known. For all others, returns false
  /// and does nothing.
  bool mark_output_for_shapes(Tensor& tensor);
  /// Reverts mark_output_for_shapes(); false if the tensor is no such output.
  bool unmark_output_for_shapes(Tensor& tensor);
  /// Removes a network input that no layer uses. For other tensors, warns and does nothing.
  void remove_tensor(Tensor& tensor);
  /// Marks a debug tensor. It can be seen by its name when an engine runs, so the engine computes
  /// it as it is here. Throws Error for a tensor of another network.
  void mark_debug(Tensor& tensor, bool debug = true);
  bool is_debug(const Tensor& tensor) const {
    return &tensor.network() == this && tensor.is_debug();
  }
  /// Whether all tensors that the engine's steps write can be seen, too, under their names in the
  /// engine.
  void set_unfused_debug(bool debug) { unfused_debug_ = debug; }
  bool unfused_debug() const { return unfused_debug_; }

  /// Adds a layer of the class that fits the operator. Throws Error, and adds nothing, when a
  /// tensor belongs to another network, or when the layer is inferred at once (see Layer) and that
  /// fails. A null input is an absent optional one. An empty name becomes "Kind 12".
  Layer* add_layer(OperatorPtr op, std::span<Tensor* const> inputs, std::string name = {});
  template <class Op>
  TypedLayer<Op>* add(typename Op::Params params, std::span<Tensor* const> inputs,
                      std::string name = {}) {
    auto made = std::make_unique<TypedLayer<Op>>();
    auto* added = made.get();
    std::unique_ptr<Layer> layer = std::move(made);
    OperatorPtr op = std::make_shared<Op>(std::move(params));
    insert(std::move(layer), std::move(op), inputs, std::move(name));
    return added;
  }
  template <class Op>
  TypedLayer<Op>* add(typename Op::Params params, std::initializer_list<Tensor*> inputs,
                      std::string name = {}) {
    return add<Op>(std::move(params), std::span(inputs.begin(), inputs.size()), std::move(name));
  }
  /// Removes the layers from this index on. Throws Error if a remaining layer uses their outputs,
  /// or the network outputs one of them.
  void remove_layers_from(int first);
  /// A constant; `data` holds its dense elements (checked against the shape).
  Tensor* add_constant(DataType dtype, const Shape& shape, Blob data, std::string name = {});
  /// A one-dimensional INT64 (or `dtype`) tensor whose elements are the expressions. Parsers pass
  /// computed shapes to layers with it. With `scalar` (one expression only) it has rank 0.
  Tensor* add_values(std::vector<Expr> values, DataType dtype = DataType::kINT64,
                     bool scalar = false, std::string name = {});
  /// Adds a region, such as a loop, which owns no layers yet.
  template <class R>
  R* add_region(std::unique_ptr<R> region) {
    R* const added = region.get();
    regions_.push_back(std::move(region));
    return added;
  }
  std::span<const std::unique_ptr<Region>> regions() const { return regions_; }
  /// Declares whether the elements of this integer network input (rank 0 or 1, constant extent)
  /// determine shapes. If so, gives them symbols.
  void make_shape_input(Tensor& tensor, bool decides_shapes = true);

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  /// Metadata of the model that the network was made from.
  const ModelMetadata& metadata() const { return metadata_; }
  void set_metadata(ModelMetadata metadata) { metadata_ = std::move(metadata); }
  const NetworkFlags& flags() const { return flags_; }
  IPluginRegistry* plugins() const { return plugins_.get(); }
  /// The builder that made the network, for information only.
  void* builder() const { return builder_; }
  void set_builder(void* builder) { builder_ = builder; }
  ErrorReport& errors() const { return errors_; }
  std::span<Tensor* const> inputs() const { return inputs_; }
  std::span<Tensor* const> outputs() const { return outputs_; }
  /// Layers in the order in which they were added. After Layer::set_input a layer may depend on
  /// later ones; see topological_order().
  int num_layers() const { return static_cast<int>(layers_.size()); }
  Layer* layer(int index) const { return layers_[index].get(); }
  /// All layers, each after those that it depends on; otherwise in the order in which they were
  /// added.
  std::vector<Layer*> topological_order() const;
  /// Null if no tensor has that name.
  Tensor* find_tensor(std::string_view name) const;
  /// Infers everything that is outstanding. Throws Error for the first layer that does not fit.
  void infer() const;
  /// Whether all layers fit.
  bool fits() const;
  const SymbolTable& symbols() const { return symbols_; }
  SymbolTable& symbols() { return symbols_; }
  WeightNames& weight_names() { return weight_names_; }
  const WeightNames& weight_names() const { return weight_names_; }

 private:
  friend class Expansion;
  friend class Tensor;
  friend class Layer;
  class Edit;
  class LayerInference;

  void insert(std::unique_ptr<Layer> layer, OperatorPtr op, std::span<Tensor* const> inputs,
              std::string name);
  void check_usable(const Tensor& tensor) const;
  Tensor* new_tensor(std::string name);
  void rename(Tensor& tensor, std::string name);
  std::string unused_tensor_name(const std::string& wanted) const;
  bool depends_on(const Tensor& tensor, const Layer& layer) const;
  /// Gives all inputs the symbols of their dynamic extents, and shape inputs those of their
  /// elements.
  void bind_inputs(Edit& edit);
  bool bind_new_input(Tensor& tensor);
  bool bind_first_name(Tensor& tensor, int axis, const std::string& name);
  bool bind_shape(Tensor& tensor, const Shape& shape);
  bool has_given_name(const Tensor& tensor, int axis) const;
  /// Infers the layers that this one depends on, then this layer.
  void infer(Layer& layer);
  /// Infers one layer whose inputs are inferred. Changes nothing if that throws.
  void infer_outputs(Layer& layer);
  void resize_outputs(Layer& layer, size_t count);
  template <class Function>
  static void each_source(const Layer& layer, Function&& function);
  /// Marks the layer, or the tensor's users, and all layers downstream to be inferred again.
  void invalidate(Layer& layer);
  void invalidate_users(const Tensor& tensor);

  NetworkFlags flags_;
  std::shared_ptr<IPluginRegistry> plugins_;
  void* builder_ = nullptr;
  mutable ErrorReport errors_;  ///< not a part of the definition
  std::string name_;
  ModelMetadata metadata_;
  SymbolTable symbols_;
  WeightNames weight_names_;
  std::deque<std::unique_ptr<Tensor>> tensors_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
  std::unordered_map<std::string, Tensor*> by_name_;
  std::unordered_set<std::string> given_names_;  // of dimensions, even if later names replaced them
  /// For each name, the first number that may be unused as its suffix.
  mutable std::unordered_map<std::string, int> next_suffix_;
  std::unordered_set<std::string> layer_names_;
  bool in_order_ = true;  // no layer depends on a later one
  bool unfused_debug_ = false;
};

}  // namespace opwright
