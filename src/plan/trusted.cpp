#include "plan/trusted.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "plan/hash.h"

namespace opwright {
namespace {

struct TrustedPlan {
  Blob structure;
  std::vector<Blob> code;
};

/// Hashes only find what is there: bytes are compared, so a file cannot pass for trusted by a
/// collision.
struct Trusted {
  std::mutex mutex;
  std::unordered_multimap<uint64_t, TrustedPlan> plans;
  std::unordered_multimap<uint64_t, Blob> code;  // what the plans share
};
Trusted& trusted() {
  static auto* instance = new Trusted;
  return *instance;
}

bool has_host_code(const Plan& plan) {
  return std::any_of(plan.code.begin(), plan.code.end(),
                     [](const CodeObject& object) { return object.host; });
}

bool contains(const Trusted& set, uint64_t hash, const Blob& structure, const Plan& plan) {
  const auto is_same = [](const Blob& bytes, const CodeObject& object) {
    return bytes == object.bytes;
  };
  const auto [first, last] = set.plans.equal_range(hash);
  return std::any_of(first, last, [&](const auto& entry) {
    const TrustedPlan& known = entry.second;
    return known.structure == structure && std::equal(known.code.begin(), known.code.end(),
                                                      plan.code.begin(), plan.code.end(), is_same);
  });
}

Blob shared(Trusted& set, const Blob& bytes) {
  const uint64_t hash = hash128(bytes.bytes())[0];
  const auto [first, last] = set.code.equal_range(hash);
  const auto found =
      std::find_if(first, last, [&](const auto& entry) { return entry.second == bytes; });
  if (found != last) return found->second;
  return set.code.emplace(hash, bytes)->second;
}

}  // namespace

void trust_plan(const Plan& plan) {
  if (!has_host_code(plan)) return;
  const Blob structure = serialize_structure(plan);
  const uint64_t hash = hash128(structure.bytes())[0];
  Trusted& set = trusted();
  const std::lock_guard lock(set.mutex);
  if (contains(set, hash, structure, plan)) return;
  TrustedPlan entry{structure, {}};
  for (const CodeObject& object : plan.code) entry.code.push_back(shared(set, object.bytes));
  set.plans.emplace(hash, std::move(entry));
}

void trust_as(const Plan& known, const Plan& changed) {
  if (has_host_code(known) && is_trusted(known)) trust_plan(changed);
}

bool is_trusted(const Plan& plan) {
  const Blob structure = serialize_structure(plan);
  Trusted& set = trusted();
  const std::lock_guard lock(set.mutex);
  return contains(set, hash128(structure.bytes())[0], structure, plan);
}

}  // namespace opwright
