#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/aligned_memory.h"
#include "network/network.h"
#include "network/operator_registry.h"
#include "runtime/context.h"
#include "runtime/engine.h"

namespace opwright {

/// Names of a body's inputs: a state, or a tensor captured from outside.
std::string state_input(int index);
std::string capture_input(int index);

/// Translates extents in a body's network into those of the network around it.
class BodyExtents {
 public:
  explicit BodyExtents(const Network& body) : body_(body) {}
  /// Says which tensor outside the body's input of that name is; does nothing if the body has no
  /// such input. Throws Error unless type and rank are the same.
  void add(const std::string& name, const TensorInfo& outside);
  /// Throws Error unless the shapes outside follow from the extents of the body's inputs.
  void check();
  /// Throws Error for an extent that is known only after a run of the body.
  SymShape operator()(const SymShape& dims);
  Expr operator()(const Expr& extent);

 private:
  Expr make(const Expr& e);

  const Network& body_;
  std::unordered_map<std::string, SymShape> inputs_;
  std::unordered_map<size_t, std::vector<std::pair<Expr, Expr>>> done_;
  int depth_ = 0;  ///< depth of the expression
};

/// Compiles a body into an engine file. `inputs` are names of inputs, also of inputs that the body
/// does not have, with the numbers of the layer's ports. Throws Error naming the layer.
Blob compile_body(const Network& body, std::span<const std::pair<std::string, int>> inputs,
                  const KernelArgs& args);

/// Reads and verifies the result of compile_body() for the device. Throws Error for endlessly
/// nested bodies, and for features that a body must not have: plugins, other devices, formats other
/// than LINEAR, inputs that decide shapes, and outputs in an input's memory. The body's code must
/// be among the permitted objects of `code`, with which the layer is stored; no `code`: this
/// process has compiled the body.
std::shared_ptr<const Engine> load_body(const Blob& file, const Device& device,
                                        std::optional<std::span<const LoadedCode>> code);
/// Whether a layer of the bodies, or of bodies in them, exchanges data with other processes.
bool has_collective(const std::vector<const Network*>& bodies);
/// The body's code, for which the layer asks permission.
std::vector<CodeObject> code_of(const Engine& body);
/// Throws Error unless the body is for the device of the ports.
void check_body_device(const Engine& body, const KernelArgs& args);
/// The device of an engine with such a layer; the CPU if the context has none.
const Device& body_device(const OperatorLoadContext& context);

/// Reads a number from the device once the queue's work so far is done. Throws Error naming the
/// layer while a GPU's queue is captured, because that cannot be waited for.
template <class T>
T read_number(const Device& device, std::string_view layer, const void* from, Queue queue) {
  require(!device.is_capturing(queue), "layer '", layer,
          "' goes by a number that the GPU has computed, and the work of this stream is being "
          "captured, so it cannot be waited for; run the engine without capturing it");
  T value{};
  device.copy(&value, from, sizeof value, queue);
  return value;
}
template <class T>
void write_number(const Device& device, void* to, T value, Queue queue) {
  device.copy(to, &value, sizeof value, queue);
}
void write_zeros(const Device& device, std::byte* to, size_t bytes, Queue queue);
/// Kernel::capture_obstacle() of layers with bodies.
inline constexpr const char* kBodyObstacle = "its body is run by the host";

/// Gives a body the memory for its runs. It is a part of the layer's workspace, so that the limits
/// of builds and the size of the engine's memory include it.
inline void give_memory(Context& body, std::byte* memory, size_t bytes) {
  if (bytes > 0 && body.users_memory() != memory) body.set_memory(memory, bytes);
}

/// Per name, the number of the body's input, or -1 if the body has no such input. Throws Error if
/// the body has other inputs.
std::vector<int> find_inputs(const Engine& body, std::span<const std::string> names);

/// A copy with the alignment of weights.
inline Blob aligned_copy(const Blob& blob) { return Blob::copy(blob.data(), blob.size()); }

}  // namespace opwright
