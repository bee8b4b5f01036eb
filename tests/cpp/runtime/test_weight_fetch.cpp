// Weights that are copied ahead of their steps, on a device whose two queues advance in any order.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>

#include "backend/backend.h"
#include "runtime/weight_fetch.h"

namespace opwright {
namespace {

class TwoQueues final : public Device {
 public:
  explicit TwoQueues(uint32_t seed) : random_(seed) {}

  const Backend& backend() const override { return get_device(DeviceType::kCPU).backend(); }
  DeviceType type() const override { return DeviceType::kGPU; }
  int ordinal() const override { return 0; }
  std::string identity() const override { return "two queues"; }
  std::string architecture() const override { return "none"; }
  void* allocate(size_t bytes) const override {
    return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  void free(void* memory) const noexcept override { std::free(memory); }
  void copy(void* to, const void* from, size_t bytes, Queue queue) const override {
    give(queue, [=] {
      std::memcpy(to, from, bytes);
      return true;
    });
  }
  void synchronize(Queue) const override {
    while (advance()) {
    }
    EXPECT_TRUE(queues_[0].empty() && queues_[1].empty()) << "queues wait for each other";
  }
  std::unique_ptr<Event> make_event(bool) const override { return std::make_unique<Mark>(*this); }
  std::shared_ptr<void> make_queue() const override {
    return {static_cast<void*>(&queues_[1]), [](void*) {}};
  }
  LaunchLimits launch_limits() const override { return {}; }
  std::shared_ptr<const DeviceFunction> load_function(const CodeObject&,
                                                      const std::string&) const override {
    return nullptr;
  }
  std::vector<Candidate> candidates(const Operator&, const CandidateQuery&) const override {
    return {};
  }
  void check_operator(const Operator&, const KernelArgs&) const override {}
  std::unique_ptr<Kernel> make_kernel(const Operator&, const KernelArgs&) const override {
    return nullptr;
  }
  std::vector<TensorFormat> formats(int) const override { return {}; }
  double time(Kernel&, void const* const*, void* const*, void*, int,
              const CacheScene&) const override {
    return 0;
  }

  /// Work that says whether it is done; it is tried again otherwise. Null is the run's queue.
  using Work = std::function<bool()>;
  void give(Queue queue, Work work) const {
    queues_[queue == nullptr ? 0 : 1].push_back(std::move(work));
  }
  /// The next work of one queue or the other; false where neither can go on.
  bool advance() const {
    const size_t first = random_() % 2;
    for (const size_t number : {first, 1 - first}) {
      std::deque<Work>& queue = queues_[number];
      if (queue.empty() || !queue.front()()) continue;
      queue.pop_front();
      return true;
    }
    return false;
  }

 private:
  static constexpr size_t kAlignment = 256;

  class Mark final : public Event {
   public:
    explicit Mark(const TwoQueues& device) : device_(device) {}
    void record(Queue queue) override {
      reached_ = std::make_shared<bool>(false);
      device_.give(queue, [reached = reached_] { return *reached = true; });
    }
    void synchronize() override { device_.synchronize(nullptr); }
    void make_wait(Queue queue) override {
      device_.give(queue, [reached = reached_] { return *reached; });
    }
    float milliseconds_since(Event&) override { return 0; }

   private:
    const TwoQueues& device_;
    std::shared_ptr<bool> reached_ = std::make_shared<bool>(true);
  };

  mutable std::mt19937 random_;
  mutable std::deque<Work> queues_[2];
};

/// A plan of random steps, each of which reads some weights.
Plan random_plan(std::mt19937& random) {
  Plan plan;
  plan.weight_streaming = true;
  Schedule& schedule = plan.schedules.emplace_back();
  const uint32_t steps = 1 + random() % 9, weights = 1 + random() % 6;
  for (uint32_t i = 0; i < weights; ++i) {
    const std::vector<unsigned char> bytes(1 + random() % 700,
                                           static_cast<unsigned char>(random() % 256));
    PlanTensor& tensor = schedule.tensors.emplace_back();
    tensor.location = PlanTensor::Location::kWeight;
    tensor.data = Blob::copy(bytes.data(), bytes.size());
  }
  for (uint32_t i = 0; i < steps; ++i) {
    PlanStep& step = schedule.steps.emplace_back();
    for (uint32_t inputs = random() % 3; inputs > 0; --inputs)
      step.inputs.push_back(static_cast<int32_t>(random() % (weights + 1)) - 1);
  }
  return plan;
}

/// Lets each step look at its weights when its queue has come to it.
void run_steps(const TwoQueues& device, const Schedule& schedule, const DeviceWeights& weights,
               WeightFetch& fetch, uint32_t first, uint32_t last, std::mt19937& random) {
  WeightFetch::Run run(fetch, nullptr, first, last);
  for (uint32_t step = first; step < last; ++step) {
    run.enter(step, nullptr);
    for (const int32_t input : schedule.steps[step].inputs) {
      if (input < 0) continue;
      const PlanTensor& tensor = schedule.tensors[static_cast<size_t>(input)];
      const void* address = fetch.address(static_cast<int>(step), tensor);
      EXPECT_EQ(address != nullptr, weights.streamed(tensor) != nullptr);
      if (address == nullptr) address = weights.address(tensor);
      device.give(nullptr, [address, &tensor] {
        EXPECT_EQ(std::memcmp(address, tensor.data.data(), tensor.data.size()), 0);
        return true;
      });
    }
    run.leave(step, nullptr);
    for (uint32_t work = random() % 4; work > 0; --work) device.advance();
  }
}

TEST(WeightFetch, EachStepFindsItsWeightsInWhateverOrderQueuesAdvance) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const TwoQueues device(seed);
    const Plan plan = random_plan(random);
    const Schedule& schedule = plan.schedules[0];
    const size_t all = DeviceWeights::streamable(plan);
    const size_t budget = seed % 3 == 0 ? 0 : random() % (all + 1);
    const DeviceWeights weights(plan, device, nullptr, budget);
    EXPECT_LE(weights.resident(), budget);
    WeightFetch fetch(device, schedule, weights, nullptr, std::make_shared<LastUse>(device));
    const auto steps = static_cast<uint32_t>(schedule.steps.size());
    for (int runs = 0; runs < 3; ++runs) {
      const uint32_t cut = random() % (steps + 1);
      run_steps(device, schedule, weights, fetch, 0, cut, random);
      run_steps(device, schedule, weights, fetch, cut, steps, random);
    }
    device.synchronize(nullptr);
    if (HasFailure()) return;
  }
}

TEST(WeightFetch, WithoutTheFlagNothingIsStreamed) {
  std::mt19937 random(1);
  Plan plan = random_plan(random);
  plan.weight_streaming = false;
  const TwoQueues device(1);
  const DeviceWeights weights(plan, device, nullptr, 0);
  EXPECT_EQ(DeviceWeights::streamable(plan), 0U);
  EXPECT_EQ(WeightFetch::size(plan.schedules[0], weights), 0U);
  for (const PlanTensor& tensor : plan.schedules[0].tensors)
    EXPECT_EQ(weights.streamed(tensor), nullptr);
}

}  // namespace
}  // namespace opwright
