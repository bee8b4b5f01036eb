#include "backend/cpu/cpu_device.h"
#include "cpu/run_kernel.h"

namespace opwright::testing {

const Device& test_device() { return cpu_device(); }

}  // namespace opwright::testing
