#include "commands.h"
#include "program.h"

namespace opwright::cli {
namespace {

/// Adds a command that the Python package runs, with all its options.
void add_of_package(CLI::App& app, const std::string& name, const std::string& description) {
  CLI::App* command = app.add_subcommand(name, description);
  command->prefix_command();
  command->set_help_flag();  // the package's own
  command->callback([command, name] {
    std::vector<std::string> arguments = {name};
    for (const std::string& each : command->remaining()) arguments.push_back(each);
    current_host().run_in_python(arguments);
  });
}

}  // namespace

void add_serve(CLI::App& app) {
  add_of_package(app, "serve",
                 "Serve engines over HTTP, in the KServe v2 protocol; this is the Python package's "
                 "(pip install 'opwright[serve]'), and `opwright serve --help` shows its options");
}

void add_shard(CLI::App& app) {
  add_of_package(app, "shard",
                 "Cut an ONNX model for several ranks; this is the Python package's, and `opwright "
                 "shard --help` shows its options");
}

}  // namespace opwright::cli
