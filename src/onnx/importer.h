#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "control/element_bounds.h"
#include "control/known_elements.h"
#include "network/network.h"
#include "network/shape_source.h"
#include "onnx/model.h"
#include "onnx/names.h"
#include "onnx/node_error.h"
#include "operators/activation.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/layer_writer.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/pooling.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright::onnx {

class NodeImporter;

/// A body that becomes a network of its own, while its inputs are made.
struct BodyStart {
  NodeImporter& node;  ///< of the body's network
  Tensor* iteration;   ///< the number of the iteration, a scalar INT64
  std::vector<Tensor*> states;
  std::function<Tensor*(Tensor*)> capture;  ///< maps a tensor from outside to one in the body's
                                            ///< network
};

struct BodyNetwork {
  std::shared_ptr<Network> network;
  std::vector<Tensor*> captured;  ///< the outside tensors of its further inputs
  /// Inputs that are read only for their extents, from which shapes in the body follow.
  std::vector<const Tensor*> for_extents;
  std::vector<Value> outputs;
};

/// Takes over the graphs in a node's attributes.
class Bodies {
 public:
  /// Adds the body's nodes, with these values as its inputs. The names of its layers contain
  /// `part`. Returns its outputs. Throws ReportedError when one of its nodes failed.
  virtual std::vector<Value> add(const GraphProto& body, const std::string& part,
                                 std::span<const Value> inputs) = 0;
  /// Adds the body if that is possible. Otherwise returns nothing, keeps none of its nodes, and
  /// `problem` says why. Throws as add() does for unknown operators.
  virtual std::optional<std::vector<Value>> try_add(const GraphProto& body, const std::string& part,
                                                    std::string& problem) = 0;
  /// Reports the failures of try_add() again.
  virtual void report_failures() = 0;
  /// Adds the body as a network of its own, in which `start` makes the body's inputs. `states` are
  /// the values of the first iteration. `captured` are the outside tensors that another body of the
  /// layer reads.
  using Start = std::function<std::vector<Value>(BodyStart&)>;
  virtual BodyNetwork add_network(const GraphProto& body, std::span<Tensor* const> states,
                                  const Start& start, std::vector<Tensor*> captured) = 0;
  /// Known elements of tensors that follow from constants.
  virtual KnownElements& known() = 0;
  virtual const GivenBounds& upper_bounds() = 0;
  virtual ShapeSource shape_source() = 0;
  /// Whether anything in the model may read the node's output with this name.
  virtual bool is_read(const std::string& name) = 0;

 protected:
  ~Bodies() = default;
};

/// The problem is already among the parser's errors.
class ReportedError final : public Error {
 public:
  ReportedError() : Error(ErrorCode::kUNSUPPORTED_STATE, "ONNX: reported already") {}
};

/// One node while it is taken over: its inputs and attributes, and network calls that the operator
/// families share.
class NodeImporter : public LayerWriter {
 public:
  NodeImporter(Network& network, const NodeProto& node, std::string name, int64_t opset,
               Names& names, Bodies* bodies = nullptr)
      : LayerWriter(network, std::move(name)),
        node_(node),
        opset_(opset),
        names_(names),
        bodies_(bodies) {}

  const NodeProto& node() const { return node_; }
  int64_t opset() const { return opset_; }
  int num_inputs() const { return static_cast<int>(node_.inputs.size()); }
  int num_outputs() const { return static_cast<int>(node_.outputs.size()); }

  /// Null when the input is absent, or its value stands for an absent input of a function. Throws
  /// Error for a name that nothing has.
  const Value* optional_value(int index) const;
  /// Throws Error when the input is absent.
  const Value& value(int index) const;
  /// Throws Error when the input is absent or no sequence.
  const Sequence& sequence(int index = 0) const;
  /// Null when the input is absent. Throws Error for a value that is no tensor.
  Tensor* optional_input(int index) const;
  /// Throws Error when the input is absent.
  Tensor* input(int index = 0) const;
  bool has_output(int index) const {
    return index < num_outputs() && !node_.outputs[index].empty();
  }
  /// Whether anything in the model may read the output.
  bool is_read(int index) const {
    return has_output(index) && (bodies_ == nullptr || bodies_->is_read(node_.outputs[index]));
  }
  /// Binds an output. Does nothing for an output without a name.
  void set_output(int index, Value value);

  /// The engine's type for a number of TensorProto::DataType in an attribute.
  DataType element_type(std::string_view attribute, int64_t number) const;
  int64_t get_int(std::string_view attribute, int64_t otherwise) const;
  float get_float(std::string_view attribute, float otherwise) const;
  std::string get_text(std::string_view attribute, std::string otherwise) const;
  Ints get_ints(std::string_view attribute, Ints otherwise = {}) const;
  /// Null when the attribute is absent.
  const AttributeProto* attribute(std::string_view name, AttributeProto::Type type) const;

  /// The elements of an integer tensor as expressions. Throws Error, which says that they must be
  /// computable from shapes.
  std::vector<Expr> values(Tensor* tensor, std::string_view what) const;
  /// Whether the elements are known: constant, or computed from shapes.
  bool is_known(Tensor* tensor);
  /// An element of an integer tensor, if it is known.
  std::optional<Expr> known_element(Tensor* tensor, int64_t index);
  /// An element of a floating tensor that follows from constants, if it does.
  std::optional<float> known_number(Tensor* tensor, int64_t index) const;
  /// The elements of an integer tensor as extents. If data decides an element, it becomes a size
  /// tensor. Element i is at most `most[i]`. If `most` is empty, the bound follows from the way the
  /// element is computed; throws Error if it does not.
  std::vector<Expr> extents(Tensor* tensor, std::string_view what, std::span<const Expr> most = {});
  /// The same for a tensor of one element. An error names `origin`, from which the tensor is
  /// computed.
  Expr extent(Tensor* tensor, std::string_view what, const std::optional<Expr>& most = {},
              Tensor* origin = nullptr);
  /// The elements of a tensor of rank 0 or 1, each as a scalar of the type.
  std::vector<Tensor*> elements_of(Tensor* tensor, DataType dtype = DataType::kINT64);
  /// The elements of a constant integer tensor.
  Ints constant_ints(Tensor* tensor, std::string_view what) const;
  /// The elements of a small FP32 tensor as numbers that shapes decide.
  std::vector<Rational> rationals(Tensor* tensor, std::string_view what) const;
  /// The elements of a constant floating tensor.
  Floats constant_floats(Tensor* tensor, std::string_view what) const;
  // The same for tensors that must have one element.
  Expr single_value(Tensor* tensor, std::string_view what) const;
  Rational single_rational(Tensor* tensor, std::string_view what) const;
  int64_t constant_int(Tensor* tensor, std::string_view what) const;
  double constant_float(Tensor* tensor, std::string_view what) const;
  /// The elements of a tensor that follows from constants; empty for others.
  Blob known_elements(Tensor* tensor) const;
  /// The element of a boolean tensor with one element, if it is already known.
  std::optional<bool> known_bool(Tensor* tensor) const;
  /// The element of an integer tensor with one element, if it is already known.
  std::optional<int64_t> known_int(Tensor* tensor) const;

  /// The graph of an attribute. Throws Error when the attribute is missing.
  const GraphProto& body(std::string_view attribute) const;
  std::vector<Value> add_body(const GraphProto& body, const std::string& part,
                              std::span<const Value> inputs);
  std::optional<std::vector<Value>> try_add_body(const GraphProto& body, const std::string& part,
                                                 std::string& problem);
  /// Throws for the problems that try_add_body() found.
  [[noreturn]] void fail_bodies();
  BodyNetwork add_body_network(const GraphProto& body, std::span<Tensor* const> states,
                               const Bodies::Start& start, std::vector<Tensor*> captured = {});

  /// The axis counted from the front. Throws Error when it is out of [-rank, rank).
  int axis(int64_t axis, int rank) const;
  /// The same for several axes, each of which may be named once.
  Ints axes(Ints axes, int rank) const;
  /// The same for operators that only ask whether an axis is named.
  Ints axis_set(const Ints& axes, int rank) const;
  /// Throws Error unless low <= rank <= high.
  void require_rank(const Tensor* tensor, int low, int high = Dims::MAX_DIMS) const;
  /// The axes of an attribute or, from the opset `since` on, of an input; nullopt where both are
  /// absent.
  std::optional<Ints> axes_of(int rank, int64_t since, int input_index) const;

  template <class... Parts>
  [[noreturn]] void error_of(onnxparser::ErrorCode kind, const Parts&... parts) const {
    throw NodeError(kind, str("ONNX node '", name(), "' (", node_.op_type, "): ", parts...));
  }

  template <class... Parts>
  [[noreturn]] void error_of_names(const Parts&... parts) const {
    throw NodeError(onnxparser::ErrorCode::kINVALID_NODE,
                    str("ONNX node '", name(), "' (", node_.op_type, "): ", parts...), {}, true);
  }

  /// Throws the NodeError for an operand that has to be known. `problem` describes the operand as
  /// it is. The model's inputs behind it would have to be constant. `named` is the operand if
  /// `tensor` is computed from it.
  [[noreturn]] void error_needs(onnxparser::ErrorCode kind, Tensor* tensor, std::string_view what,
                                std::string_view problem, const Tensor* named = nullptr) const;

 private:
  template <class Elements>
  auto single(const Elements& elements, std::string_view what) const {
    if (elements.size() != 1) error(what, " has ", elements.size(), " elements; expected 1");
    return elements[0];
  }

  [[noreturn]] void fail(const std::string& problem) const override {
    error_of(onnxparser::ErrorCode::kINVALID_NODE, problem);
  }

  ShapeSource shape_source() const;
  Expr data_extent(Tensor* tensor, int64_t element, std::string_view what,
                   const std::optional<Expr>& most, Tensor* origin);

  const NodeProto& node_;
  int64_t opset_;
  Names& names_;
  Bodies* bodies_;
};

using NodeFunction = void (*)(NodeImporter&);
using NodeTable = std::unordered_map<std::string_view, NodeFunction>;

/// The window, the padding and the groups of a node that convolves `x`.
ConvolutionParams convolution_params(NodeImporter& node, Tensor* x);
/// The attributes of a node that pools images with as many axes as its input 0.
PoolingParams pooling_params(NodeImporter& node, PoolingType type);
/// Takes an LSTM with these weights over, with the node's other inputs and attributes.
void lstm_of(NodeImporter& node, Tensor* weights, Tensor* recurrent_weights);
/// [N, axes..., C] as [N, C, axes...].
Tensor* with_channels_first(NodeImporter& node, Tensor* x);
/// The opposite of with_channels_first().
Tensor* with_channels_last(NodeImporter& node, Tensor* x);

// One function per family of operators. Each adds its operators to the table.
void add_contrib(NodeTable& table);
void add_contrib_quantization(NodeTable& table);
void add_convolution(NodeTable& table);
void add_elementwise(NodeTable& table);
void add_activations(NodeTable& table);
void add_attention(NodeTable& table);
void add_einsum(NodeTable& table);
void add_matrix(NodeTable& table);
void add_quantization(NodeTable& table);
void add_recurrence(NodeTable& table);
void add_reductions(NodeTable& table);
void add_ngrams(NodeTable& table);
void add_normalizations(NodeTable& table);
void add_resize(NodeTable& table);
void add_shapes(NodeTable& table);
void add_movement(NodeTable& table);
void add_sources(NodeTable& table);
void add_control_flow(NodeTable& table);
void add_sequences(NodeTable& table);
void add_losses(NodeTable& table);
void add_signal(NodeTable& table);
void add_indexing(NodeTable& table);
void add_sampling(NodeTable& table);
void add_selection(NodeTable& table);
void add_scatter(NodeTable& table);
void add_tensorrt(NodeTable& table);

/// The operator of that name in the default domain or com.microsoft; null where there is none.
NodeFunction find_operator(std::string_view domain, std::string_view name);
/// The names of a domain's operators.
std::vector<std::string> operator_names(std::string_view domain);

}  // namespace opwright::onnx
