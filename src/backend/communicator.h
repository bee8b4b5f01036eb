#pragma once

#include <memory>
#include <string>

#include "backend/device.h"

namespace opwright {

class HostCommunicator;

/// The ranks' communicator of a backend's library of collectives, on one device.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;
  /// Throws Error that begins with `what` and names the rank at fault, where it has failed.
  virtual void require_well(const std::string& what) const = 0;
};

/// A communicator of a backend's library of collectives, as code beside the kernels calls it.
struct CommunicatorUse {
  void* handle = nullptr;  ///< the library's own: an `ncclComm_t`
  int rank = 0, ranks = 1;
  /// Nothing ends the communicator while this lives. The thread that got it drops it.
  std::shared_ptr<const void> hold;
};

/// A communicator as users make it: the ranks of one host, which on a GPU also have one of the
/// backend's library. Each has a process of its own as a rule.
class Communicator {
 public:
  /// Waits until all ranks have come. Throws Error as HostCommunicator::join() does, and where the
  /// device's library of collectives fails.
  static std::shared_ptr<Communicator> join(std::string name, int rank, int ranks, double timeout,
                                            const DeviceId& device);
  /// The communicator at this address, or null where there is none.
  static std::shared_ptr<Communicator> find(const void* address);
  /// Makes find() know it by another address, until it is forgotten or destroyed.
  void also_at(const void* address);
  static void forget(const void* address);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const;
  int rank() const;
  int ranks() const;
  double timeout() const;
  const Device& device() const { return device_; }
  HostCommunicator& host() const { return *host_; }
  /// Null on the CPU.
  DeviceCommunicator* on_device() const { return on_device_.get(); }
  /// Throws Error, which says why, where it has ended.
  void require_well() const;

 private:
  Communicator(const Device& device, std::shared_ptr<HostCommunicator> host);

  const Device& device_;
  const std::shared_ptr<HostCommunicator> host_;
  std::unique_ptr<DeviceCommunicator> on_device_;  ///< it uses host_
};

}  // namespace opwright
