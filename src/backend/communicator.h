#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "backend/device.h"

namespace opwright {

class HostCommunicator;
struct MeetingPlace;

/// A buffer of each rank's device, which the devices of all ranks read and write.
class PeerBuffers {
 public:
  virtual ~PeerBuffers() = default;
  /// Bytes of each buffer. They are 0 at first.
  virtual size_t bytes() const = 0;
  /// The buffers' addresses on this rank's device, by rank.
  virtual std::span<void* const> buffers() const = 0;
  /// Addresses of this rank's device: the buffers, first this rank's, then the next one's, and so
  /// on; 1024 counters of four bytes, 0 at first; and a word of eight, which becomes 1 when the
  /// communicator ends. Kernels that wait for other ranks then end.
  struct Table {
    void *buffers = nullptr, *counters = nullptr, *stop = nullptr;
  };
  virtual Table table() const = 0;
  /// Makes the next work on the queue wait for the last one, which may be on another queue.
  virtual void begin(Queue queue) = 0;
  /// The work has been given to the queue.
  virtual void end(Queue queue) = 0;
};

/// The ranks' communicator of a backend's library of collectives, on one device.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;
  /// The buffers of that name, which live as long as the communicator. All ranks ask for the same
  /// in the same order. The first time waits for all ranks. Null on all ranks where one device
  /// cannot reach another's memory. Throws Error where ranks ask for different ones.
  virtual PeerBuffers* peer_buffers(const std::string& name, size_t bytes) = 0;
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

/// A communicator as users make it: the ranks, which on a GPU also have one of the
/// backend's library. Each has a process of its own as a rule.
class Communicator {
 public:
  /// Waits until all ranks have come. Throws Error as HostCommunicator::join() does, and where the
  /// device's library of collectives fails.
  static std::shared_ptr<Communicator> join(std::string name, int rank, int ranks, double timeout,
                                            const DeviceId& device,
                                            const MeetingPlace* place = nullptr);
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
