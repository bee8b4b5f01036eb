// Limits.

#include "base/limits.h"

#include "bindings.h"
#include "opwright/resource_limits.h"

namespace opwright::python {
namespace {

Limits checked(const Limits& limits) {
  check_limits(limits);
  return limits;
}

template <class T>
void bind_limit(nb::class_<Limits>& c, const char* name, T Limits::*limit, const char* doc) {
  c.def_prop_rw(
      name, [limit](const Limits& self) { return self.*limit; },
      [limit](Limits& self, T value) {
        Limits changed = self;
        changed.*limit = value;
        self = checked(changed);
      },
      doc);
}

}  // namespace

void bind_limits(nb::module_& m) {
  nb::class_<Limits> c(m, "Limits",
                       "Bounds on what an engine file or a model may make the process spend. What "
                       "goes beyond one is refused before it is spent, with an Error that names "
                       "the limit and what asked for it. 0 stands for the default.");
  c.def(
      "__init__",
      [](Limits* self, uint64_t memory, int64_t steps, int64_t expressions, double run_seconds,
         uint64_t build_memory, double build_seconds) {
        new (self)
            Limits(checked({memory, steps, expressions, run_seconds, build_memory, build_seconds}));
      },
      nb::kw_only(), nb::arg("memory") = 0, nb::arg("steps") = 0, nb::arg("expressions") = 0,
      nb::arg("run_seconds") = 0.0, nb::arg("build_memory") = 0, nb::arg("build_seconds") = 0.0);
  bind_limit(c, "memory", &Limits::memory,
             "Bytes for one engine with one of its contexts, all together: intermediate tensors, "
             "scratch memory, outputs as large as they can become with the inputs' shapes, and on "
             "a GPU the weights, which on the CPU stay in the file. Default: the memory of the "
             "device, on the CPU that of the machine.");
  bind_limit(c, "steps", &Limits::steps,
             "Steps of all profiles of an engine, or nodes of a model, together. Default: "
             "1,000,000.");
  bind_limit(c, "expressions", &Limits::expressions,
             "Expressions that an engine computes shapes with, counted once for each profile. "
             "Default: 10,000,000.");
  bind_limit(c, "run_seconds", &Limits::run_seconds,
             "Seconds that one run may take, looked at between steps: one step is not interrupted. "
             "Default: no limit.");
  bind_limit(c, "build_memory", &Limits::build_memory,
             "Bytes of constants and intermediate tensors that building an engine may hold at "
             "once. Default: as memory.");
  bind_limit(c, "build_seconds", &Limits::build_seconds,
             "Seconds that building an engine may take, looked at between layers and timed runs. "
             "Default: no limit.");
  c.def(
      "__eq__", [](const Limits& self, const Limits& other) { return self == other; },
      nb::is_operator(), nb::arg("other"));
  c.def("__repr__", [](const Limits& self) {
    std::string text;
    const auto add = [&](const char* name, auto value) {
      if (value != 0) text += str(text.empty() ? "" : ", ", name, "=", value);
    };
    add("memory", self.memory);
    add("steps", self.steps);
    add("expressions", self.expressions);
    add("run_seconds", self.run_seconds);
    add("build_memory", self.build_memory);
    add("build_seconds", self.build_seconds);
    return "Limits(" + text + ")";
  });
}

}  // namespace opwright::python
