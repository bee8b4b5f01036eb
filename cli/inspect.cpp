#include "runtime/inspect.h"

#include <cstdio>

#include "commands.h"

namespace opwright::cli {

void add_inspect(CLI::App& app) {
  struct Options {
    std::string path;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect",
                                         "Show inputs, outputs and layers of an engine, with "
                                         "types, formats, tactics, times and sizes");
  command->add_option("engine", options->path, "The engine file")->required();
  command->add_flag("--json", options->json, "Print everything as JSON");
  command->callback([options] {
    // Looking needs neither plugins nor permission: nothing is executed.
    const Plan plan = read_plan(options->path);
    std::printf("%s\n", (options->json ? inspect_json(plan) : inspect_text(plan)).c_str());
  });
}

}  // namespace opwright::cli
