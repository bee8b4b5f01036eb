#include <algorithm>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "plugin/autotune.h"
#include "plugin/descriptors.h"
#include "plugin/v3_plugin.h"

namespace opwright {

namespace {

bool is_for_dla(TensorFormat format) {
  return format == TensorFormat::kDLA_LINEAR || format == TensorFormat::kDLA_HWC4;
}

/// Enumerates what supportsFormatCombination() accepts, port by port as TensorRT does, so that a
/// port's alternatives are only tried with what was accepted before it.
class Enumeration {
 public:
  Enumeration(const V3Plugin& plugin, const CandidateQuery& query, int num_shape_inputs)
      : plugin_(plugin),
        query_(query),
        num_inputs_(static_cast<int>(query.inputs.size()) - num_shape_inputs),
        num_outputs_(static_cast<int>(query.outputs.size())) {
    for (int i = 0; i < num_inputs_; ++i) add_port(query.inputs[i]);
    for (const PortDesc& output : query.outputs) add_port(output);
    for (int o = 0; o < num_outputs_; ++o) {
      const int input = plugin.aliased_input(query.layer, o, num_inputs_);
      if (input >= 0) aliased_.emplace_back(input, num_inputs_ + o);
    }
    limit_ = static_cast<size_t>(std::max(plugin.build().getFormatCombinationLimit(), 0));
    plugin.check(query.layer);
  }

  /// Accepted combinations, each the types of inputs and outputs.
  std::vector<std::vector<PortType>> run() {
    // Wider sets of formats come later, so that a plugin whose limit is small is not tried in
    // exotic layouts of its last port alone.
    for (const int formats : {kLinear, kDevice, kAll}) {
      formats_ = formats;
      queries_left_ = kMaxQueries;
      visit(0);
    }
    return std::move(found_);
  }

 private:
  enum { kLinear, kDevice, kAll };
  // A plugin that accepts whatever it is asked port by port, and then nothing at the last one,
  // would keep the build busy for ever.
  static constexpr int kMaxQueries = 20000;

  void add_port(const PortDesc& port) {
    ports_.push_back(&port);
    descs_.push_back(describe(port, port.type));
    std::vector<DataType> types = allowed_types(query_, port.type.dtype);
    std::erase_if(types, [&](DataType type) {
      return type != port.type.dtype && type != DataType::kFLOAT && type != DataType::kHALF &&
             type != DataType::kBF16 && !(type == DataType::kINT8 && port.scale > 0);
    });
    types_.push_back(std::move(types));
    std::vector<TensorFormat> device;
    std::vector<TensorFormat> all;
    const int rank = port.opt.rank();
    const bool has_vectors = is_floating(port.type.dtype) || port.type.dtype == DataType::kINT8;
    if (has_vectors && query_.device != nullptr) device = query_.device->formats(rank);
    for (int f = 0; has_vectors && f < EnumMax<TensorFormat>(); ++f) {
      const auto format = static_cast<TensorFormat>(f);
      if (format == TensorFormat::kLINEAR || is_for_dla(format) || !is_valid(format, rank))
        continue;
      if (std::find(device.begin(), device.end(), format) == device.end()) all.push_back(format);
    }
    device_formats_.push_back(std::move(device));
    all_formats_.push_back(std::move(all));
  }

  void visit(size_t pos) {
    if (found_.size() >= limit_ || queries_left_ <= 0) return;
    if (pos == ports_.size()) {
      std::vector<PortType> types;
      for (const DynamicPluginTensorDesc& desc : descs_)
        types.push_back({desc.desc.type, desc.desc.format});
      for (const auto& [input, output] : aliased_)
        if (types[input] != types[output]) return;
      if (std::find(found_.begin(), found_.end(), types) == found_.end())
        found_.push_back(std::move(types));
      return;
    }
    for (const DataType type : types_[pos]) {
      try_port(pos, type, TensorFormat::kLINEAR);
      if (formats_ >= kDevice)
        for (const TensorFormat format : device_formats_[pos]) try_port(pos, type, format);
      if (formats_ >= kAll)
        for (const TensorFormat format : all_formats_[pos]) try_port(pos, type, format);
    }
  }

  void try_port(size_t pos, DataType type, TensorFormat format) {
    descs_[pos].desc.type = type;
    descs_[pos].desc.format = format;
    --queries_left_;
    const bool supported = plugin_.build().supportsFormatCombination(
        static_cast<int32_t>(pos), descs_.data(), num_inputs_, num_outputs_);
    plugin_.check(query_.layer);
    if (supported) visit(pos + 1);
    // What follows `pos` was left by the last attempt; this port is set again before it is asked.
  }

  const V3Plugin& plugin_;
  const CandidateQuery& query_;
  const int num_inputs_;
  const int num_outputs_;
  size_t limit_ = 0;
  int formats_ = kLinear;
  int queries_left_ = 0;
  std::vector<const PortDesc*> ports_;
  std::vector<DynamicPluginTensorDesc> descs_;
  std::vector<std::vector<DataType>> types_;
  std::vector<std::vector<TensorFormat>> device_formats_, all_formats_;
  std::vector<std::pair<int, int>> aliased_;  // ports
  std::vector<std::vector<PortType>> found_;
};

}  // namespace

std::vector<Candidate> v3_candidates(const V3Plugin& plugin, const CandidateQuery& query,
                                     int num_shape_inputs) {
  const size_t num_inputs = query.inputs.size() - static_cast<size_t>(num_shape_inputs);
  const auto combinations = Enumeration(plugin, query, num_shape_inputs).run();
  if (combinations.empty()) {
    std::string types;
    for (size_t i = 0; i < num_inputs; ++i)
      types += str(i == 0 ? "" : ", ", name(query.inputs[i].type.dtype));
    for (size_t o = 0; o < query.outputs.size(); ++o)
      types += str(o == 0 ? " -> " : ", ", name(query.outputs[o].type.dtype));
    plugin.reject(query.layer,
                  "supportsFormatCombination() accepts no combination of types and formats; the "
                  "network's types are ",
                  types,
                  query.strongly_typed
                      ? " and the network is strongly typed"
                      : "; allow lower precision in the builder config, or cast the inputs");
  }

  std::vector<Candidate> candidates;
  std::vector<DynamicPluginTensorDesc> inputs(num_inputs), outputs(query.outputs.size());
  for (const std::vector<PortType>& types : combinations) {
    Candidate candidate;
    for (size_t i = 0; i < num_inputs; ++i) {
      candidate.inputs.push_back(types[i]);
      inputs[i] = describe(query.inputs[i], types[i]);
    }
    for (size_t i = num_inputs; i < query.inputs.size(); ++i)
      candidate.inputs.push_back({query.inputs[i].type.dtype, TensorFormat::kLINEAR});
    for (size_t o = 0; o < outputs.size(); ++o) {
      candidate.outputs.push_back(types[num_inputs + o]);
      outputs[o] = describe(query.outputs[o], types[num_inputs + o]);
    }
    plugin.configure(query.layer, inputs, outputs);
    for (const int32_t tactic : plugin.tactics(query.layer)) {
      candidate.tactic = tactic;
      candidates.push_back(candidate);
    }
  }
  return candidates;
}

}  // namespace opwright
