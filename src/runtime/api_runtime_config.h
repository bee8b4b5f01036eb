#pragma once

#include "opwright/runtime.h"

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

}  // namespace opwright
