// The program `opwright`: builds, runs, inspects and times engines, without Python, unless an
// engine carries plugins as Python source.

#include <csignal>
#include <cstdio>
#include <exception>

#include "base/printable.h"
#include "commands.h"
#include "compile/build_budget.h"
#include "crash_report.h"
#include "opwright/version.h"
#include "python_host.h"

namespace {

int run(int argc, char** argv) {
  // A file that may not grow gives an error, which is reported and cleaned up after.
  std::signal(SIGXFSZ, SIG_IGN);
  opwright::cli::install_crash_report();
  CLI::App app("Build, run, inspect, view, time and serve engines of ONNX models.", "opwright");
  app.require_subcommand(0, 1);  // checked below: a wrong name is to be named
  app.set_version_flag("--version", OPWRIGHT_VERSION);
  opwright::cli::add_build(app);
  opwright::cli::add_run(app);
  opwright::cli::add_inspect(app);
  opwright::cli::add_bench(app);
  opwright::cli::add_view(app);
  opwright::cli::add_serve(app);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::RequiredError::Subcommand(1);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem);
  } catch (const std::exception& problem) {
    using namespace opwright;
    std::fprintf(stderr, "opwright: error: %s\n",
                 printable(problem.what(), LineEnds::kKeep).c_str());
    const bool is_interrupted = dynamic_cast<const BuildCancelledError*>(&problem) != nullptr;
    return is_interrupted ? 128 + SIGINT : 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int status = run(argc, argv);
  opwright::cli::finish_python();
  return status;
}
