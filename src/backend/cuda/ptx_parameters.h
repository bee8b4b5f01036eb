#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace opwright::cuda {

/// A parameter of a kernel in PTX.
struct PtxParameter {
  bool is_pointer = false;  ///< whether it may be a pointer: an integer of 64 bits
  bool is_read = false;     ///< whether the kernel's text names it
};

/// The parameters of a kernel; nullopt where the text has no such kernel.
std::optional<std::vector<PtxParameter>> ptx_parameters(std::string_view ptx,
                                                        std::string_view kernel);

}  // namespace opwright::cuda
