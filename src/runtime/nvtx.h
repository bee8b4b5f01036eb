#pragma once

#include <string>

/// \file
/// Ranges in the time line of NVIDIA's tools (Nsight Systems): those that attach to a process name
/// their library in NVTX_INJECTION64_PATH. All is in the domain "Opwright".
namespace opwright::nvtx {

/// Whether a tool listens. It is looked for once, when it is first asked for.
bool is_there();
/// Begins a range of the calling thread. Where no tool listens, nothing happens.
void push(const std::string& name);
/// Ends the range that began last.
void pop();

}  // namespace opwright::nvtx
