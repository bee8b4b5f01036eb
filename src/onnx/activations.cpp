#include <cmath>
#include <limits>

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

void clip(NodeImporter& node) {
  Tensor* x = node.input(0);
  if (node.opset() < 11) {
    node.set_output(0, node.activation(ActivationType::kCLIP, x,
                                       node.get_float("min", std::numeric_limits<float>::lowest()),
                                       node.get_float("max", std::numeric_limits<float>::max())));
    return;
  }
  Tensor *low = node.optional_input(1), *high = node.optional_input(2);
  const bool constant = (!low || low->info().constant) && (!high || high->info().constant);
  if (is_floating(x->dtype()) && constant) {
    const float infinity = std::numeric_limits<float>::infinity();
    const double least = low ? node.constant_float(low, "min") : -infinity;
    const double most = high ? node.constant_float(high, "max") : infinity;
    // A NaN bound makes all elements NaN, which the activation does not.
    if (!std::isnan(least) && !std::isnan(most)) {
      node.set_output(0, node.activation(ActivationType::kCLIP, x, static_cast<float>(least),
                                         static_cast<float>(most)));
      return;
    }
  }
  if (low) x = node.elementwise(ElementWiseOperation::kMAX, x, low);
  if (high) x = node.elementwise(ElementWiseOperation::kMIN, x, high);
  node.set_output(0, x);
}

/// Computes x * g(x).
void gated(NodeImporter& node, Tensor* gate) {
  node.set_output(0, node.elementwise(ElementWiseOperation::kPROD, node.input(0), gate));
}

void gelu(NodeImporter& node) {
  const std::string approximate = node.get_text("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    node.error("approximate is '", approximate, "'; expected 'none' or 'tanh'");
  node.set_output(0, node.activation(approximate == "tanh" ? ActivationType::kGELU_TANH
                                                           : ActivationType::kGELU_ERF,
                                     node.input(0)));
}

/// Computes max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), an ELU of x / alpha.
void celu(NodeImporter& node) {
  const float alpha = node.get_float("alpha", 1);
  Tensor* scaled = node.elementwise(ElementWiseOperation::kDIV, node.input(0), alpha);
  node.set_output(0, node.elementwise(ElementWiseOperation::kPROD,
                                      node.activation(ActivationType::kELU, scaled, 1), alpha));
}

/// Gives zero near zero, and values closer to zero elsewhere.
void shrink(NodeImporter& node) {
  Tensor* x = node.input(0);
  const DataType type = x->dtype();
  const double bias = node.get_float("bias", 0), limit = node.get_float("lambd", 0.5f);
  if (!is_floating(type)) x = node.cast(x, DataType::kFLOAT);
  Tensor* zero = node.scalar(0, x->dtype());
  Tensor* y = node.add<Select>({}, {node.elementwise(ElementWiseOperation::kGREATER, x, limit),
                                    node.elementwise(ElementWiseOperation::kSUB, x, bias), zero});
  y = node.add<Select>({}, {node.elementwise(ElementWiseOperation::kLESS, x, -limit),
                            node.elementwise(ElementWiseOperation::kSUM, x, bias), y});
  node.set_output(0, node.cast(y, type));
}

}  // namespace

void add_activations(NodeTable& table) {
  table["Softplus"] = [](NodeImporter& n) {
    n.set_output(0, n.activation(ActivationType::kSOFTPLUS, n.input(0), 1, 1));
  };
  table["LeakyRelu"] = [](NodeImporter& n) {
    n.set_output(
        0, n.activation(ActivationType::kLEAKY_RELU, n.input(0), n.get_float("alpha", 0.01f)));
  };
  table["Elu"] = [](NodeImporter& n) {
    n.set_output(0, n.activation(ActivationType::kELU, n.input(0), n.get_float("alpha", 1)));
  };
  table["Selu"] = [](NodeImporter& n) {
    n.set_output(0, n.activation(ActivationType::kSELU, n.input(0),
                                 n.get_float("alpha", 1.67326319217681884765625f),
                                 n.get_float("gamma", 1.05070102214813232421875f)));
  };
  table["HardSigmoid"] = [](NodeImporter& n) {
    n.set_output(0, n.activation(ActivationType::kHARD_SIGMOID, n.input(0),
                                 n.get_float("alpha", 0.2f), n.get_float("beta", 0.5f)));
  };
  table["ThresholdedRelu"] = [](NodeImporter& n) {
    n.set_output(
        0, n.activation(ActivationType::kTHRESHOLDED_RELU, n.input(0), n.get_float("alpha", 1)));
  };
  table["HardSwish"] = [](NodeImporter& n) {
    gated(n, n.activation(ActivationType::kHARD_SIGMOID, n.input(0), 1.0f / 6, 0.5f));
  };
  table["Mish"] = [](NodeImporter& n) {
    gated(n, n.activation(ActivationType::kTANH,
                          n.activation(ActivationType::kSOFTPLUS, n.input(0), 1, 1)));
  };
  table["Swish"] = [](NodeImporter& n) {
    n.set_output(0, n.swish(n.input(0), n.get_float("alpha", 1)));
  };
  table["SwiGLU"] = [](NodeImporter& n) {
    n.set_output(0, n.elementwise(ElementWiseOperation::kPROD,
                                  n.swish(n.input(0), n.get_float("alpha", 1)), n.input(1)));
  };
  table["Shrink"] = shrink;
  table["Celu"] = celu;
  table["Clip"] = clip;
  table["Gelu"] = gelu;
  table["PRelu"] = [](NodeImporter& n) {
    n.set_output(0, n.add<ParametricRelu>({}, {n.input(0), n.input(1)}));
  };
}

}  // namespace opwright::onnx
