#pragma once

#include <optional>

#include "network/operator.h"
#include "threads/pool.h"

namespace opwright {

/// Enters the domain (which may be null) for the guard's lifetime. Code in a domain is foreign
/// code.
class DomainGuard {
 public:
  DomainGuard(ExecutionDomain* domain, Queue queue) : domain_(domain) {
    if (domain_ == nullptr) return;
    domain_->enter(queue);
    foreign_code_.emplace();
  }
  ~DomainGuard() {
    if (domain_ == nullptr) return;
    foreign_code_.reset();
    domain_->leave();
  }
  DomainGuard(const DomainGuard&) = delete;
  DomainGuard& operator=(const DomainGuard&) = delete;

 private:
  ExecutionDomain* const domain_;
  std::optional<threads::ForeignCode> foreign_code_;
};

}  // namespace opwright
