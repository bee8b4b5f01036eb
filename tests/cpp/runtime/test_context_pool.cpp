#include <gtest/gtest.h>

#include <vector>

#include "runtime/call_shapes.h"
#include "runtime/context_pool.h"
#include "runtime/fake_plan.h"

namespace opwright {
namespace {

/// y = x; x [n, 2], w [n, 3], n in 1..4; k in 1..5.
Plan plan_of_two() {
  register_fake("TestNothing", {.run = [](const FakeRun&) {}});
  FakePlan plan;
  const Expr n = plan.extent("batch", "x", 0);
  const int x = plan.input("x", kFp32, {n, 2}, {1, 2}, {4, 2});
  plan.input("w", kFp32, {n, 3}, {1, 3}, {4, 3});
  plan.input("k", kInt64, {1}, {1}, {5}, true);
  plan.step("only", "TestNothing", {x}, {plan.output("y", kFp32, {n, 2})});
  return plan.finish();
}

TEST(ContextPool, ContextsAreReused) {
  ContextPool pool(Engine::load(plan_of_two(), {}));
  const Context* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    ContextPool::Lease lease(pool);
    if (first == nullptr) first = &lease.context();
    EXPECT_EQ(&lease.context(), first);
    EXPECT_EQ(pool.num_idle(), 0u);
    lease.give_back();
  }
  EXPECT_EQ(pool.num_idle(), 1u);
  { ContextPool::Lease dropped(pool); }
  EXPECT_EQ(pool.num_idle(), 0u);
}

TEST(ContextPool, CallsAtOnceHaveContextsOfTheirOwn) {
  ContextPool pool(Engine::load(plan_of_two(), {}));
  ContextPool::Lease a(pool), b(pool);
  EXPECT_NE(&a.context(), &b.context());
  a.give_back();
  b.give_back();
  EXPECT_EQ(pool.num_idle(), 2u);
}

void make_burst(ContextPool& pool, size_t size) {
  std::vector<ContextPool::Lease> leases;
  leases.reserve(size);
  for (size_t i = 0; i < size; ++i) leases.emplace_back(pool);
  for (ContextPool::Lease& lease : leases) lease.give_back();
}

TEST(ContextPool, ContextsOfABurstAreDroppedLater) {
  ContextPool pool(Engine::load(plan_of_two(), {}));
  make_burst(pool, 20);
  EXPECT_EQ(pool.num_idle(), 20u);
  for (size_t i = 0; i < 2 * ContextPool::kPeriod; ++i) make_burst(pool, 1);
  EXPECT_EQ(pool.num_idle(), 1u);
}

TEST(ContextPool, ManyCallersKeepTheirContexts) {
  ContextPool pool(Engine::load(plan_of_two(), {}));
  // Not all of the time as many.
  for (size_t i = 0; i < 20 * ContextPool::kPeriod; ++i) {
    make_burst(pool, i % 50 == 0 ? 8 : 1);
    EXPECT_LE(pool.num_idle(), 8u);
    if (i > 50) {
      EXPECT_EQ(pool.num_idle(), 8u);
    }
  }
}

TEST(CallShapes, RefuseWhatAContextWould) {
  const auto engine = Engine::load(plan_of_two(), {});
  CallShapes shapes(*engine);
  int64_t k = 3;
  const std::vector<const void*> addresses = {nullptr, nullptr, &k};
  const auto check = [&](const Shape& x, const Shape& w) {
    shapes.check(std::vector<Shape>{x, w, {1}}, addresses);
  };
  check({2, 2}, {2, 3});
  EXPECT_ERROR(check({5, 2}, {5, 3}), "shape 5x2 of input 'x' is outside of profile 0");
  EXPECT_ERROR(check({2, 2}, {2}), "input 'w' has rank 2");
  EXPECT_ERROR(check({2, 2}, {3, 3}), "must be equal");
  k = 9;
  EXPECT_ERROR(check({2, 2}, {2, 3}), "the values 9 of shape input 'k' are outside");
  k = 5;
  check({2, 2}, {2, 3});
  const std::vector<const void*> none = {nullptr, nullptr, nullptr};
  EXPECT_ERROR(shapes.check(std::vector<Shape>{{2, 2}, {2, 3}, {1}}, none),
               "the address of shape input 'k' is not set");
}

}  // namespace
}  // namespace opwright
