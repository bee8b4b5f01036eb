#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <span>

struct dnnl_memory {
  dnnl::memory::desc desc;
  void* data;
};

namespace dnnl::plain {

/// The memory that a primitive is executed with, by argument number.
class Arguments {
 public:
  explicit Arguments(std::span<const dnnl_exec_arg_t> all) : all_(all) {}
  /// Address of the argument; null where there is none of that number.
  void* find(int number) const {
    for (const dnnl_exec_arg_t& each : all_)
      if (each.arg == number) return each.memory->data;
    return nullptr;
  }
  template <class T = float>
  const T* in(int number) const {
    return static_cast<const T*>(find(number));
  }
  template <class T = float>
  T* out() const {
    return static_cast<T*>(find(DNNL_ARG_DST));
  }
  template <class T = float>
  T* scratch() const {
    return static_cast<T*>(find(DNNL_ARG_SCRATCHPAD));
  }

 private:
  std::span<const dnnl_exec_arg_t> all_;
};

/// The computation of a primitive, for one set of shapes.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Allocates nothing, and leaves the padding of blocks as it is.
  virtual void run(const Arguments& arguments) const = 0;
  /// The number of floats of scratch memory.
  virtual int64_t scratch_size() const { return 0; }

  memory::desc src, weights, bias, dst;
};

inline bool is_float(const memory::desc& desc) {
  return desc.get_data_type() == memory::data_type::f32;
}

/// Throws error unless an empty descriptor is allowed.
inline std::shared_ptr<const Operation> nothing(bool allow_empty) {
  if (!allow_empty) throw error(dnnl_unimplemented, "there is no such kernel");
  return nullptr;
}

/// The operations fused behind a primitive, applied to a row of its results.
class Epilogue {
 public:
  explicit Epilogue(const post_ops& steps) : steps_(steps.steps()) {}
  bool takes_sum() const {
    for (const post_ops::Step& step : steps_)
      if (step.is_sum) return true;
    return false;
  }
  /// `sums`: the results that were there before, added where the steps say so.
  void apply(float* values, int64_t count, const float* sums) const;

 private:
  std::vector<post_ops::Step> steps_;
};

void apply_eltwise(algorithm kind, float alpha, float beta, const float* x, float* y,
                   int64_t count);

}  // namespace dnnl::plain
