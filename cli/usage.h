#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "commands.h"

namespace opwright::cli {

/// What the program exits with where the command line is wrong.
inline constexpr int kUsageStatus = 2;

/// The command line is wrong, whatever is in the files that it names.
class UsageError final : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorCode::kINVALID_ARGUMENT, message) {}
};

/// Throws UsageError unless `condition` holds.
template <class... Parts>
void require_usage(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw UsageError(str(parts...));
}

/// What shells and manuals say of an option.
struct OptionText {
  std::vector<std::string> names;  ///< with their hyphens, the long one first
  std::string value;               ///< how its value is called; empty for a flag
  std::string help;
  std::string default_text;  ///< empty: none
};

/// The same of a command.
struct CommandText {
  std::string name, help;
  std::vector<std::string> files;  ///< what its parameters without a name are called
  std::vector<OptionText> options;
};

/// All commands, from the tables that they are parsed with.
std::vector<CommandText> describe_commands(const CLI::App& app);

/// What is wrong with a command line that was not understood, in one sentence: the name that is
/// unknown and what was probably meant, or `otherwise`.
std::string explain(const CLI::App& app, const std::vector<std::string>& arguments,
                    const std::string& otherwise);

/// The completion of a shell, bash, zsh or fish; `man` gives the manual page.
std::string completion(const std::vector<CommandText>& commands, const std::string& shell);

}  // namespace opwright::cli
