// The program `opwright` builds, runs, inspects and times engines. It loads Python only if an
// engine carries plugins as Python source or the command line names a Python file of plugins.

#include <filesystem>

#include "program.h"
#include "python_host.h"

int main(int argc, char** argv) {
  using namespace opwright::cli;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  // Called by the name trtexec, through a link, the program behaves as TensorRT's trtexec.
  if (argc > 0 && std::filesystem::path(argv[0]).filename() == kTrtexec)
    arguments.insert(arguments.begin(), kTrtexec);
  offer_python();
  Host host;
  host.load_python = [&](const std::string&) { become_python(arguments); };
  host.run_in_python = become_python;
  const int status = run_program(arguments, host);
  finish_python();
  return status;
}
