#include "runtime/view.h"

#include <cstdio>
#include <filesystem>
#include <span>

#include "base/file.h"
#include "base/printable.h"
#include "commands.h"
#include "crash_report.h"

namespace opwright::cli {

void add_view(CLI::App& app) {
  struct Options {
    std::string path, other, output;
    LimitOptions limits;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "view",
      "Write a page of HTML that shows an engine: its graph, what was compared while tuning, where "
      "time and memory go; or two engines side by side");
  command->add_option("engine", options->path, "The engine file")->required();
  command->add_option("other", options->other, "A second engine, to see what differs");
  command->add_option("-o,--output", options->output,
                      "The file to write; the engine's name with .html behind it if left out");
  options->limits.add_to(*command, "");
  command->callback([options] {
    end_after(options->limits.seconds, options->limits.seconds);
    // Looking needs neither plugins nor permission: nothing is executed.
    std::vector<std::string> paths = {options->path};
    if (!options->other.empty()) paths.push_back(options->other);
    std::vector<Plan> plans;
    for (const std::string& path : paths) plans.push_back(read_plan(path));
    std::vector<ViewedPlan> viewed;
    for (size_t i = 0; i < plans.size(); ++i)
      viewed.push_back({std::filesystem::path(paths[i]).filename().string(), &plans[i]});
    const std::string target = options->output.empty() ? options->path + ".html" : options->output;
    require_other_file(target, paths, "an engine that is looked at");
    const std::string page = view_page(viewed);
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(page))};
    write_file_atomically(target, parts);
    std::printf("%s\n", printable(target).c_str());
  });
}

}  // namespace opwright::cli
