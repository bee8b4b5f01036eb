#include "usage.h"

#include <algorithm>

#include "base/did_you_mean.h"
#include "program.h"
#include "trtexec.h"

namespace opwright::cli {
namespace {

OptionText text_of(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  if (option.get_expected_max() > 0) {
    text.value = option.get_type_name();
    text.default_text = option.get_default_str();
  }
  text.help = option.get_description();
  return text;
}

bool knows(const CLI::App& command, const std::string& name) {
  return std::ranges::any_of(command.get_options(), [&](const CLI::Option* option) {
    const OptionText text = text_of(*option);
    return std::ranges::find(text.names, name) != text.names.end();
  });
}

}  // namespace

std::vector<CommandText> describe_commands(const CLI::App& app) {
  std::vector<CommandText> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandText& text = commands.emplace_back();
    text.name = command->get_name();
    text.help = command->get_description();
    for (const CLI::Option* option : command->get_options())
      if (option->get_positional())
        text.files.push_back(option->get_name(true));
      else
        text.options.push_back(text_of(*option));
    if (text.name == kTrtexec) text.options = trtexec_options();
  }
  return commands;
}

std::string explain(const CLI::App& app, const std::vector<std::string>& arguments,
                    const std::string& otherwise) {
  const auto is_option = [](const std::string& word) { return word.starts_with('-'); };
  const auto first = std::ranges::find_if_not(arguments, is_option);
  if (first == arguments.end()) return otherwise;
  const CLI::App* command = nullptr;
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(each->get_name());
    if (each->get_name() == *first) command = each;
  }
  if (command == nullptr)
    return str("there is no command '", *first, "'", did_you_mean(*first, names));
  for (auto word = first + 1; word != arguments.end() && *word != "--"; ++word) {
    const std::string name = word->substr(0, word->find('='));
    if (!name.starts_with("--") || knows(*command, name)) continue;
    std::vector<std::string> known;
    for (const CLI::Option* option : command->get_options())
      for (const std::string& each : text_of(*option).names) known.push_back(each);
    return str("'", command->get_name(), "' has no option '", name, "'", did_you_mean(name, known));
  }
  return otherwise;
}

}  // namespace opwright::cli
