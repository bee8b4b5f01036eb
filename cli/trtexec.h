#pragma once

#include <string>
#include <vector>

#include "usage.h"

namespace opwright::cli {

/// The options of TensorRT's program trtexec, in its order.
std::vector<OptionText> trtexec_options();

/// An option as it stands in the table.
struct TrtexecOption {
  const char* name;     ///< without hyphens
  const char* aliases;  ///< with spaces between them
  const char* value;    ///< name of its value; empty for a flag
  const char* help;
  /// Why the option has no effect here; null if it has one.
  const char* no_effect = nullptr;
};

/// A command line in trtexec's spelling.
class TrtexecArguments {
 public:
  /// Throws UsageError for an option that is unknown, or lacks its value.
  explicit TrtexecArguments(const std::vector<std::string>& words);

  bool has(const std::string& name) const;
  /// The option's last value; empty if it is not given.
  std::string get(const std::string& name) const;
  /// All values of the option, split at commas. An option may be given several times.
  std::vector<std::string> list(const std::string& name) const;
  /// The option's value. Throws UsageError unless it is a number of at least `least`.
  double number(const std::string& name, double otherwise, double least = 0) const;
  int integer(const std::string& name, int otherwise, int least = 0) const;

  struct Given {
    const TrtexecOption* option;
    std::string value;
  };
  const std::vector<Given>& all() const { return given_; }

 private:
  std::vector<Given> given_;
};

}  // namespace opwright::cli
