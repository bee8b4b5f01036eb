#pragma once

#include "api/border.h"
#include "runtime/serialization.h"

namespace opwright {

class RuntimeConfigApi final : public IRuntimeConfig {
 public:
  explicit RuntimeConfigApi(
      ExecutionContextAllocationStrategy strategy = ExecutionContextAllocationStrategy::kSTATIC)
      : strategy_(strategy) {}
  void setExecutionContextAllocationStrategy(
      ExecutionContextAllocationStrategy strategy) noexcept override {
    strategy_ = strategy;
  }
  ExecutionContextAllocationStrategy getExecutionContextAllocationStrategy()
      const noexcept override {
    return strategy_;
  }

 private:
  ExecutionContextAllocationStrategy strategy_;
};

class SerializationConfigApi final : public ISerializationConfig {
 public:
  SerializationConfigApi(Log log, IErrorRecorder* recorder) : errors_(log, recorder) {}

  const SerializationConfig& config() const { return config_; }

  bool setFlags(SerializationFlags flags) noexcept override {
    return errors_.run([&] { config_.set_bits(flags); });
  }
  SerializationFlags getFlags() const noexcept override { return config_.bits; }
  bool clearFlag(SerializationFlag flag) noexcept override {
    return errors_.run([&] { config_.clear(flag); });
  }
  bool setFlag(SerializationFlag flag) noexcept override {
    return errors_.run([&] { config_.set(flag); });
  }
  bool getFlag(SerializationFlag flag) const noexcept override {
    return errors_.guard(false, [&] { return config_.has(flag); });
  }

 private:
  ErrorReport errors_;
  SerializationConfig config_;
};

}  // namespace opwright
