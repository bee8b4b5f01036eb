#pragma once

#include <optional>
#include <vector>

#include "host_arrays.h"

namespace opwright::python {

/// Reads and makes PyTorch tensors for an engine. Tensors are read by their attributes, since
/// DLPack takes longer in PyTorch than a small engine runs. Used and dropped under the
/// interpreter's lock. PyTorch is imported when the first tensor comes.
class TorchTensors {
 public:
  /// The engine must outlive the object.
  explicit TorchTensors(const Engine& engine);
  /// Whether the value is a strided tensor or parameter. False for derived classes, which may keep
  /// their elements elsewhere, and for sparse tensors.
  bool is_strided(nb::handle value);
  /// Whether a tensor lies densely in the host's memory and has the input's type.
  bool is_dense_on_host(size_t input, nb::handle tensor);
  /// Whether a tensor's type is the input's.
  bool has_type(size_t input, nb::handle tensor);
  bool is_contiguous(nb::handle tensor) const;
  /// Whether PyTorch would record operations on the tensor for gradients.
  bool records_gradients(nb::handle tensor) const;
  /// Reads a dense tensor of the input's type.
  Argument read(size_t input, nb::object tensor) const;
  /// Makes a tensor. Returns it with its address. `device` is PyTorch's device if that is not the
  /// host.
  std::pair<nb::object, void*> allocate(size_t output, const Shape& shape, nb::handle device);

 private:
  /// Objects of PyTorch, looked up once it is imported.
  struct Package {
    nb::object tensor, parameter, strided, empty, is_grad_enabled;
    std::vector<nb::object> inputs, outputs;  ///< PyTorch's types; None if it lacks one
  };
  const Package& package();

  const Engine& engine_;
  std::optional<Package> package_;
  const nb::object dtype_, shape_, layout_, is_cpu_, is_contiguous_, data_ptr_, requires_grad_;
  const nb::object keywords_, keywords_with_device_;
};

}  // namespace opwright::python
