#pragma once

/// \file
/// Interfaces that the application implements and that contexts, runtimes and builders call:
/// profilers, memory for outputs, listeners to debug tensors, streams of engines.

#include "types.h"

namespace opwright {

namespace v_1_0 {

/// Receives the time of each layer after a run.
class IProfiler : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IProfiler", 1, 0}; }

  /// \param ms in milliseconds.
  virtual void reportLayerTime(char const* layerName, float ms) noexcept = 0;
  ~IProfiler() override = default;
};

/// Provides memory for an output whose size is known only once it is computed.
class IOutputAllocator : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IOutputAllocator", 1, 0}; }

  /// \param currentMemory the context's present address for the output.
  /// \param size in bytes.
  /// \return memory of at least `size` bytes, which may be `currentMemory`; null on failure.
  virtual void* reallocateOutput(char const* /*tensorName*/, void* /*currentMemory*/,
                                 uint64_t /*size*/, uint64_t /*alignment*/) noexcept {
    return nullptr;
  }

  /// As reallocateOutput(), in the order of the work on `stream`.
  virtual void* reallocateOutputAsync(char const* tensorName, void* currentMemory, uint64_t size,
                                      uint64_t alignment, cudaStream_t /*stream*/) {
    return reallocateOutput(tensorName, currentMemory, size, alignment);
  }

  /// Receives the output's shape as soon as it is known.
  virtual void notifyShape(char const* tensorName, Dims const& dims) noexcept = 0;
};

/// Receives debug tensors, which INetworkDefinition::markDebug() marked, as soon as a run has
/// computed them. Set by IExecutionContext::setDebugListener().
class IDebugListener : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IDebugListener", 1, 0}; }

  /// Called by the thread that runs the context, in the order of the run, once for each tensor
  /// whose debug state is on.
  /// \param addr the elements, dense and row-major (TensorFormat::kLINEAR), valid only during the
  ///     call; null if there are none. On the GPU they are valid in the order of `stream`.
  /// \param location kHOST on the CPU, kDEVICE on the GPU.
  /// \param type the tensor's type in the network, whatever type the engine computes in.
  /// \param shape the tensor's shape in this run.
  /// \param name the tensor's name in the network.
  /// \param stream the run's stream.
  /// \return false ends the run with an error.
  virtual bool processDebugTensor(void const* addr, TensorLocation location, DataType type,
                                  Dims const& shape, char const* name, cudaStream_t stream) = 0;

  ~IDebugListener() override = default;
};

/// Provides the bytes of an engine one after the other, for IRuntime::deserializeCudaEngine().
class IStreamReader : public IVersionedInterface {
 public:
  ~IStreamReader() override = default;
  IStreamReader() = default;
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IStreamReader", 1, 0}; }

  /// Writes the next bytes to `destination`, which is host memory.
  /// \return the number of bytes, at most `nbBytes`; 0 at the end of the stream, less on failure.
  virtual int64_t read(void* destination, int64_t nbBytes) = 0;

 protected:
  IStreamReader(IStreamReader const&) = default;
  IStreamReader(IStreamReader&&) = default;
  IStreamReader& operator=(IStreamReader const&) & = default;
  IStreamReader& operator=(IStreamReader&&) & = default;
};

/// Receives the bytes of an engine one after the other, from
/// IBuilder::buildSerializedNetworkToStream().
class IStreamWriter : public IVersionedInterface {
 public:
  ~IStreamWriter() override = default;
  IStreamWriter() = default;
  InterfaceInfo getInterfaceInfo() const noexcept final { return {"IStreamWriter", 1, 0}; }

  /// \return the number of accepted bytes; 0 or less on failure.
  virtual int64_t write(void const* data, int64_t nbBytes) = 0;

 protected:
  IStreamWriter(IStreamWriter const&) = default;
  IStreamWriter(IStreamWriter&&) = default;
  IStreamWriter& operator=(IStreamWriter const&) & = default;
  IStreamWriter& operator=(IStreamWriter&&) & = default;
};

}  // namespace v_1_0
using IProfiler = v_1_0::IProfiler;
using IOutputAllocator = v_1_0::IOutputAllocator;
using IDebugListener = v_1_0::IDebugListener;
using IStreamReader = v_1_0::IStreamReader;
using IStreamWriter = v_1_0::IStreamWriter;

/// The position from which an offset in a stream counts.
enum class SeekPosition : int32_t {
  kSET = 0,  ///< The start.
  kCUR = 1,  ///< The present position.
  kEND = 2,  ///< The end.
};

namespace v_1_0 {

/// As IStreamReader, with a position that can be set.
class IStreamReaderV2 : public IVersionedInterface {
 public:
  ~IStreamReaderV2() override = default;
  IStreamReaderV2() = default;
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IStreamReaderV2", 1, 0}; }

  /// Writes the next bytes to `destination`. Opwright reads into host memory, and with a null
  /// `stream`: the bytes are there on return.
  /// \return the number of bytes, at most `nbBytes`; 0 at the end of the stream, less on failure.
  virtual int64_t read(void* destination, int64_t nbBytes, cudaStream_t stream) noexcept = 0;
  /// Sets the position. Opwright reads from front to back and does not call it.
  virtual bool seek(int64_t offset, SeekPosition where) noexcept = 0;

 protected:
  IStreamReaderV2(IStreamReaderV2 const&) = default;
  IStreamReaderV2(IStreamReaderV2&&) = default;
  IStreamReaderV2& operator=(IStreamReaderV2 const&) & = default;
  IStreamReaderV2& operator=(IStreamReaderV2&&) & = default;
};

}  // namespace v_1_0
using IStreamReaderV2 = v_1_0::IStreamReaderV2;

namespace impl {
template <>
struct EnumMaxImpl<SeekPosition> {
  static constexpr int32_t kVALUE = 3;
};
}  // namespace impl

}  // namespace opwright
