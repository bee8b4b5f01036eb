#include "commands.h"
#include "program.h"

namespace opwright::cli {

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "serve",
      "Serve engines over HTTP, in the KServe v2 protocol; this is the Python package's (pip "
      "install 'opwright[serve]'), and `opwright serve --help` shows its options");
  command->prefix_command();
  command->set_help_flag();  // the package's own
  command->callback([command] {
    std::vector<std::string> arguments = {"serve"};
    for (const std::string& each : command->remaining()) arguments.push_back(each);
    current_host().run_in_python(arguments);
  });
}

}  // namespace opwright::cli
