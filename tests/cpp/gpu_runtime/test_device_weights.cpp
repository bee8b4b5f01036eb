#include <numeric>

#include "gpu_runtime/test_gpu.h"
#include "runtime/device_weights.h"

namespace opwright {
namespace {

/// In a file, weights may begin at one place and have different lengths.
TEST(DeviceWeights, ThatBeginAtOneAddressHaveAllTheirBytes) {
  std::vector<float> values(1024);
  std::iota(values.begin(), values.end(), 0.0F);
  const Blob all = Blob::copy(values.data(), values.size() * sizeof(float));
  const Blob first(std::make_shared<Blob>(all), all.data(), sizeof(float));
  for (const bool is_short_first : {true, false}) {
    Plan plan;
    plan.schedules.resize(1);
    for (const bool is_short : {is_short_first, !is_short_first, is_short_first}) {
      PlanTensor& tensor = plan.schedules[0].tensors.emplace_back();
      tensor.location = PlanTensor::Location::kWeight;
      tensor.data = is_short ? first : all;
    }
    const DeviceScope scope(test_gpu());
    const DeviceWeights weights(plan, test_gpu(), nullptr, 0);
    for (const PlanTensor& tensor : plan.schedules[0].tensors) {
      std::vector<float> found(tensor.data.size() / sizeof(float), -1.0F);
      test_gpu().copy(found.data(), weights.address(tensor), tensor.data.size(), nullptr);
      test_gpu().synchronize(nullptr);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), values.begin()));
    }
  }
}

}  // namespace
}  // namespace opwright
