#pragma once

#include <functional>
#include <span>
#include <string>

#include "backend/gpu/device_sources.h"
#include "base/blob.h"

namespace opwright::cuda {

/// NVRTC, NVIDIA's compiler of CUDA C++, loaded when first used. Thread safe.
class Nvrtc {
 public:
  /// Loads the library from the file that OPWRIGHT_NVRTC names; else the loader's, one in a folder
  /// of OPWRIGHT_CUDA_PATH (separated by colons), or the CUDA toolkit's. Throws Error naming the
  /// package to install where there is no library.
  static const Nvrtc& get();

  /// Version and file of the library. They decide what code comes out.
  const std::string& identity() const { return identity_; }
  /// The target for code that runs on `architecture`: itself ("sm_90", a cubin) where this NVRTC
  /// knows it, else the greatest architecture below it as "compute_90", PTX that the driver
  /// compiles.
  std::string target_for(int architecture) const;
  /// As target_for(), always PTX: "compute_80" for all from sm_80 on.
  std::string portable_target_for(int architecture) const;
  /// Compiles the source to a cubin, or to PTX for a "compute_..." target. The source includes
  /// `headers`. Throws Error that begins with `name` and quotes the compiler. The calling thread
  /// asks `gives_up` meanwhile. Once that is true, NVRTC 13 and newer ends the compilation with an
  /// Error. Null: nobody asks.
  Blob compile(const std::string& source, const std::string& name, const std::string& target,
               std::span<const gpu::DeviceSource> headers, std::span<const std::string> options,
               const std::function<bool()>* gives_up = nullptr) const;

 private:
  struct Functions;
  Nvrtc();
  int newest_known(int architecture) const;

  const Functions* functions_;   // never unloaded
  std::string name_, identity_;  ///< for messages, and as part of cache keys
  bool knows_minimal_ = false;   ///< whether it has the option --minimal, as since CUDA 12.4
};

}  // namespace opwright::cuda
