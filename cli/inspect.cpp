#include "runtime/inspect.h"

#include <unistd.h>

#include <cstdio>

#include "base/printable.h"
#include "commands.h"
#include "crash_report.h"

namespace opwright::cli {
namespace {

void print_sources(const Plan& plan) {
  for (const int32_t index : plan.plugin_sources) {
    const CodeObject& source = plan.code[index];
    std::printf("==> %s <==\n", printable(source.name).c_str());
    const std::string_view text(source.bytes.as<char>(), source.bytes.size());
    // A file or pipe receives the sources unchanged.
    if (isatty(STDOUT_FILENO) != 0)
      std::printf("%s", printable(text, LineEnds::kKeep).c_str());
    else
      std::fwrite(text.data(), 1, text.size(), stdout);
    std::printf("\n");
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  struct Options {
    std::string path;
    bool json = false, sources = false;
    LimitOptions limits;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect",
                                         "Show inputs, outputs and layers of an engine, with "
                                         "types, formats, tactics, times and sizes");
  command->add_option("engine", options->path, "The engine file")->required();
  command->add_flag("--json", options->json, "Print everything as JSON");
  command->add_flag("--sources", options->sources,
                    "Print the sources of plugins that the engine carries instead");
  options->limits.add_to(*command, "");
  command->callback([options] {
    end_after(options->limits.seconds, options->limits.seconds);
    // Looking needs neither plugins nor permission: nothing is executed.
    const Plan plan = read_plan(options->path);
    if (options->sources) return print_sources(plan);
    std::printf("%s\n", (options->json ? inspect_json(plan) : inspect_text(plan)).c_str());
  });
}

}  // namespace opwright::cli
