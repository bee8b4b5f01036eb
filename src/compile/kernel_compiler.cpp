#include "compile/kernel_compiler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/parallel.h"
#include "compile/candidate_failure.h"
#include "operators/builtin.h"

namespace opwright {
namespace {

/// How far threads are with a list that they work at together.
class SharedList {
 public:
  explicit SharedList(size_t size) : is_done_(size) {}

  /// The next entry for the calling thread; nothing where all are taken.
  std::optional<size_t> take() {
    const size_t next = next_++;
    return next < is_done_.size() ? std::optional(next) : std::nullopt;
  }
  void finish(size_t entry) {
    const std::lock_guard lock(mutex_);
    is_done_[entry] = true;
    ++count_;
    while (first_ < is_done_.size() && is_done_[first_]) ++first_;
    changed_.notify_all();
  }
  /// The number of entries that are done.
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  /// Whether as many entries are done, from the first one on.
  bool has(size_t entries) const {
    const std::lock_guard lock(mutex_);
    return first_ >= entries;
  }
  /// Waits for them, but no longer than it takes to notice an interrupt.
  void wait_for(size_t entries) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(5), [&] { return first_ >= entries; });
  }

 private:
  std::atomic<size_t> next_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<bool> is_done_;
  size_t count_ = 0;
  size_t first_ = 0;  // all entries before it are done
};

}  // namespace

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

size_t KernelCompiler::compile(std::span<const Work> work, const Progress& progress,
                               const Steps& steps) {
  const size_t total = work.size();
  if (total == 0) return 0;
  SharedList list(total);
  std::atomic<bool> is_ended = false;
  const auto compile_next = [&](bool is_build_thread) {
    const std::optional<size_t> i = list.take();
    if (!i) return false;
    try {
      plan(work[*i], is_build_thread, &is_ended);
    } catch (...) {
      list.finish(*i);
      // tune() reports a candidate that fails.
      rethrow_end(std::current_exception());
      return true;
    }
    list.finish(*i);
    return true;
  };
  std::optional<size_t> reported;
  const auto check = [&] {
    if (const size_t done = list.count(); done != reported) {
      reported = done;
      progress(static_cast<int>(done), static_cast<int>(total));
    }
    if (config_.interrupt_check) config_.interrupt_check();
    budget_.check_time("compiling kernels");
  };
  // An interrupt ends the other threads' last kernels, too.
  const auto wait_for = [&](size_t kernels) {
    while (!is_ended && !list.has(kernels)) {
      check();
      if (!compile_next(true)) list.wait_for(kernels);
    }
  };
  size_t step = 0;
  const auto run_steps = [&] {
    for (; step < steps.kernels.size() && steps.kernels[step] < total; ++step) {
      wait_for(steps.kernels[step]);
      if (is_ended || list.has(total)) break;
      check();
      steps.run(step);
    }
    wait_for(total);
    if (!is_ended) check();  // the other threads may have compiled all before the first look
  };
  parallel_for(std::min<int64_t>(static_cast<int64_t>(total) + 1, thread_count()), 1,
               [&](int64_t begin, int64_t) {
                 try {
                   // The first range is the calling thread's.
                   if (begin == 0) return run_steps();
                   while (!is_ended && compile_next(false)) {
                   }
                 } catch (...) {
                   is_ended = true;
                   throw;
                 }
               });
  return step;
}

}  // namespace opwright
