#include "run/run_script.h"

#include "base/error.h"
#include "run/follow.h"
#include "run/layout.h"
#include "run/mutate.h"
#include "run/run_plan.h"
#include "run/script.h"
#include "run/seeds.h"

namespace opwright::fuzz {

// A script is: what stands for the seed (2 bytes); how many changes there are, and whether what
// they break is mended; the changes; what run_plan() reads.

namespace {

/// The plan, as the first part of the script makes it.
Plan changed_plan(const Seed& seed, Script& script, std::string* log) {
  const uint8_t how = script.byte();
  if (log != nullptr) *log += str("seed ", seed.name, "\n");
  Plan plan = seed.plan;
  const int changes = how % 8 == 7 ? 6 : how % 8 > 4 ? how % 8 - 3 : how % 8;
  for (int i = 0; i < changes; ++i) mutate(plan, script, log);
  if (how / 8 % 8 != 7) {
    if (log != nullptr) *log += how / 64 == 3 ? "mended\n" : "shapes inferred, mended\n";
    if (how / 64 != 3) follow(plan);
    mend(plan, seed.plan);
  }
  return plan;
}

}  // namespace

uint16_t seed_id(size_t seed) {
  uint32_t hash = 2166136261u;
  for (const char c : seeds()[seed].name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return static_cast<uint16_t>(hash ^ hash >> 16);
}

size_t seed_of(const uint8_t* data, size_t size) {
  static const std::vector<uint16_t>* const ids = [] {
    auto* list = new std::vector<uint16_t>();
    for (size_t i = 0; i < seeds().size(); ++i) list->push_back(seed_id(i));
    return list;
  }();
  Script script(data, size);
  const uint16_t low = script.byte();
  const auto id = static_cast<uint16_t>(low | script.byte() << 8);
  for (size_t i = 0; i < ids->size(); ++i)
    if ((*ids)[i] == id) return i;
  return id % ids->size();
}

void run_script(const uint8_t* data, size_t size, std::string* log) {
  const Seed& seed = seeds()[seed_of(data, size)];
  Script script(data, size);
  script.byte(), script.byte();
  Plan plan = changed_plan(seed, script, log);
  run_plan(std::move(plan), script, log);
}

std::string describe_script(const uint8_t* data, size_t size) {
  const Seed& seed = seeds()[seed_of(data, size)];
  Script script(data, size);
  script.byte(), script.byte();
  std::string log;
  changed_plan(seed, script, &log);
  return log;
}

}  // namespace opwright::fuzz
