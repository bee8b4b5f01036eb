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
#include "network/network.h"
#include "network/operator_registry.h"
#include "runtime/context.h"
#include "runtime/engine.h"

namespace opwright {

/// The inputs of a body are called so: a state; a tensor from outside.
std::string state_input(int index);
std::string capture_input(int index);

/// Extents in a body's network as those of the network around it.
class BodyExtents {
 public:
  explicit BodyExtents(const Network& body) : body_(body) {}
  /// What the body's input of that name is; nothing where it has none. Throws Error unless type and
  /// rank are the same.
  void add(const std::string& name, const TensorInfo& outside);
  /// Throws Error unless the inputs have the shapes that were said, which those of the body follow
  /// from.
  void check();
  /// Throws Error for an extent that only a run of the body tells.
  SymShape operator()(const SymShape& dims);
  Expr operator()(const Expr& extent);

 private:
  Expr make(const Expr& e);

  const Network& body_;
  std::unordered_map<std::string, SymShape> inputs_;
  std::unordered_map<size_t, std::vector<std::pair<Expr, Expr>>> done_;
  int depth_ = 0;  ///< of the expression
};

/// The engine file of a body. `inputs` are its inputs' names, of those that it has not too, with
/// the ports that they are. Throws Error naming the layer.
Blob compile_body(const Network& body, std::span<const std::pair<std::string, int>> inputs,
                  const KernelArgs& args);

/// Reads and verifies what compile_body() gave, for the device. Throws Error for bodies in bodies
/// without end, and for what a body must not have: plugins, other devices, other formats than
/// LINEAR, inputs that decide shapes, and outputs in an input's memory. Code that it has must be
/// permitted: some of `code`, which the layer is stored with, or nothing for a body that this very
/// process has compiled.
std::shared_ptr<const Engine> load_body(const Blob& file, const Device& device,
                                        std::optional<std::span<const LoadedCode>> code);
/// The body's code, which the layer asks for permission with.
std::vector<CodeObject> code_of(const Engine& body);
/// Throws Error unless the body is for the device of the ports.
void check_body_device(const Engine& body, const KernelArgs& args);
/// The device of an engine with such a layer; without one, the CPU.
const Device& body_device(const OperatorLoadContext& context);

/// A number that the device has, once the queue's work so far is done. Throws Error naming the
/// layer while a GPU's queue is captured, which nothing waits for.
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

/// Bytes as parts of a workspace have them, each of which begins with a line of the cache.
inline size_t aligned_size(size_t bytes) { return (bytes + 63) / 64 * 64; }
/// What a body's runs compute in is a part of its layer's workspace, so that it counts in the
/// limits of builds and in the size of the engine's memory.
inline void give_memory(Context& body, std::byte* memory, size_t bytes) {
  if (bytes > 0 && body.users_memory() != memory) body.set_memory(memory, bytes);
}

/// Per name the input of the body, -1 for one that it has not. Throws Error unless these are all.
std::vector<int> find_inputs(const Engine& body, std::span<const std::string> names);

/// A Blob that lies where weights have to.
inline Blob aligned_copy(const Blob& blob) { return Blob::copy(blob.data(), blob.size()); }

}  // namespace opwright
