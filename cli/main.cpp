// The program `opwright`: builds, runs, inspects and times engines, without Python.

#include <cstdio>
#include <exception>

#include "commands.h"
#include "opwright/version.h"

int main(int argc, char** argv) {
  CLI::App app("Build, run, inspect and time engines of ONNX models.", "opwright");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::to_string(OPWRIGHT_VERSION_MAJOR) + "." +
                                        std::to_string(OPWRIGHT_VERSION_MINOR) + "." +
                                        std::to_string(OPWRIGHT_VERSION_PATCH));
  opwright::cli::add_build(app);
  opwright::cli::add_run(app);
  opwright::cli::add_inspect(app);
  opwright::cli::add_bench(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "opwright: error: %s\n", problem.what());
    return 1;
  }
  return 0;
}
