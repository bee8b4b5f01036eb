#include "threads/cpu_budget.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace opwright::threads {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

int cores_of_mask() {
  // The kernel's mask may be larger than cpu_set_t.
  for (size_t cores = CPU_SETSIZE; cores <= (size_t{1} << 20); cores *= 2) {
    std::vector<cpu_set_t> mask(CPU_ALLOC_SIZE(cores) / sizeof(cpu_set_t));
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(getpid(), bytes, mask.data()) == 0)
      return std::max(1, CPU_COUNT_S(bytes, mask.data()));
  }
  return 1;
}

/// Cores that a control group of version 2 may use. Its file says "max 100000" or "150000 100000".
double quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoQuota;
}

double quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"),
      period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0 ? quota / period
                                                                                 : kNoQuota;
}

/// The smallest quota of the control group and of the groups around it.
double smallest_quota(const std::string& root, std::string group,
                      double (*quota)(const std::string&)) {
  double smallest = quota(root);
  while (group.size() > 1) {
    smallest = std::min(smallest, quota(root + group));
    group.erase(group.rfind('/'));
  }
  return smallest;
}

double cores_of_quota() {
  double smallest = kNoQuota;
  std::ifstream groups("/proc/self/cgroup");
  // "0::/path" is version 2, "4:cpu,cpuacct:/path" version 1.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      smallest = std::min(smallest, smallest_quota("/sys/fs/cgroup", group, quota_v2));
      continue;
    }
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');)
      if (name == "cpu")
        smallest =
            std::min(smallest, smallest_quota("/sys/fs/cgroup/" + controllers, group, quota_v1));
  }
  return smallest;
}

}  // namespace

int available_cores() {
  const double quota = cores_of_quota();
  const int cores = cores_of_mask();
  return quota >= cores ? cores : std::max(1, static_cast<int>(std::ceil(quota)));
}

}  // namespace opwright::threads
