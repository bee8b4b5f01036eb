#include "plan/trusted.h"

#include <list>
#include <map>
#include <mutex>

#include "base/library.h"
#include "base/sha256.h"

namespace opwright {
namespace {

/// The most plans that are remembered, those that were built or used last. A process that builds
/// engines for ever keeps a few megabytes.
constexpr size_t kMostPlans = size_t{1} << 14U;

/// Plans by a cryptographic hash, so that no file can pass for a trusted plan. Neither structure
/// nor code of the plans is kept.
struct Trusted {
  LibraryLock mutex;
  std::list<Sha256::Digest> by_use;  // the most recently used first
  std::map<Sha256::Digest, std::list<Sha256::Digest>::iterator> plans;
};
Trusted& trusted() { return Library::part<Trusted>(); }

bool needs_trust(const Plan& plan) { return !plan.code.empty() || !plan.requirements.empty(); }

/// Hash of the structure and of each code object, with the size before each.
Sha256::Digest digest(const Plan& plan) {
  Sha256 hash;
  const auto add = [&hash](const Blob& bytes) {
    const uint64_t size[] = {bytes.size()};
    hash.update(std::as_bytes(std::span(size)));
    hash.update(bytes.bytes());
  };
  add(serialize_structure(plan));
  for (const CodeObject& object : plan.code) add(object.bytes);
  return hash.finish();
}

}  // namespace

void trust_plan(const Plan& plan) {
  if (!needs_trust(plan)) return;
  const Sha256::Digest key = digest(plan);
  Trusted& set = trusted();
  const std::lock_guard lock(set.mutex);
  const auto [entry, is_new] = set.plans.try_emplace(key);
  if (!is_new) {
    set.by_use.splice(set.by_use.begin(), set.by_use, entry->second);
    return;
  }
  entry->second = set.by_use.insert(set.by_use.begin(), key);
  if (set.plans.size() <= kMostPlans) return;
  set.plans.erase(set.by_use.back());
  set.by_use.pop_back();
}

void trust_as(const Plan& known, const Plan& changed) {
  if (is_trusted(known)) trust_plan(changed);
}

bool is_trusted(const Plan& plan) {
  if (!needs_trust(plan)) return false;
  Trusted& set = trusted();
  {
    const std::lock_guard lock(set.mutex);
    if (set.plans.empty()) return false;
  }
  const Sha256::Digest key = digest(plan);
  const std::lock_guard lock(set.mutex);
  const auto found = set.plans.find(key);
  if (found == set.plans.end()) return false;
  set.by_use.splice(set.by_use.begin(), set.by_use, found->second);
  return true;
}

size_t trusted_plans() {
  Trusted& set = trusted();
  const std::lock_guard lock(set.mutex);
  return set.plans.size();
}

}  // namespace opwright
