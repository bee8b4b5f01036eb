#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "commands.h"

namespace opwright::cli {

/// Exit status for a wrong command line.
inline constexpr int kUsageStatus = 2;

/// Error of the command line itself, not of the files that it names.
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

/// Description of an option for shells and manuals.
struct OptionText {
  std::vector<std::string> names;  ///< with their hyphens, the long one first
  std::string value;               ///< name of its value; empty for a flag
  std::string help;
  std::string default_text;  ///< empty: none
};

/// Description of a command for shells and manuals.
struct CommandText {
  std::string name, help;
  std::vector<std::string> files;  ///< names of its positional parameters
  std::vector<OptionText> options;
};

/// All commands, from the tables that parse the command line.
std::vector<CommandText> describe_commands(const CLI::App& app);

/// One sentence on a command line that was not understood: the unknown name and what was probably
/// meant, or `otherwise`.
std::string explain(const CLI::App& app, const std::vector<std::string>& arguments,
                    const std::string& otherwise);

/// The completion of a shell, bash, zsh or fish; `man` gives the manual page.
std::string completion(const std::vector<CommandText>& commands, const std::string& shell);

}  // namespace opwright::cli
