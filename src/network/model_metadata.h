#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace opwright {

/// What the author of a model says of it, which changes nothing that is computed.
struct ModelMetadata {
  using Properties = std::vector<std::pair<std::string, std::string>>;

  std::string producer_name, producer_version;
  std::string domain;
  std::string description;
  int64_t version = 0;
  std::string graph_name, graph_description;
  Properties properties;  ///< ONNX's metadata_props of the model, then those of the graph

  bool operator==(const ModelMetadata&) const = default;
};

}  // namespace opwright
