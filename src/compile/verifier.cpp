#include "compile/verifier.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <random>
#include <span>
#include <utility>

#include "backend/backend.h"
#include "backend/tensor_scan.h"
#include "base/error.h"
#include "base/half.h"
#include "base/types.h"
#include "compile/candidate_failure.h"
#include "compile/run_check.h"
#include "compile/timed_kernels.h"
#include "network/domain_guard.h"
#include "operators/convolution.h"
#include "operators/host_run.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/pointwise.h"
#include "operators/pooling.h"
#include "plugin/model/plugin_operator.h"

namespace opwright {
namespace {

constexpr int kDisturbances = 3;
// Factor on the changes by disturbed operands that gives the allowed difference.
constexpr double kMagnified = 16;

/// Half the distance between neighbours, relative; 0 for types that are exact.
double rounding_error(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return 0x1p-24;
    case DataType::kHALF:
      return 0x1p-11;
    case DataType::kBF16:
      return 0x1p-8;
    case DataType::kFP8:
      return 0x1p-4;
    default:
      return 0;
  }
}
// Relative error of operands that products round to TF32, some of them towards 0.
constexpr double kTf32Error = 0x1p-10;

double largest(DataType type) {
  return type == DataType::kHALF  ? 65504
         : type == DataType::kFP8 ? 448
                                  : std::numeric_limits<float>::max();
}

bool is_common_float(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
}

/// The type in which elements are compared.
DataType compared_type(DataType type) { return is_common_float(type) ? DataType::kFLOAT : type; }

/// Whether elements of the type can be drawn and compared.
bool is_comparable(DataType type) {
  return is_common_float(type) || type == DataType::kINT8 || type == DataType::kUINT8 ||
         type == DataType::kINT32 || type == DataType::kINT64 || type == DataType::kBOOL;
}

Blob floats(const std::vector<float>& values) {
  return Blob::copy(values.data(), values.size() * sizeof(float));
}

/// Multiples of 1/64 below 4, about normally distributed. FP16 and BF16 represent them exactly.
std::vector<float> normal_floats(int64_t count, uint64_t seed) {
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal;
  // Drawing numbers is slow, compared with running the kernel.
  constexpr int64_t kDrawn = 65521;
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] =
        i < kDrawn ? std::clamp(std::round(normal(generator) * 64), -255.0F, 255.0F) / 64
                   : values[static_cast<size_t>(i - kDrawn)];
  return values;
}

/// Values at the ends of the types' ranges, and denormal ones in FP16.
std::vector<float> extreme_floats(int64_t count, uint64_t seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kValues[] = {0,
                               -0.0F,
                               1,
                               1,
                               -1,
                               0x1p-20F,
                               -0x1p-20F,
                               32768,
                               -32768,
                               kInfinity,
                               -kInfinity,
                               0.5F,
                               std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = kValues[generator() % std::size(kValues)];
  return values;
}

/// Whether all elements are finite and differ by no more than `of_most` times the largest one.
bool are_near(std::span<const float> values, std::span<const float> expected, double of_most) {
  float most = 0, difference = 0, sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    most = std::max(most, std::abs(expected[i]));
    difference = std::max(difference, std::abs(values[i] - expected[i]));
    sum += 0 * (values[i] + expected[i]);  // NaN if one is not finite
  }
  return sum == 0 && difference <= of_most * most;
}

Blob integers(DataType type, int64_t count, int64_t least, int64_t most, uint64_t seed) {
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t& value : values)
    value = least + static_cast<int64_t>(generator()) % (most - least + 1);
  return dense_values(values, type);
}

/// The node without its fused program, and the program as a second node. Null where the node has no
/// program.
template <class Op>
std::unique_ptr<const FusedParts> split_as(const GraphNode& node) {
  const Op* op = node.as<Op>();
  if (op == nullptr || !op->params().fused.present()) return nullptr;
  auto params = op->params();
  const FusedProgram fused = std::exchange(params.fused, {});
  auto parts = std::make_unique<FusedParts>();
  auto& [product, program] = parts->nodes;
  GraphValue& between = parts->between;
  product.name = program.name = between.name = node.name;
  product.op = std::make_shared<Op>(std::move(params));
  program.op = std::make_shared<Pointwise>(fused.program);
  const auto count = static_cast<long>(node.inputs.size()) - fused.inputs();
  product.inputs.assign(node.inputs.begin(), node.inputs.begin() + count);
  product.outputs = {&between};
  program.inputs.assign(node.inputs.begin() + count, node.inputs.end());
  program.inputs.insert(program.inputs.begin(), &between);
  program.outputs = node.outputs;
  between.info.dims = node.outputs[0]->info.dims;
  const DataType type = node.inputs[0]->info.dtype;
  between.info.dtype = is_integer(type) ? DataType::kINT32 : type;
  between.producer = &product;
  return parts;
}

std::unique_ptr<const FusedParts> split(const GraphNode& node) {
  for (auto* each : {split_as<Convolution>, split_as<Deconvolution>, split_as<MatrixMultiply>})
    if (auto parts = each(node)) return parts;
  return nullptr;
}

}  // namespace

bool Verifier::wants(const GraphNode& node) const { return node_ == &node && is_steady_; }

void Verifier::start(const GraphNode& node, size_t candidates) {
  node_ = nullptr;
  reference_.reset();
  parts_.reset();
  inputs_.clear();
  expected_.clear();
  is_asked_ = false;
  is_steady_ = true;
  const PluginModel* const plugin = node.op->plugin();
  is_plugin_ = plugin != nullptr;
  const bool has_reference = is_plugin_ && plugin->reference(device_.type()).has_value();
  if (config_.verification == VerificationLevel::kPLUGINS && !is_plugin_) return;
  if (is_plugin_ && candidates < 2 && !has_reference) return;
  if (is_plugin_ && !plugin->is_repeatable()) return;
  // Sizes that a run computes from data are not known before the run.
  if (node.defines_sizes() || !node.op->bodies().empty() || node.op->communicates()) return;
  if (!is_plugin_ && (node.is_random() || node.as<Reformat>() || node.as<Reshape>())) return;
  for (const auto& list : {node.inputs, node.outputs})
    for (const GraphValue* value : list)
      if (value != nullptr && !value->is_constant() && !is_comparable(value->info.dtype)) return;
  node_ = &node;
  parts_ = split(node);
  if (has_reference) find_reference();
}

/// Sets the plugin's other way to compute the same, in the network's own types.
void Verifier::find_reference() {
  Way way;
  way.node = node_;
  way.device = &device_;
  way.ports = network_ports(*node_, ranges_);
  for (const PortDesc& port : way.ports.inputs) way.candidate.inputs.push_back(port.type);
  for (const PortDesc& port : way.ports.outputs) way.candidate.outputs.push_back(port.type);
  KernelArgs args;
  args.layer = node_->name;
  args.candidate = &way.candidate;
  args.inputs = way.ports.inputs;
  args.outputs = way.ports.outputs;
  args.device = &device_;
  args.services = &config_.services;
  const PluginModel::Reference reference = *node_->op->plugin()->reference(device_.type());
  way.op = std::make_shared<PlannedPlugin>(reference.model->configure(args), node_->name);
  way.name = reference.name;
  is_asked_ = reference.is_declared;
  reference_ = std::move(way);
}

/// The CPU's kernels in FP32, with constants that are rounded as the candidate rounds them.
std::optional<Verifier::Way> Verifier::host_reference(const NodePorts& typed) const {
  std::vector<DataType> stored;
  for (const PortDesc& port : typed.inputs) stored.push_back(port.type.dtype);
  if (parts_ == nullptr) return host_way(*node_, stored);
  const auto& [product, program] = parts_->nodes;
  std::optional<Way> way = host_way(product, std::span(stored).first(product.inputs.size()));
  if (!way) return way;
  stored.erase(stored.begin(), stored.begin() + static_cast<long>(product.inputs.size()));
  stored.insert(stored.begin(), parts_->between.info.dtype);
  std::optional<Way> next = host_way(program, stored);
  if (!next) return next;
  way->next = std::make_shared<Way>(std::move(*next));
  return way;
}

std::optional<Verifier::Way> Verifier::host_way(const GraphNode& node,
                                                std::span<const DataType> stored) const {
  Way way;
  way.node = &node;
  way.device = &get_device(DeviceType::kCPU);
  way.ports = network_ports(node, ranges_);
  for (auto* list : {&way.ports.inputs, &way.ports.outputs})
    for (PortDesc& port : *list) {
      port.min = port.max = port.opt;
      port.type = {compared_type(port.type.dtype), TensorFormat::kLINEAR};
    }
  for (size_t i = 0; i < way.ports.inputs.size(); ++i) {
    PortDesc& port = way.ports.inputs[i];
    if (!port.present || !port.is_constant) continue;
    port.constant = as_type(constants_.dense(*node.inputs[i], stored[i]), stored[i],
                            port.type.dtype, port.opt.numel(), node.inputs[i]->scale);
  }
  std::vector<DroppedCandidate> dropped;
  CandidateQuery query;
  query.layer = node.name;
  query.inputs = way.ports.inputs;
  query.outputs = way.ports.outputs;
  query.device = way.device;
  query.strongly_typed = true;
  query.all_tactics = true;
  query.dropped = &dropped;
  try {
    for (Candidate& candidate : node.op->candidates(query)) {
      const auto fits = [](const std::vector<PortType>& types, const std::vector<PortDesc>& ports) {
        for (size_t i = 0; i < types.size(); ++i)
          if (ports[i].present && types[i] != ports[i].type) return false;
        return types.size() == ports.size();
      };
      if (!fits(candidate.inputs, way.ports.inputs) || !fits(candidate.outputs, way.ports.outputs))
        continue;
      way.candidate = std::move(candidate);
      KernelArgs args;
      args.layer = node.name;
      args.candidate = &way.candidate;
      args.inputs = way.ports.inputs;
      args.outputs = way.ports.outputs;
      args.device = way.device;
      args.services = &config_.services;
      way.op = node.op->plan(args);
      way.name = "the CPU's kernel in FP32";
      return way;
    }
  } catch (const Error& error) {
    config_.log.verbose("Layer '", node.name, "' cannot be verified: ", error.what());
    return std::nullopt;
  }
  config_.log.verbose("Layer '", node.name,
                      "' cannot be verified: the CPU has no kernel for FP32 and LINEAR tensors");
  return std::nullopt;
}

Verifier::Tensors Verifier::draw(Draw which) const {
  const NodePorts ports = network_ports(*node_, ranges_);
  // A plugin does not say which inputs have indices. Integers stay within all extents.
  int64_t least = 2;
  bool has_floats = false;
  for (const PortDesc& port : ports.inputs) {
    if (!port.present || !is_floating(port.type.dtype)) continue;
    for (const int64_t extent : port.opt) {
      least = has_floats ? std::min(least, extent) : extent;
      has_floats = true;
    }
  }
  least = std::clamp<int64_t>(least, 1, 100);
  Tensors tensors;
  for (size_t i = 0; i < ports.inputs.size(); ++i) {
    const PortDesc& port = ports.inputs[i];
    Blob& blob = tensors.emplace_back();
    if (!port.present || port.is_constant) continue;
    const int64_t count = port.opt.numel();
    const DataType type = port.type.dtype;
    const uint64_t seed = 20251201 + i;
    if (is_common_float(type)) {
      blob =
          floats(which == Draw::kNormal ? normal_floats(count, seed) : extreme_floats(count, seed));
    } else if (type == DataType::kINT8) {
      blob = integers(type, count, -128, 127, seed);
    } else if (type == DataType::kUINT8) {
      blob = integers(type, count, 0, 255, seed);
    } else {
      const int64_t limit =
          node_->op->index_limit(static_cast<int>(i), ports.inputs, ports.outputs);
      blob = integers(type, count, 0, type == DataType::kBOOL ? 1 : (limit > 0 ? limit : least) - 1,
                      seed);
    }
  }
  return tensors;
}

Verifier::Tensors Verifier::disturbed(const Tensors& tensors, double error, uint32_t seed) const {
  std::mt19937 generator(seed);
  Tensors result = tensors;
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i].empty() || !is_common_float(node_->inputs[i]->info.dtype)) continue;
    const auto count = result[i].size() / sizeof(float);
    std::vector<float> values(result[i].as<float>(), result[i].as<float>() + count);
    for (float& value : values)
      value = static_cast<float>(value * ((generator() & 1) != 0 ? 1 + 2 * error : 1 - 2 * error));
    result[i] = floats(values);
  }
  return result;
}

Verifier::Tensors Verifier::run(const Way& way, const Tensors& inputs) {
  const GraphNode& node = *way.node;
  const Device& host = get_device(DeviceType::kCPU);
  const Device& device = *way.device;
  KernelArgs args;
  args.layer = node.name;
  args.candidate = &way.candidate;
  args.inputs = way.ports.inputs;
  args.outputs = way.ports.outputs;
  args.device = &device;
  args.services = &config_.services;
  const std::unique_ptr<Kernel> kernel = way.op->make_kernel(args);
  // Memory of the device that is tuned for, or of the host.
  std::optional<TimingMemory> host_memory;
  if (&device != &device_) host_memory.emplace(device);
  TimingMemory& memory = host_memory ? *host_memory : memory_;
  std::vector<Shape> in_shapes, out_shapes;
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<Blob> known;
  for (size_t i = 0; i < way.ports.inputs.size(); ++i) {
    const PortDesc& port = way.ports.inputs[i];
    in_shapes.push_back(port.opt);
    if (!port.present) {
      in.push_back(nullptr);
      continue;
    }
    const GraphValue& value = *node.inputs[i];
    const int number = static_cast<int>(i);
    std::vector<int64_t> elements;
    if (value.info.values != nullptr &&
        (port.is_constant || value.is_values() || way.op->is_shape_input(number)))
      for (const Expr& element : *value.info.values) elements.push_back(ranges_.opt(element));
    if (!elements.empty() && way.op->is_shape_input(number))
      kernel->on_values_change(number, elements);
    if (port.is_constant) {
      known.push_back(host_memory ? port.constant : constants_.stored(value, port.type));
      in.push_back(memory.constant(known.back()));
    } else if (!elements.empty()) {
      in.push_back(memory.input(number, dense_values(elements, port.type.dtype)));
    } else {
      const DataType drawn = compared_type(value.info.dtype);
      const Blob dense = as_type(inputs[i], drawn, port.type.dtype, port.opt.numel(), value.scale);
      in.push_back(memory.input(number, laid_out(host, dense, port.opt, port.type, value.name)));
    }
  }
  for (size_t i = 0; i < way.ports.outputs.size(); ++i) {
    const PortDesc& port = way.ports.outputs[i];
    out_shapes.push_back(port.opt);
    const int aliased = node.aliased_input(static_cast<int>(i));
    out.push_back(aliased >= 0 ? const_cast<void*>(in[static_cast<size_t>(aliased)])
                               : memory.output(static_cast<int>(i), opt_bytes(port)));
  }
  void* const workspace = memory.workspace(kernel->workspace_size());
  kernel->on_shape_change(in_shapes, out_shapes);
  {
    const DomainGuard guard(kernel->domain(), nullptr);
    kernel->enqueue(in.data(), out.data(), workspace, nullptr);
  }
  device.synchronize(nullptr);
  Tensors results;
  for (size_t i = 0; i < out.size(); ++i) {
    const PortDesc& port = way.ports.outputs[i];
    const GraphValue& value = *node.outputs[i];
    const size_t bytes = opt_bytes(port);
    const Blob stored = Blob::make(bytes, [&](void* to) {
      if (bytes > 0) device.copy(to, out[i], bytes, nullptr);
    });
    results.push_back(as_type(dense_of(host, stored, port.opt, port.type, value.name),
                              port.type.dtype, compared_type(value.info.dtype), port.opt.numel(),
                              value.scale));
  }
  if (way.next == nullptr) return results;
  results.insert(results.end(), inputs.begin() + static_cast<long>(way.ports.inputs.size()),
                 inputs.end());
  return run(*way.next, results);
}

Verifier::Tolerance Verifier::error_of(const Way& way, const Way& reference) const {
  double unit = 0;
  const auto add = [&](const NodePorts& ports) {
    for (const auto& list : {ports.inputs, ports.outputs})
      for (const PortDesc& port : list)
        if (port.present) unit = std::max(unit, rounding_error(port.type.dtype));
  };
  add(way.ports);
  add(reference.ports);
  if (unit > 0 && config_.flags.has(BuilderFlag::kTF32)) unit = std::max(unit, kTf32Error);
  if (is_plugin_) {
    // The order and the type of a plugin's sums are unknown: its FP32 sums may use TF32.
    return {unit, 16 * std::max(unit, unit > 0 ? kTf32Error / 4 : 0)};
  }
  // A sum has at most as many terms as an input has elements per index of its first axis.
  double terms = 1;
  for (const PortDesc& port : way.ports.inputs) {
    if (!port.present || port.opt.rank() == 0 || port.opt[0] == 0) continue;
    terms = std::max(terms, static_cast<double>(port.opt.numel()) /
                                static_cast<double>(port.opt.rank() > 1 ? port.opt[0] : 1));
  }
  return {unit, 8 * unit + 8 * rounding_error(DataType::kFLOAT) * std::sqrt(terms)};
}

std::string Verifier::difference(const Tensors& results, const Tensors& expected,
                                 const Tolerance& error, const Way& way, const Way& reference,
                                 std::span<const Tensors> disturbed) const {
  for (size_t o = 0; o < results.size(); ++o) {
    const GraphValue& value = *node_->outputs[o];
    const PortDesc& port = way.ports.outputs[o];
    const DataType type = compared_type(value.info.dtype);
    const auto count = static_cast<size_t>(port.opt.numel());
    const bool is_float = type == DataType::kFLOAT;
    if (is_float && disturbed.empty() &&
        are_near({results[o].as<float>(), count}, {expected[o].as<float>(), count}, error.of_most))
      continue;
    const auto values = [&](const Blob& blob) {
      std::vector<double> all(count);
      if (is_float) {
        std::copy_n(blob.as<float>(), count, all.begin());
      } else if (type == DataType::kBOOL) {
        std::copy_n(blob.as<uint8_t>(), count, all.begin());
      } else {
        std::vector<int64_t> whole(count);
        convert(blob.data(), type, whole.data(), DataType::kINT64, port.opt.numel());
        std::ranges::copy(whole, all.begin());
      }
      return all;
    };
    const std::vector<double> got = values(results[o]), wanted = values(expected[o]);
    // Computes how far disturbed operands move each element, and all elements on average.
    std::vector<double> moved(count);
    double moved_sum = 0;
    size_t jumps = 0;
    for (const Tensors& each : disturbed) {
      const std::vector<double> other = values(each[o]);
      for (size_t i = 0; i < count; ++i) {
        const double by = std::abs(other[i] - wanted[i]);
        if (std::isnan(by) || std::isinf(by)) {
          moved[i] = std::numeric_limits<double>::infinity();
        } else {
          moved[i] = std::max(moved[i], by);
          moved_sum += by;
        }
      }
    }
    const double moved_mean = disturbed.empty() || count == 0
                                  ? 0
                                  : moved_sum / static_cast<double>(count * disturbed.size());
    double most = 0;
    for (const double each : wanted)
      if (std::isfinite(each)) most = std::max(most, std::abs(each));
    const double limit = largest(port.type.dtype);
    const bool is_quantized = type == DataType::kINT8 || type == DataType::kUINT8;
    const double everywhere = (is_float                         ? error.of_most * most
                               : is_quantized && error.unit > 0 ? 1
                                                                : 0) +
                              (is_float ? kMagnified * moved_mean : 0) + (is_float ? 0x1p-126 : 0) +
                              (is_float && port.type.dtype == DataType::kHALF ? 0x1p-24 : 0);
    size_t wrong = 0, worst = 0;
    double worst_excess = 0;
    const auto allowed_at = [&](size_t i) {
      return everywhere + kMagnified * moved[i] + 2 * error.unit * std::abs(wanted[i]);
    };
    for (size_t i = 0; i < count; ++i) {
      const double a = got[i], b = wanted[i];
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      const double allowed = allowed_at(i);
      // A value beyond the type's range becomes infinity, or the largest number of the type.
      const bool is_too_large = is_float && std::abs(b) >= 0.99 * limit;
      if (is_too_large && std::abs(a) >= 0.99 * limit && std::signbit(a) == std::signbit(b))
        continue;
      const double excess = std::isfinite(a) && std::isfinite(b)
                                ? std::abs(a - b) / std::max(allowed, 0x1p-1000)
                                : std::numeric_limits<double>::infinity();
      if (excess <= 1 || std::isinf(moved[i])) continue;
      ++wrong;
      if (excess > worst_excess) worst_excess = excess, worst = i;
    }
    // At a function's jump, different errors move different elements over the edge.
    for (size_t i = 0; i < count; ++i)
      if (moved[i] > everywhere + 2 * error.unit * std::abs(wanted[i])) ++jumps;
    if (wrong == 0 || wrong <= 4 * jumps) continue;
    const TensorView view{nullptr, {type, TensorFormat::kLINEAR}, port.opt};
    return str("differs from ", reference.name, " in ", wrong, " of ", count,
               " elements of output ", o, " ('", value.name, "': ", str(port.type), " ", port.opt,
               "), most at ", position(view, static_cast<int64_t>(worst)), ": ", got[worst],
               " instead of ", wanted[worst], ", where ", allowed_at(worst),
               " of difference are allowed");
  }
  return {};
}

void Verifier::verify(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                      const PlannedOperatorPtr& op, const std::string& who) {
  if (!wants(node)) return;
  // Nothing is known of types that the network lacks, such as quantized ones.
  for (size_t i = 0; i < ports.inputs.size(); ++i)
    if (const PortDesc& port = ports.inputs[i];
        port.present && !port.is_constant &&
        compared_type(port.type.dtype) != compared_type(node.inputs[i]->info.dtype))
      return;
  for (size_t i = 0; i < ports.outputs.size(); ++i)
    if (compared_type(ports.outputs[i].type.dtype) != compared_type(node.outputs[i]->info.dtype))
      return;
  const Way way{node_, op,       candidate,
                ports, &device_, str("tactic ", candidate.tactic, ", ", str(candidate))};
  if (is_plugin_ && !reference_) {
    reference_ = way;
    return;
  }
  std::optional<Way> reference = reference_;
  if (!is_plugin_) reference = host_reference(ports);
  if (!reference) return;
  if (!is_plugin_ && device_.is_host() && reference->candidate == candidate) return;
  const Tolerance error = error_of(way, *reference);
  std::vector<Draw> draws = {Draw::kNormal};
  const bool moves = node.as<Transpose>() || node.as<Slice>() || node.as<Concatenation>() ||
                     (node.as<Pooling>() && error.unit <= rounding_error(DataType::kFLOAT));
  if (!is_plugin_ && moves) draws.push_back(Draw::kExtreme);
  ++compared_;
  for (const Draw which : draws) {
    Tensors& inputs = inputs_[which];
    if (inputs.empty()) inputs = draw(which);
    // Constants of a built-in layer are rounded as the candidate rounds them.
    Tensors of_this, &expected = is_plugin_ ? expected_[which] : of_this;
    try {
      if (expected.empty()) expected = run(*reference, inputs);
    } catch (...) {
      const std::exception_ptr reason = std::current_exception();
      rethrow_end(reason);
      rethrow_lost_device(reason, node.name, reference->candidate);
      const std::string why = str("Layer '", node.name, "' is not compared with ", reference->name,
                                  ", which failed: ", text_of(reason));
      if (is_asked_) {
        config_.log.warning(why);
      } else {
        config_.log.verbose(why);
      }
      is_steady_ = false;
      return;
    }
    const Tensors results = run(way, inputs);
    std::string text = difference(results, expected, error, way, *reference, {});
    if (text.empty()) continue;
    // A layer that computes different results twice is not wrong.
    if (!difference(run(way, inputs), results, error, way, *reference, {}).empty() ||
        !difference(run(*reference, inputs), expected, error, *reference, *reference, {}).empty()) {
      is_steady_ = false;
      config_.log.verbose("Layer '", node.name,
                          "' is not compared: it computes something else each time");
      return;
    }
    std::vector<Tensors> moved;
    for (int i = 0; i < kDisturbances && error.unit > 0 && which == Draw::kNormal; ++i)
      moved.push_back(run(*reference, disturbed(inputs, error.unit, static_cast<uint32_t>(i))));
    text = difference(results, expected, error, way, *reference, moved);
    if (text.empty()) continue;
    throw CandidateFault(str(who, text));
  }
}

}  // namespace opwright
