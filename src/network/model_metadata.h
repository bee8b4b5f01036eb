#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace opwright {

/// The author's description of a model. It does not change the computation.
struct ModelMetadata {
  using Properties = std::vector<std::pair<std::string, std::string>>;

  std::string producer_name, producer_version;
  std::string domain;
  std::string description;
  int64_t version = 0;
  std::string graph_name, graph_description;
  Properties properties;  ///< ONNX's metadata_props of the model, then of the graph

  bool operator==(const ModelMetadata&) const = default;
};

}  // namespace opwright
