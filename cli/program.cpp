#include "program.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>

#include "base/printable.h"
#include "commands.h"
#include "compile/build_budget.h"
#include "crash_report.h"
#include "opwright/version.h"
#include "usage.h"

namespace opwright::cli {
namespace {

const Host* host_of_command = nullptr;

int print_problem(const Host& host, const std::string& problem, int status) {
  std::fprintf(stderr, "%s: error: %s\n", host.name.c_str(),
               printable(problem, LineEnds::kKeep).c_str());
  return status;
}

int tell_usage(const Host& host, const CLI::App& app, const std::string& problem) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const std::string command = commands.empty() ? "" : " " + commands.front()->get_name();
  return print_problem(
      host, str(problem, "\n'", host.name, command, " --help' shows what there is"), kUsageStatus);
}

/// Whether the command line runs a manifest of ranks, which the Python package does.
bool runs_ranks(const std::vector<std::string>& arguments) {
  return !arguments.empty() && arguments.front() == "run" &&
         std::any_of(arguments.begin(), arguments.end(), [](const std::string& each) {
           return each == "--ranks" || each.starts_with("--ranks=");
         });
}

/// Parses and runs a command line and returns its exit status. A command leaves its own in
/// `status`.
int run_parsed(CLI::App& app, const std::vector<std::string>& arguments, const Host& host,
               const int& status) {
  try {
    if (runs_ranks(arguments)) host.run_in_python(arguments);
    std::vector<std::string> words(arguments.rbegin(), arguments.rend());
    app.parse(words);
    if (app.get_subcommands().empty()) throw CLI::RequiredError::Subcommand(1);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) return app.exit(problem);  // --help, --version
    return tell_usage(host, app, explain(app, arguments, problem.what()));
  } catch (const UsageError& problem) {
    return tell_usage(host, app, problem.what());
  } catch (const BuildCancelledError& problem) {
    return print_problem(host, problem.what(), 128 + SIGINT);
  } catch (const std::exception& problem) {
    return print_problem(host, problem.what(), 1);
  }
  return status;
}

}  // namespace

const Host& current_host() { return *host_of_command; }

int run_program(const std::vector<std::string>& arguments, const Host& host) {
  host_of_command = &host;
  // A file that may not grow gives an error, which is reported and cleaned up after.
  std::signal(SIGXFSZ, SIG_IGN);
  install_crash_report();
  CLI::App app("Build, run, inspect, view, time and serve engines of ONNX models.", host.name);
  app.require_subcommand(0, 1);  // zero is checked below, so that the message names a wrong command
  app.set_version_flag("--version", OPWRIGHT_VERSION);
  int status = 0;
  add_build(app);
  add_run(app);
  add_inspect(app);
  add_bench(app);
  add_view(app);
  add_serve(app);
  add_shard(app);
  add_trtexec(app, status);
  add_completion(app);
  const int ended = run_parsed(app, arguments, host, status);
  std::fflush(stdout);
  return ended;
}

}  // namespace opwright::cli
