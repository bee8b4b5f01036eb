#pragma once

#include <optional>
#include <vector>

#include "host_arrays.h"

namespace opwright::python {

/// PyTorch's tensors as an engine takes and makes them. They are read by their attributes, since
/// DLPack takes PyTorch longer than a small engine runs. Used and dropped under the interpreter's
/// lock; PyTorch is imported when the first tensor comes.
class TorchTensors {
 public:
  /// The engine must outlive the object.
  explicit TorchTensors(const Engine& engine);
  /// Whether it is a tensor or a parameter: no class that somebody derived, which may have its
  /// elements elsewhere, and no sparse one.
  bool is_strided(nb::handle value);
  /// Whether a tensor lies densely in the host's memory, and has the input's type.
  bool is_dense_on_host(size_t input, nb::handle tensor);
  /// Whether a tensor's type is the input's.
  bool has_type(size_t input, nb::handle tensor);
  bool is_contiguous(nb::handle tensor) const;
  /// Whether PyTorch would record what is done with the tensor, for its gradients.
  bool records_gradients(nb::handle tensor) const;
  /// A dense tensor of the input's type.
  Argument read(size_t input, nb::object tensor) const;
  /// A new tensor and its address. `device`: PyTorch's, where that is not the host.
  std::pair<nb::object, void*> allocate(size_t output, const Shape& shape, nb::handle device);

 private:
  /// PyTorch's, once it is imported.
  struct Package {
    nb::object tensor, parameter, strided, empty, is_grad_enabled;
    std::vector<nb::object> inputs, outputs;  ///< types; None where PyTorch has none
  };
  const Package& package();

  const Engine& engine_;
  std::optional<Package> package_;
  const nb::object dtype_, shape_, layout_, is_cpu_, is_contiguous_, data_ptr_, requires_grad_;
  const nb::object keywords_, keywords_with_device_;
};

}  // namespace opwright::python
