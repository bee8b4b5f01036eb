#pragma once

#include "network/operator.h"

namespace opwright {

/// Enters the domain (which may be null) for the guard's lifetime.
class DomainGuard {
 public:
  DomainGuard(ExecutionDomain* domain, Queue queue) : domain_(domain) {
    if (domain_ != nullptr) domain_->enter(queue);
  }
  ~DomainGuard() {
    if (domain_ != nullptr) domain_->leave();
  }
  DomainGuard(const DomainGuard&) = delete;
  DomainGuard& operator=(const DomainGuard&) = delete;

 private:
  ExecutionDomain* const domain_;
};

}  // namespace opwright
