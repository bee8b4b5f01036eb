#include <algorithm>
#include <cstdio>

#include "opwright/version.h"
#include "program.h"
#include "usage.h"

namespace opwright::cli {
namespace {

/// The text with a backslash before each of these characters.
std::string escaped(const std::string& text, std::string_view characters) {
  std::string result;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

/// Quotes text with a shell's single quotes.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// Separator between a long option and its value. trtexec's options take "=".
std::string separator(const CommandText& command, const OptionText& option) {
  return command.name == kTrtexec && !option.value.empty() ? "=" : "";
}

std::string words(const CommandText& command) {
  std::string all;
  for (const OptionText& option : command.options)
    for (const std::string& name : option.names)
      all += (all.empty() ? "" : " ") + name + separator(command, option);
  return all;
}

std::string bash(const std::vector<CommandText>& commands) {
  std::string names;
  for (const CommandText& command : commands) names += command.name + " ";
  std::string text =
      "# Completion of opwright for bash: written by `opwright completion bash`.\n"
      "_opwright() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} command= word words\n"
      "  COMPREPLY=()\n"
      "  [ \"${COMP_WORDS[0]##*/}\" = trtexec ] && command=trtexec\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    [ -z \"$command\" ] && case $word in -*) ;; *) command=$word ;; esac\n"
      "  done\n"
      "  case $command in\n"
      "    '') words='" +
      names + "--help --version' ;;\n";
  for (const CommandText& command : commands)
    text += "    " + command.name + ") words=" + quoted(words(command)) + " ;;\n";
  return text +
         "  esac\n"
         "  case $current in\n"
         "    -*) ;;\n"
         "    *) [ -n \"$command\" ] && return ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  case ${COMPREPLY[0]-} in *=) compopt -o nospace ;; esac\n"
         "}\n"
         "complete -o default -F _opwright opwright trtexec\n";
}

std::string zsh(const std::vector<CommandText>& commands) {
  std::string text =
      "#compdef opwright\n"
      "# Completion of opwright for zsh: written by `opwright completion zsh`.\n"
      "_opwright() {\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (const CommandText& command : commands)
    text += "    " + quoted(command.name + ":" + escaped(command.help, ":\\")) + "\n";
  text +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n";
  for (const CommandText& command : commands) {
    text += "    " + command.name + ")\n      _arguments";
    for (const OptionText& option : command.options)
      for (const std::string& name : option.names) {
        std::string spec =
            name + separator(command, option) + "[" + escaped(option.help, "[]\\") + "]";
        if (!option.value.empty()) spec += ":" + escaped(option.value, ":\\") + ":_files";
        text += " \\\n        " + quoted("*" + spec);
      }
    text += " \\\n        '*:file:_files' ;;\n";
  }
  return text + "  esac\n}\n_opwright \"$@\"\n";
}

std::string fish(const std::vector<CommandText>& commands) {
  const auto quote = [](const std::string& each) { return "'" + escaped(each, "'\\") + "'"; };
  std::string text = "# Completion of opwright for fish: written by `opwright completion fish`.\n";
  for (const CommandText& command : commands)
    text += "complete -c opwright -f -n __fish_use_subcommand -a " + command.name + " -d " +
            quote(command.help) + "\n";
  for (const CommandText& command : commands)
    for (const OptionText& option : command.options) {
      text += "complete -c opwright -n '__fish_seen_subcommand_from " + command.name + "'";
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += (option.value.empty() ? "" : " -r") + std::string(" -d ") + quote(option.help) + "\n";
    }
  return text;
}

/// Escapes text for a manual page. Hyphens stay as typed, and no line begins as a roff request.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else if (c == '\n')
      result += ' ';
    else
      result += c;
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string manual(const std::vector<CommandText>& commands) {
  std::string text =
      str(".\\\" Written by `opwright completion man`.\n.TH OPWRIGHT 1 \"\" \"Opwright ",
          OPWRIGHT_VERSION,
          "\" \"User commands\"\n.SH NAME\nopwright \\- build, run, inspect, view, time and serve "
          "inference engines of ONNX models\n.SH SYNOPSIS\n.B opwright\n.I "
          "COMMAND\n[\\fIOPTIONS\\fR]\n.br\n"
          ".B opwright\n\\-\\-help | \\-\\-version\n.SH DESCRIPTION\nThe program builds engine "
          "files from "
          "ONNX models, and runs and looks at them, on the CPU and on NVIDIA GPUs. Engines need no "
          "Python. Operators in Python are given by \\-\\-plugins, and need the Python package.\n"
          ".SH COMMANDS\n");
  for (const CommandText& command : commands) {
    text += ".SS opwright " + roff(command.name);
    for (const std::string& file : command.files) text += " " + roff(file);
    text += "\n" + roff(command.help) + ".\n";
    for (const OptionText& option : command.options) {
      text += ".TP\n";
      std::string names;
      for (const std::string& name : option.names)
        names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
      const bool joined = command.name == kTrtexec;
      if (!option.value.empty())
        names += (joined ? "=" : " ") + ("\\fI" + roff(option.value) + "\\fR");
      text += names + "\n" + roff(option.help);
      if (!option.default_text.empty()) text += " (default: " + roff(option.default_text) + ")";
      text += "\n";
    }
  }
  return text + str(".SH EXIT STATUS\n0: it is done. 1: it failed. 2: the command line is wrong. "
                    "124: \\-\\-max\\-time "
                    "is over. 130: it was interrupted. The command trtexec has only 0 and 1.\n"
                    ".SH ENVIRONMENT\n.TP\n.B OPWRIGHT_DEVICE\ncpu, cuda or cuda:1, where no "
                    "option says another.\n"
                    ".TP\n.B OPWRIGHT_PYTHON\nThe interpreter that has the Python package, for "
                    "engines and files of "
                    "operators in Python.\n.TP\n.B OPWRIGHT_ALLOW_HOST_CODE, "
                    "OPWRIGHT_ALLOW_DEVICE_CODE\n1: trtexec "
                    "may run code that engines hold.\n.SH FILES\n.B trtexec\n\\(em a link of this "
                    "name to opwright "
                    "is the command trtexec.\n");
}

}  // namespace

std::string completion(const std::vector<CommandText>& commands, const std::string& shell) {
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  return manual(commands);
}

void add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print the completion of a shell, or the manual page");
  command->add_option("shell", *shell, "bash, zsh, fish, or man for the manual page")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  command->callback(
      [&app, shell] { std::printf("%s", completion(describe_commands(app), *shell).c_str()); });
}

}  // namespace opwright::cli
