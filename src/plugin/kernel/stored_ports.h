#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "network/operator.h"
#include "opwright/plugin_base.h"

namespace opwright {

/// Compares a plan's claims about the ports of a plugin's step with the plugin's own: the parts of
/// PlannedOperator::check() that all kinds of plugins share. Methods throw Error if a claim fails.
/// Messages begin with `owner`, "layer 'l': plugin 'p': ".
class StoredPorts {
 public:
  StoredPorts(const KernelArgs& args, std::string owner) : args_(args), owner_(std::move(owner)) {}

  /// Requires these numbers of inputs and outputs (-1: at least one output), also of the candidate.
  /// `may_be_absent`: whether an input may be absent; null: no input may.
  void require_counts(size_t num_inputs, int num_outputs,
                      const std::function<bool(size_t)>& may_be_absent = nullptr) const;
  /// Requires that the host can know the input's elements: a scalar or vector in LINEAR, INT32 or
  /// INT64.
  void require_shape_input(size_t input) const;
  /// Requires that the output can lie in the input's memory.
  void require_shared(int input, int output) const;
  /// Requires that the plugin accepts the type and format of each of the first `num_inputs` inputs
  /// and of all outputs; for `supports` see FormatSearch.
  void require_supported(
      int num_inputs,
      const std::function<bool(int pos, std::span<const DynamicPluginTensorDesc> ports)>& supports)
      const;
  void require_tactic(std::span<const int32_t> tactics) const;
  /// Requires a tactic from 0 to `most`: one that a missing `autotune` might list.
  void require_tactic_number(int64_t most) const;
  /// Requires that the plan's workspace is as large as the plugin needs it.
  void require_workspace(size_t wanted, int64_t stored) const;
  /// Throws Error that ends with the likely cause and how to mend it.
  template <class... Parts>
  [[noreturn]] void reject(const Parts&... parts) const {
    fail(owner_, parts...,
         "; the engine was built with another version of the plugin, or was changed: build it "
         "again");
  }

 private:
  const KernelArgs& args_;
  const std::string owner_;
};

}  // namespace opwright
