#pragma once

#include <cstdint>
#include <string>

#include "plan/plan.h"
#include "run/script.h"

namespace opwright::fuzz {

/// What became of the plans of this process.
struct Counts {
  uint64_t plans = 0;
  uint64_t refused = 0;    ///< before a context was made: the writer, the reader, validate(), load
  uint64_t too_large = 0;  ///< for this harness
  uint64_t runs = 0;       ///< that came to an end
  uint64_t errors = 0;     ///< runs that gave an Error
};
extern Counts counts;

/// Stores or validates, loads, inspects and runs a plan as the script says, with guarded memory.
/// Whatever the plan, nothing but Error and std::bad_alloc comes out of the engine, and both stay
/// in here; the process ends where something else happens. `log` hears what is done; null: nobody.
void run_plan(Plan plan, Script& script, std::string* log);

/// Throws Error unless the plan runs in all profiles, with the same results in guarded memory as
/// without.
void check_plan(const Plan& plan);

/// One thread per process, whatever library would start others.
void use_one_thread();

}  // namespace opwright::fuzz
