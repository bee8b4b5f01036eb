#pragma once

#include <string>

/// \file
/// Ranges in the time line of NVIDIA's tools (Nsight Systems). A tool that attaches to a process
/// names its library in NVTX_INJECTION64_PATH. All ranges are in the domain "Opwright".
namespace opwright::nvtx {

/// Whether a tool listens. The first call looks for the tool.
bool is_there();
/// Begins a range of the calling thread. Does nothing where no tool listens.
void push(const std::string& name);
/// Ends the calling thread's last range.
void pop();

}  // namespace opwright::nvtx
