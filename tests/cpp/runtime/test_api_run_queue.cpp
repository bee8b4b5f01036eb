#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "loggers.h"
#include "opwright/NvInferRuntime.h"
#include "plan/plan.h"
#include "runtime/fake_plan.h"

namespace opwright {
namespace {

class Counter final : public IRunListener {
 public:
  void runEnded(IQueuedRun& run) noexcept override {
    states.push_back(run.getState());
    ended.release();
  }
  std::vector<RunState> states;
  std::counting_semaphore<> ended{0};
};

/// out = x doubled; x [n, 3], n in 1..4. A run whose first element is negative fails; one whose
/// first element is 100 waits at the gate.
class RunQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    const FakeFunction run = [this](const FakeRun& run) {
      const float first = run.in<float>(0)[0];
      if (first < 0) fail("the kernel met a negative number");
      if (first == 100) {
        begun.release();
        open.acquire();
      }
      for (int64_t i = 0; i < run.output_shapes[0].numel(); ++i)
        run.out<float>(0)[i] = 2 * run.in<float>(0)[i];
    };
    register_fake("TestQueuedDouble", {.run = run});
    FakePlan plan;
    const Expr n = plan.extent("n", "x", 0);
    const int x = plan.input("x", kFp32, {n, 3}, {1, 3}, {4, 3});
    plan.step("double", "TestQueuedDouble", {x}, {plan.output("out", kFp32, {n, 3})});
    std::vector<std::byte> bytes;
    for (const Blob& piece : serialize(plan.finish()))
      bytes.insert(bytes.end(), piece.data(), piece.data() + piece.size());
    runtime.reset(createInferRuntime(logger));
    engine.reset(runtime->deserializeCudaEngine(bytes.data(), bytes.size()));
    ASSERT_NE(engine, nullptr) << logger.last();
    fake_calls().clear();
  }
  struct Memory {
    explicit Memory(float value, int64_t rows = 2)
        : x(static_cast<size_t>(rows * 3), value), out(x.size()), shape(Dims2(rows, 3)) {}
    std::vector<float> x, out;
    Dims shape;
  };
  std::unique_ptr<IQueuedRun> submit(IRunQueue& queue, Memory& memory,
                                     IRunListener* listener = nullptr) {
    void* const bindings[] = {memory.x.data(), memory.out.data()};
    return std::unique_ptr<IQueuedRun>(queue.submit(bindings, &memory.shape, listener, &result));
  }
  ErrorLogger logger;
  std::unique_ptr<IRuntime> runtime;
  std::unique_ptr<ICudaEngine> engine;
  std::counting_semaphore<> begun{0}, open{0};
  SubmitResult result = SubmitResult::kREFUSED;
};

TEST_F(RunQueueTest, RunsOfManyShapesInFlight) {
  const std::unique_ptr<IRunQueue> queue(createRunQueue(*engine, 3, 1000));
  ASSERT_NE(queue, nullptr);
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<std::unique_ptr<IQueuedRun>> runs;
  for (int i = 0; i < 200; ++i) {
    memory.push_back(std::make_unique<Memory>(static_cast<float>(i % 50), 1 + i % 4));
    runs.push_back(submit(*queue, *memory.back()));
    ASSERT_NE(runs.back(), nullptr) << logger.last();
    EXPECT_EQ(result, SubmitResult::kSUBMITTED);
  }
  for (int i = 0; i < 200; ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_TRUE(runs[at]->wait(-1));
    ASSERT_EQ(runs[at]->getState(), RunState::kDONE) << runs[at]->getErrorDesc();
    EXPECT_EQ(runs[at]->getErrorCode(), ErrorCode::kSUCCESS);
    EXPECT_STREQ(runs[at]->getErrorDesc(), "");
    EXPECT_EQ(memory[at]->out,
              std::vector<float>(memory[at]->out.size(), static_cast<float>(2 * (i % 50))));
    const Dims shape = runs[at]->getOutputShape("out");
    EXPECT_EQ(shape.nbDims, 2);
    EXPECT_EQ(shape.d[0], 1 + i % 4);
    EXPECT_EQ(runs[at]->getOutputShape("x").nbDims, -1);
    EXPECT_EQ(runs[at]->getOutputShape(nullptr).nbDims, -1);
    EXPECT_FALSE(runs[at]->cancel());
  }
  // Contexts are reused: no more than threads.
  EXPECT_LE(fake_calls()["double"].made, 3);
  EXPECT_EQ(fake_calls()["double"].runs, 200);
}

TEST_F(RunQueueTest, AFullQueueRefusesAtOnce) {
  const std::unique_ptr<IRunQueue> queue(createRunQueue(*engine, 1, 1));
  EXPECT_EQ(queue->getMaxThreads(), 1);
  EXPECT_EQ(queue->getMaxWaiting(), 1);
  Memory running(100), waiting(3), more(4);
  const auto first = submit(*queue, running);
  begun.acquire();
  EXPECT_EQ(first->getState(), RunState::kRUNNING);
  EXPECT_FALSE(first->wait(0.001));
  EXPECT_EQ(first->getOutputShape("out").nbDims, -1);
  const auto second = submit(*queue, waiting);
  EXPECT_EQ(second->getState(), RunState::kWAITING);
  EXPECT_EQ(queue->getNbWaiting(), 1);
  EXPECT_EQ(submit(*queue, more), nullptr);
  EXPECT_EQ(result, SubmitResult::kFULL);
  EXPECT_NE(logger.last().find("1 wait, of at most 1"), std::string::npos) << logger.last();
  EXPECT_NE(logger.last().find("IRunQueue::setLimits"), std::string::npos) << logger.last();
  EXPECT_TRUE(queue->setLimits(1, 2));
  const auto third = submit(*queue, more);
  ASSERT_NE(third, nullptr);
  open.release();
  third->wait(-1);
  EXPECT_EQ(more.out[5], 8);
}

TEST_F(RunQueueTest, CancellingFreesThePlaceAtOnce) {
  const std::unique_ptr<IRunQueue> queue(createRunQueue(*engine, 1, 1));
  Memory running(100), waiting(3), more(4);
  Counter counter;
  const auto first = submit(*queue, running);
  begun.acquire();
  EXPECT_FALSE(first->cancel());
  const auto second = submit(*queue, waiting, &counter);
  EXPECT_TRUE(second->cancel());
  EXPECT_TRUE(second->cancel());
  EXPECT_TRUE(second->wait(0));
  EXPECT_EQ(second->getState(), RunState::kCANCELLED);
  EXPECT_EQ(counter.states, std::vector{RunState::kCANCELLED});
  auto third = submit(*queue, more, &counter);
  ASSERT_NE(third, nullptr);
  third.reset();  // cancels it, too
  EXPECT_EQ(counter.states.size(), 2u);
  EXPECT_EQ(queue->getNbWaiting(), 0);
  open.release();
  first->wait(-1);
  EXPECT_EQ(waiting.out[0], 0);
  EXPECT_EQ(more.out[0], 0);
}

TEST_F(RunQueueTest, FailuresAreTold) {
  const std::unique_ptr<IRunQueue> queue(createRunQueue(*engine));
  EXPECT_EQ(queue->getMaxWaiting(), 256);
  EXPECT_GE(queue->getMaxThreads(), 1);
  Memory bad(-1), good(1);
  Counter counter;
  const auto failed = submit(*queue, bad, &counter);
  EXPECT_TRUE(failed->wait(60));
  EXPECT_EQ(failed->getState(), RunState::kFAILED);
  EXPECT_EQ(failed->getErrorCode(), ErrorCode::kINVALID_ARGUMENT);
  EXPECT_NE(std::string(failed->getErrorDesc()).find("negative number"), std::string::npos);
  EXPECT_NE(logger.last().find("negative number"), std::string::npos);
  EXPECT_EQ(counter.states, std::vector{RunState::kFAILED});
  const auto done = submit(*queue, good, &counter);
  done->wait(-1);
  EXPECT_EQ(good.out[0], 2);
  EXPECT_EQ(counter.states.back(), RunState::kDONE);
}

TEST_F(RunQueueTest, WrongArgumentsAreRefused) {
  EXPECT_EQ(createRunQueue(*engine, -1, 5), nullptr);
  EXPECT_EQ(createRunQueue(*engine, 1, -5), nullptr);
  const std::unique_ptr<IRunQueue> queue(createRunQueue(*engine, 1, 5));
  EXPECT_FALSE(queue->setLimits(5000, 5));
  EXPECT_EQ(queue->getMaxThreads(), 1);
  Memory large(1, 5);
  EXPECT_EQ(submit(*queue, large), nullptr);
  EXPECT_EQ(result, SubmitResult::kREFUSED);
  EXPECT_NE(logger.last().find("outside of profile 0"), std::string::npos) << logger.last();
  void* const bindings[] = {large.x.data(), large.out.data()};
  EXPECT_EQ(queue->submit(bindings, nullptr), nullptr);
  EXPECT_NE(logger.last().find("say its shape in inputShapes"), std::string::npos);
  EXPECT_EQ(queue->submit(nullptr, &large.shape), nullptr);
  EXPECT_NE(logger.last().find("array of addresses is null"), std::string::npos);
}

TEST_F(RunQueueTest, DeletingTheQueueCancelsWhatWaitsAndWaitsForWhatRuns) {
  std::unique_ptr<IRunQueue> queue(createRunQueue(*engine, 1, 5));
  Memory running(100), waiting(3);
  Counter counter;
  const auto first = submit(*queue, running), second = submit(*queue, waiting, &counter);
  begun.acquire();
  std::thread opener([&] {
    counter.ended.acquire();
    EXPECT_EQ(first->getState(), RunState::kRUNNING);
    open.release();
  });
  queue.reset();
  EXPECT_EQ(first->getState(), RunState::kDONE);
  EXPECT_EQ(second->getState(), RunState::kCANCELLED);
  EXPECT_FALSE(first->cancel());
  opener.join();
}

TEST_F(RunQueueTest, DeletingARunWaitsForIt) {
  const std::unique_ptr<IRunQueue> queue(createRunQueue(*engine, 1, 5));
  Memory running(100);
  auto run = submit(*queue, running);
  begun.acquire();
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    open.release();
  });
  run.reset();
  EXPECT_EQ(running.out[0], 200);
  opener.join();
}

}  // namespace
}  // namespace opwright
