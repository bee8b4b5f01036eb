#include "compile/enclosing_build.h"

#include <utility>

namespace opwright {
namespace {

thread_local const EnclosingBuild* innermost_build = nullptr;

}  // namespace

EnclosingBuild::EnclosingBuild(const BuilderConfig& config, const BuildBudget& budget,
                               const Deadline& end)
    : config_(config), budget_(budget), end_(end), before_(std::exchange(innermost_build, this)) {}
EnclosingBuild::~EnclosingBuild() { innermost_build = before_; }

const EnclosingBuild* EnclosingBuild::current() { return innermost_build; }

}  // namespace opwright
