#include "plugin/model/format_search.h"

#include <algorithm>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/model/autotune.h"

namespace opwright {

namespace {

bool is_for_dla(TensorFormat format) {
  return format == TensorFormat::kDLA_LINEAR || format == TensorFormat::kDLA_HWC4;
}

class Enumeration {
 public:
  explicit Enumeration(const FormatSearch& search) : search_(search) {
    for (int i = 0; i < search.num_inputs; ++i) add_port(search.query.inputs[i]);
    for (const PortDesc& output : search.query.outputs) add_port(output);
  }

  /// Finds accepted combinations: the types of inputs, then of outputs.
  std::vector<std::vector<PortType>> run() {
    // Wider sets of formats come later. So a plugin with a small limit is not only tried with
    // exotic layouts of its last port.
    for (const int formats : {kLinear, kDevice, kAll}) {
      formats_ = formats;
      queries_left_ = kMaxQueries;
      visit(0);
    }
    return std::move(found_);
  }

 private:
  enum { kLinear, kDevice, kAll };
  // Limits the search: a plugin may accept everything port by port, but nothing at its last port,
  // which would keep the build busy for ever.
  static constexpr int kMaxQueries = 20000;

  void add_port(const PortDesc& port) {
    ports_.push_back(&port);
    descs_.push_back(describe(port, port.type));
    std::vector<DataType> types = allowed_types(search_.query, port);
    std::erase_if(types,
                  [&](DataType type) { return type == DataType::kFP8 && type != port.type.dtype; });
    types_.push_back(std::move(types));
    std::vector<TensorFormat> device;
    std::vector<TensorFormat> all;
    const int rank = port.opt.rank();
    const bool has_vectors = is_floating(port.type.dtype) || port.type.dtype == DataType::kINT8;
    if (has_vectors && search_.query.device != nullptr)
      device = search_.query.device->formats(rank);
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
    if (found_.size() >= search_.limit || queries_left_ <= 0) return;
    if (pos == descs_.size()) {
      std::vector<PortType> types;
      for (const DynamicPluginTensorDesc& desc : descs_)
        types.push_back({desc.desc.type, desc.desc.format});
      for (const auto& [input, output] : search_.aliased)
        if (types[input] != types[search_.num_inputs + output]) return;
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
    descs_[pos] = describe(*ports_[pos], {type, format});
    --queries_left_;
    if (search_.supports(static_cast<int>(pos), descs_)) visit(pos + 1);
    // Ports after `pos` keep values of the last attempt. Each port is set again before it is asked.
  }

  const FormatSearch& search_;
  int formats_ = kLinear;
  int queries_left_ = 0;
  std::vector<const PortDesc*> ports_;
  std::vector<DynamicPluginTensorDesc> descs_;
  std::vector<std::vector<DataType>> types_;
  std::vector<std::vector<TensorFormat>> device_formats_, all_formats_;
  std::vector<std::vector<PortType>> found_;
};

}  // namespace

std::vector<Candidate> search_formats(const FormatSearch& search, std::string_view owner) {
  std::vector<Candidate> candidates;
  for (const std::vector<PortType>& types : Enumeration(search).run()) {
    Candidate& candidate = candidates.emplace_back();
    candidate.inputs.assign(types.begin(), types.begin() + search.num_inputs);
    candidate.outputs.assign(types.begin() + search.num_inputs, types.end());
    for (const PortDesc& shape_input : search.query.inputs.subspan(candidate.inputs.size()))
      candidate.inputs.push_back({shape_input.type.dtype, TensorFormat::kLINEAR});
  }
  require(!candidates.empty(), owner,
          "supportsFormatCombination() accepts no combination of types and formats; the network's "
          "types are ",
          describe_types(search.query),
          search.query.strongly_typed
              ? " and the network is strongly typed"
              : "; allow lower precision in the builder config, or cast the inputs");
  return candidates;
}

}  // namespace opwright
