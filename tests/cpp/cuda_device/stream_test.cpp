#include <thread>

#include "cuda_device/emulated.h"

namespace opwright::cuda {
namespace {

TEST(CudaStreams, EventsOrderStreams) {
  const CudaDevice& device = gpu();
  const DeviceScope scope(device);
  const Stream first(device), second(device);
  const Scale scale(device);
  const DeviceArray<float> in(device, {1, 2, 3}), middle(device, {0, 0, 0}), out(device, {0, 0, 0});
  const std::unique_ptr<Event> event = device.make_event(false);
  scale(in.data(), 2, 3, middle.data(), first.get());
  event->record(first.get());
  event->make_wait(second.get());
  scale(middle.data(), 10, 3, out.data(), second.get());
  EXPECT_EQ(out.read(second.get()), (std::vector<float>{20, 40, 60}));
}

TEST(CudaStreams, QueuesAreMade) {
  const CudaDevice& device = gpu();
  const DeviceScope scope(device);
  const Scale scale(device);
  const DeviceArray<float> in(device, {1, 2, 3}), middle(device, {0, 0, 0}), out(device, {0, 0, 0});
  const std::unique_ptr<Event> event = device.make_event(false);
  {
    const std::shared_ptr<void> first = device.make_queue(), second = device.make_queue();
    EXPECT_NE(first, second);
    EXPECT_EQ(message([&] { device.check_queue(first.get()); }), "");
    scale(in.data(), 2, 3, middle.data(), first.get());
    event->record(first.get());
    event->make_wait(second.get());
    scale(middle.data(), 10, 3, out.data(), second.get());
    event->record(second.get());
  }
  event->synchronize();  // queues that go do what they were given first
  EXPECT_EQ(out.read(nullptr), (std::vector<float>{20, 40, 60}));
}

TEST(CudaStreams, EventsTellTheTime) {
  const CudaDevice& device = gpu();
  const DeviceScope scope(device);
  const Stream stream(device);
  const std::unique_ptr<Event> begin = device.make_event(true), end = device.make_event(true);
  begin->record(stream.get());
  end->record(stream.get());
  end->synchronize();
  EXPECT_GE(end->milliseconds_since(*begin), 0.0F);
}

TEST(CudaStreams, OfTheDeviceAreTaken) {
  const CudaDevice& device = gpu();
  const Stream stream(device);
  EXPECT_EQ(message([&] { device.check_queue(stream.get()); }), "");
  EXPECT_EQ(message([&] { device.check_queue(nullptr); }), "");
}

TEST(CudaStreams, OfAnotherDeviceOrContextAreRefused) {
  const CudaDevice& device = gpu();
  const Stream foreign(gpu(1));
  std::string text = message([&] { device.check_queue(foreign.get()); });
  EXPECT_NE(text.find("another GPU"), std::string::npos) << text;
  const OwnContext own;
  const Stream other(gpu(-1));
  text = message([&] { device.check_queue(other.get()); });
  EXPECT_NE(text.find("another CUDA context"), std::string::npos) << text;
}

TEST(CudaStreams, ThatAreDestroyedAreRefused) {
  const CudaDevice& device = gpu();
  Stream stream(device);
  stream.destroy();
  const std::string text = message([&] { device.check_queue(stream.get()); });
  EXPECT_NE(text.find("is no CUDA stream, or is destroyed"), std::string::npos) << text;
}

TEST(CudaStreams, MayBeUsedByAnyThread) {
  const CudaDevice& device = gpu();
  const DeviceArray<float> array(device, {1, 2, 3});
  std::vector<float> read;
  std::thread([&] {
    const Stream stream(device);
    read = array.read(stream.get());
    device.free(device.allocate(100));
  }).join();
  EXPECT_EQ(read, (std::vector<float>{1, 2, 3}));
}

TEST(CudaStreams, AnIllegalAddressLosesTheContextAndIsSaid) {
  const OwnContext own;  // which is lost
  const CudaDevice& device = gpu(-1);
  const Stream stream(device);
  const Scale scale(device);
  const DeviceArray<float> in(device, {1, 2, 3});
  scale(in.data(), 2, 3, reinterpret_cast<float*>(64), stream.get());
  try {
    device.synchronize(stream.get());
    FAIL();
  } catch (const DeviceLostError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << text;
    EXPECT_NE(text.find("context is lost"), std::string::npos) << text;
  }
  EXPECT_THROW(device.allocate(64), DeviceLostError);  // for good
}

class CountingKernel final : public Kernel {
 public:
  CountingKernel(const Scale& scale, ExecutionDomain* domain) : scale_(scale), domain_(domain) {}
  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) override {
    ++runs;
    scale_(static_cast<const float*>(inputs[0]), 2, 3, static_cast<float*>(outputs[0]), queue);
    queue_ = queue;
  }
  ExecutionDomain* domain() const override { return domain_; }
  int runs = 0;
  Queue queue_ = nullptr;

 private:
  const Scale& scale_;
  ExecutionDomain* const domain_;
};

TEST(CudaTiming, RunsTheKernelWithinItsDomainAndGivesAMedian) {
  const CudaDevice& device = gpu();
  const DeviceScope scope(device);
  const Scale scale(device);
  struct Domain final : ExecutionDomain {
    void enter(Queue queue) override { entered = queue; }
    void leave() noexcept override { ++left; }
    Queue entered = nullptr;
    int left = 0;
  } domain;
  CountingKernel kernel(scale, &domain);
  const DeviceArray<float> in(device, {1, 2, 3}), out(device, {0, 0, 0});
  const void* inputs[] = {in.data()};
  void* outputs[] = {out.data()};
  EXPECT_GE(device.time(kernel, inputs, outputs, nullptr, 5, {}), 0.0);
  EXPECT_GE(kernel.runs, 6);
  EXPECT_NE(domain.entered, nullptr);
  EXPECT_EQ(domain.entered, kernel.queue_);
  EXPECT_EQ(domain.left, 1);
  EXPECT_EQ(out.read(nullptr), (std::vector<float>{2, 4, 6}));
}

}  // namespace
}  // namespace opwright::cuda
