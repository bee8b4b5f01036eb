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

/// What a plan says of the ports of a plugin's step, compared with what the plugin says: the parts
/// of PlannedOperator::check() that all kinds of plugins have. Methods throw Error that begins with
/// `owner`, "layer 'l': plugin 'p': ".
class StoredPorts {
 public:
  StoredPorts(const KernelArgs& args, std::string owner) : args_(args), owner_(std::move(owner)) {}

  /// Unless there are so many inputs and outputs (-1: at least one output) and the candidate has as
  /// many. `may_be_absent`: whether an input may; null: none.
  void require_counts(size_t num_inputs, int num_outputs,
                      const std::function<bool(size_t)>& may_be_absent = nullptr) const;
  /// Unless the host can know the input's elements: a scalar or vector in LINEAR, INT32 or INT64.
  void require_shape_input(size_t input) const;
  /// Unless the output can lie where the input lies.
  void require_shared(int input, int output) const;
  /// Unless the plugin accepts the type and format of each of the first `num_inputs` inputs and of
  /// all outputs: `supports` is asked as in FormatSearch.
  void require_supported(
      int num_inputs,
      const std::function<bool(int pos, std::span<const DynamicPluginTensorDesc> ports)>& supports)
      const;
  void require_tactic(std::span<const int32_t> tactics) const;
  /// Unless the tactic is one that an `autotune` may list, which is not there to be asked: 0 to
  /// `most`.
  void require_tactic_number(int64_t most) const;
  /// Unless the workspace that the plan has is as large as the plugin wants it.
  void require_workspace(size_t wanted, int64_t stored) const;
  /// Throws Error that ends with what may be the cause and how to mend it.
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
