// The display with which opwright.BuildProgress draws a build's progress.

#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>

#include "base/status_line.h"
#include "bindings.h"
#include "compile/progress_display.h"

namespace opwright::python {

void bind_progress(nb::module_& m) {
  using Style = ProgressDisplay::Style;
  nb::class_<ProgressDisplay>(m, "_ProgressDisplay")
      .def_static(
          "lines",
          [](ProgressDisplay::Write write) {
            return ProgressDisplay(Style::kLines, std::move(write), terminal_columns);
          },
          nb::arg("write"))
      .def_static(
          "html",
          [](ProgressDisplay::Write write) {
            return ProgressDisplay(Style::kHtml, std::move(write), terminal_columns);
          },
          nb::arg("write"))
      .def_static("on_stderr", &ProgressDisplay::on_stderr)
      .def("step", &ProgressDisplay::step, nb::arg("phase"), nb::arg("done"), nb::arg("total"))
      .def("finish", &ProgressDisplay::finish, nb::arg("succeeded"))
      .def_prop_ro("text", &ProgressDisplay::text);
}

}  // namespace opwright::python
