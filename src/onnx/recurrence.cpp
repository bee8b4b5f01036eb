// LSTM, GRU and RNN.

#include "operators/recurrence.h"

#include <algorithm>
#include <cctype>

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

struct ActivationName {
  std::string_view name;  ///< in lower case
  RecurrentActivation type;
  int parameters;      ///< how many of alpha and beta it takes
  double alpha, beta;  ///< defaults, if the node has none
};
constexpr ActivationName kActivations[] = {
    {"relu", RecurrentActivation::kRELU, 0, 0, 0},
    {"tanh", RecurrentActivation::kTANH, 0, 0, 0},
    {"sigmoid", RecurrentActivation::kSIGMOID, 0, 0, 0},
    {"affine", RecurrentActivation::kAFFINE, 2, 1, 0},
    {"leakyrelu", RecurrentActivation::kLEAKY_RELU, 1, 0.01, 0},
    {"thresholdedrelu", RecurrentActivation::kTHRESHOLDED_RELU, 1, 1, 0},
    {"scaledtanh", RecurrentActivation::kSCALED_TANH, 2, 1, 1},
    {"hardsigmoid", RecurrentActivation::kHARD_SIGMOID, 2, 0.2, 0.5},
    {"elu", RecurrentActivation::kELU, 1, 1, 0},
    {"softsign", RecurrentActivation::kSOFTSIGN, 0, 0, 0},
    {"softplus", RecurrentActivation::kSOFTPLUS, 0, 0, 0},
};

const ActivationName& activation_of(const NodeImporter& node, const std::string& given) {
  std::string lower = given;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const ActivationName& activation : kActivations)
    if (activation.name == lower) return activation;
  node.error("activation '", given, "' is not one of ONNX's: Relu, Tanh, Sigmoid, Affine, ",
             "LeakyRelu, ThresholdedRelu, ScaledTanh, HardSigmoid, Elu, Softsign, Softplus");
}

void set_activations(NodeImporter& node, RecurrenceParams& params) {
  const auto per_direction = static_cast<size_t>(activation_count(params.cell));
  std::vector<std::string> names;
  if (const auto* a = node.attribute("activations", AttributeProto::Type::kStrings))
    names = a->strings;
  if (names.empty()) {
    for (int i = 0; i < params.directions(); ++i) {
      if (params.cell != RecurrentCell::kRNN) names.push_back("Sigmoid");
      while (names.size() % per_direction != 0 || names.size() == i * per_direction)
        names.push_back("Tanh");
    }
  }
  if (names.size() != per_direction * params.directions())
    node.error("there are ", names.size(), " activations; expected ", per_direction,
               " for each of ", params.directions(), " directions");
  // The values belong in order to the activations that have such a parameter.
  const auto values = [&](std::string_view name) {
    const auto* a = node.attribute(name, AttributeProto::Type::kFloats);
    return a ? a->floats : std::vector<float>();
  };
  const std::vector<float> alphas = values("activation_alpha"), betas = values("activation_beta");
  size_t alpha = 0, beta = 0;
  for (const std::string& name : names) {
    const ActivationName& activation = activation_of(node, name);
    const auto take = [&](const std::vector<float>& given, size_t& next, int parameter,
                          double otherwise) {
      if (activation.parameters < parameter || next >= given.size()) return otherwise;
      return static_cast<double>(given[next++]);
    };
    params.activations.push_back(static_cast<int64_t>(activation.type));
    params.alphas.push_back(take(alphas, alpha, 1, activation.alpha));
    params.betas.push_back(take(betas, beta, 2, activation.beta));
  }
}

RecurrentDirection direction_of(const NodeImporter& node) {
  const std::string direction = node.get_text("direction", "forward");
  if (direction == "forward") return RecurrentDirection::kFORWARD;
  if (direction == "reverse") return RecurrentDirection::kREVERSE;
  if (direction == "bidirectional") return RecurrentDirection::kBIDIRECTIONAL;
  node.error("direction is '", direction, "'; expected forward, reverse or bidirectional");
}

/// Null weights: the node's.
template <RecurrentCell cell>
void recurrence(NodeImporter& node, Tensor* weights, Tensor* recurrent_weights) {
  RecurrenceParams params;
  params.cell = cell;
  params.direction = direction_of(node);
  set_activations(node, params);
  const auto* clip = node.attribute("clip", AttributeProto::Type::kFloat);
  if (clip != nullptr && !(clip->f > 0)) node.error("clip is ", clip->f, "; expected more than 0");
  params.clip = clip ? clip->f : 0;
  params.input_forget = cell == RecurrentCell::kLSTM && node.get_int("input_forget", 0) != 0;
  params.linear_before_reset =
      cell == RecurrentCell::kGRU && node.get_int("linear_before_reset", 0) != 0;
  const int64_t layout = node.get_int("layout", 0);
  if (layout != 0 && layout != 1) node.error("layout is ", layout, "; expected 0 or 1");

  const int count = cell == RecurrentCell::kLSTM ? 8 : 6;
  std::vector<Tensor*> inputs(count);
  inputs[0] = node.input(0);
  inputs[1] = weights != nullptr ? weights : node.input(1);
  inputs[2] = recurrent_weights != nullptr ? recurrent_weights : node.input(2);
  for (int i = 0; i < 3; ++i) node.require_rank(inputs[i], 3, 3);
  for (int i = 3; i < count; ++i) inputs[i] = node.optional_input(i);
  const SymShape& recurrent = inputs[2]->dims();
  const int64_t hidden = node.get_int("hidden_size", 0);
  if (hidden > 0 && recurrent[2].is_constant() && recurrent[2].constant() != hidden)
    node.error("hidden_size is ", hidden, ", but R has the shape ", str(recurrent));
  if (layout == 1)
    for (const int i : {0, 5, 6})
      if (i < count && inputs[i] != nullptr) {
        node.require_rank(inputs[i], 3, 3);
        inputs[i] = node.transpose(inputs[i], {1, 0, 2});
      }
  while (inputs.back() == nullptr) inputs.pop_back();

  Layer* layer = node.network().add<Recurrence>(params, inputs, node.next_name());
  for (int i = 0; i < (cell == RecurrentCell::kLSTM ? 3 : 2); ++i) {
    if (!node.has_output(i)) continue;
    Tensor* y = layer->output(i);
    if (layout == 1) y = node.transpose(y, i == 0 ? Ints{2, 0, 1, 3} : Ints{1, 0, 2});
    node.set_output(i, y);
  }
}

template <RecurrentCell cell>
void recurrence(NodeImporter& node) {
  recurrence<cell>(node, nullptr, nullptr);
}

}  // namespace

void lstm_of(NodeImporter& node, Tensor* weights, Tensor* recurrent_weights) {
  recurrence<RecurrentCell::kLSTM>(node, weights, recurrent_weights);
}

void add_recurrence(NodeTable& table) {
  table["GRU"] = recurrence<RecurrentCell::kGRU>;
  table["LSTM"] = recurrence<RecurrentCell::kLSTM>;
  table["RNN"] = recurrence<RecurrentCell::kRNN>;
}

}  // namespace opwright::onnx
