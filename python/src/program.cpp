// Runs the commands of the native program in this process, where Python may implement operators.

#include "program.h"

#include "base/did_you_mean.h"
#include "base/error.h"
#include "base/units.h"
#include "bindings.h"

namespace opwright::python {

void bind_program(nb::module_& m) {
  m.def(
      "_run_program",
      [](const std::vector<std::string>& arguments, const std::string& name, nb::callable load) {
        cli::Host host;
        host.name = name;
        host.load_python = [&](const std::string& file) {
          const nb::gil_scoped_acquire python;
          const auto problem = nb::cast<std::string>(load(file));
          require(problem.empty(), problem);
        };
        host.run_in_python = [](const std::vector<std::string>& command) {
          fail("'", command.front(), "' is the Python package's own command");
        };
        const nb::gil_scoped_release others;
        return cli::run_program(arguments, host);
      },
      nb::arg("arguments"), nb::arg("name"), nb::arg("load"));
  m.def(
      "_did_you_mean",
      [](const std::string& wrong, const std::vector<std::string>& names) {
        return did_you_mean(wrong, names);
      },
      nb::arg("wrong"), nb::arg("names"));
  m.def("_time_text", &time_text, nb::arg("milliseconds"));
  m.def("_bytes_text", &bytes_text, nb::arg("bytes"));
}

}  // namespace opwright::python
