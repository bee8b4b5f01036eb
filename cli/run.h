#pragma once

#include <memory>
#include <vector>

#include "npy.h"
#include "runtime/context.h"

namespace opwright::cli {

/// A context with its input arrays and memory for its outputs.
class Runner {
 public:
  explicit Runner(std::shared_ptr<Engine> engine);
  /// Throws Error when type or shape do not fit.
  void set_input(int index, NpyArray array);
  /// Allocates the outputs. Throws Error naming an input that is missing.
  void prepare();
  Context& context() { return context_; }
  /// An output of the last run; shares the runner's memory.
  NpyArray output(int index);

 private:
  std::shared_ptr<Engine> engine_;
  Context context_;
  std::vector<NpyArray> inputs_;
  std::vector<Blob> outputs_;
};

}  // namespace opwright::cli
