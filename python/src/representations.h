#pragma once

// A one-line description of an object for people: its device, its inputs and outputs with types and
// shapes, and its size.

#include <string>

namespace opwright {
class Context;
class Engine;
class Network;
struct BuilderConfig;
}  // namespace opwright

namespace opwright::python {

/// "x: FP32 (n, 8), z: INT64 (2,)"
std::string describe_ports(const Engine& engine, bool is_inputs);
std::string describe(const char* type, const Engine& engine);
std::string describe(const Network& network);
/// Describes a context with its current shapes.
std::string describe(Context& context);
std::string describe(const BuilderConfig& config);

}  // namespace opwright::python
