#include "compile/kernel_compiler.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/parallel.h"
#include "compile/candidate_failure.h"
#include "operators/builtin.h"

namespace opwright {

bool KernelCompiler::compiles(const GraphNode& node) const {
  // Plugins compile by themselves, and not on any thread. Bodies have nodes of their own.
  return !device_.is_host() && is_builtin_operator(node.op->kind());
}

std::string KernelCompiler::failure(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(key);
  return found == failures_.end() ? std::string() : found->second;
}

void KernelCompiler::add_failure(const std::string& key, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  failures_.emplace(key, reason);
}

PlannedOperatorPtr KernelCompiler::plan(const Work& work, bool is_build_thread,
                                        const std::atomic<bool>* is_ended) {
  const GraphNode& node = *work.node;
  const Candidate& candidate = work.candidate;
  KernelArgs args;
  args.layer = node.name;
  args.candidate = &candidate;
  args.inputs = work.ports.inputs;
  args.outputs = work.ports.outputs;
  args.device = &device_;
  args.hardware_compatibility = config_.hardware_compatibility;
  args.services = &config_.services;
  if (!compiles(node)) return node.op->plan(args);
  if (const std::string known = failure(work.key); !known.empty()) fail(known);
  const Deadline deadline(config_.kernel_seconds);
  std::exception_ptr end;  // the exception that ends the build
  std::atomic<bool> has_end = false;
  const std::thread::id thread = std::this_thread::get_id();
  const std::function<bool()> gives_up = [&] {
    if (is_build_thread && !has_end && std::this_thread::get_id() == thread) {
      try {
        if (config_.interrupt_check) config_.interrupt_check();
        budget_.check_time("compiling a kernel of layer '", node.name, "', candidate ",
                           label_of(candidate));
      } catch (...) {
        end = std::current_exception();
        has_end = true;
      }
    }
    return has_end || (is_ended != nullptr && *is_ended) || deadline.has_passed();
  };
  args.gives_up = &gives_up;
  try {
    return node.op->plan(args);
  } catch (const DeviceLostError&) {
    throw;
  } catch (const Error& error) {
    if (end) std::rethrow_exception(end);
    if ((is_ended != nullptr && *is_ended) || !(work.has_constants || deadline.has_passed())) throw;
    const std::string reason = deadline.has_passed()
                                   ? str("its kernel was not compiled within ",
                                         config_.kernel_seconds, " seconds (kernel_seconds)")
                                   : without_layer(error.what(), node);
    add_failure(work.key, reason);
    fail_with(error.code(), reason);
  }
}

void KernelCompiler::compile(std::span<const Work> work, const Progress& progress) {
  const auto total = static_cast<int64_t>(work.size());
  if (total == 0) return;
  const std::thread::id builder = std::this_thread::get_id();
  std::atomic<int64_t> next = 0;
  std::atomic<int> done = 0, running = 0;
  std::atomic<bool> is_ended = false;
  const auto check = [&] {
    progress(done, static_cast<int>(total));
    if (config_.interrupt_check) config_.interrupt_check();
    budget_.check_time("compiling kernels");
  };
  const auto compile_next = [&](bool is_builder) {
    const int64_t i = next++;
    if (i >= total) {
      // An interrupt ends the other threads' last kernels, too.
      for (int before = done; is_builder && running > 0 && !is_ended; before = done) {
        constexpr auto kPause = std::chrono::milliseconds(5);
        std::this_thread::sleep_for(kPause);
        if (config_.interrupt_check) config_.interrupt_check();
        budget_.check_time("compiling kernels");
        if (done != before) check();
      }
      return false;
    }
    if (is_builder) check();
    ++running;
    try {
      plan(work[static_cast<size_t>(i)], is_builder, &is_ended);
    } catch (...) {
      --running;
      // tune() reports a candidate that fails.
      rethrow_end(std::current_exception());
      ++done;
      return true;
    }
    --running;
    ++done;
    return true;
  };
  parallel_for(std::min<int64_t>(total, thread_count()), 1, [&](int64_t begin, int64_t end) {
    const bool is_builder = std::this_thread::get_id() == builder;
    try {
      for (int64_t task = begin; task < end; ++task)
        while (!is_ended && compile_next(is_builder)) {
        }
    } catch (...) {
      is_ended = true;
      throw;
    }
  });
}

}  // namespace opwright
