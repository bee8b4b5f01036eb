// Runs engines that scripts make of valid ones (run/run_script.h): whatever is changed in a plan,
// nothing comes out but Error, and no memory is touched but the engine's own.

#include <cstring>
#include <string>

#include "run/run_plan.h"
#include "run/run_script.h"
#include "run/seeds.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  opwright::fuzz::use_one_thread();
  opwright::fuzz::check_seeds();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  opwright::fuzz::run_script(data, size);
  return 0;
}
