#pragma once

// One line that says what an object is, for people: its device, its inputs and outputs with types
// and shapes, and how large it is.

#include <string>

namespace opwright {
class Context;
class Engine;
class Network;
struct BuilderConfig;
}  // namespace opwright

namespace opwright::python {

std::string describe(const char* type, const Engine& engine);
std::string describe(const Network& network);
/// With the shapes as they are set.
std::string describe(Context& context);
std::string describe(const BuilderConfig& config);

}  // namespace opwright::python
