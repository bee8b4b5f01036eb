#include "runtime/inspect.h"

#include <cstdio>

#include "commands.h"

namespace opwright::cli {
namespace {

void print_sources(const Plan& plan) {
  for (const int32_t index : plan.plugin_sources) {
    const CodeObject& source = plan.code[index];
    std::printf("==> %s <==\n", source.name.c_str());
    std::fwrite(source.bytes.data(), 1, source.bytes.size(), stdout);
    std::printf("\n");
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  struct Options {
    std::string path;
    bool json = false, sources = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect",
                                         "Show inputs, outputs and layers of an engine, with "
                                         "types, formats, tactics, times and sizes");
  command->add_option("engine", options->path, "The engine file")->required();
  command->add_flag("--json", options->json, "Print everything as JSON");
  command->add_flag("--sources", options->sources,
                    "Print the sources of plugins that the engine carries instead");
  command->callback([options] {
    // Looking needs neither plugins nor permission: nothing is executed.
    const Plan plan = read_plan(options->path);
    if (options->sources) return print_sources(plan);
    std::printf("%s\n", (options->json ? inspect_json(plan) : inspect_text(plan)).c_str());
  });
}

}  // namespace opwright::cli
