#pragma once

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// \file
/// The part of oneDNN's interface that the CPU backend uses, implemented by our own kernels for
/// processors that oneDNN is not built for. OPWRIGHT_ONEDNN=OFF puts this header in place of
/// oneDNN's. Names have oneDNN's meaning. Primitives compute in FP32. A primitive of another type
/// gets an empty descriptor, as from oneDNN where a processor lacks instructions; the backend then
/// converts.

namespace dnnl::plain {
class Operation;
}

enum dnnl_status_t { dnnl_success, dnnl_out_of_memory, dnnl_unimplemented };

struct dnnl_primitive_desc {
  std::shared_ptr<const dnnl::plain::Operation> operation;
};
using dnnl_primitive_desc_t = dnnl_primitive_desc*;
using const_dnnl_primitive_desc_t = const dnnl_primitive_desc*;
using const_dnnl_primitive_t = const dnnl::plain::Operation*;
using dnnl_stream_t = void*;
using dnnl_memory_t = struct dnnl_memory*;

struct dnnl_exec_arg_t {
  int arg;
  dnnl_memory_t memory;
};

enum {
  DNNL_ARG_SRC = 1,
  DNNL_ARG_SRC_0 = DNNL_ARG_SRC,
  DNNL_ARG_FROM = DNNL_ARG_SRC,
  DNNL_ARG_SRC_1 = 2,
  DNNL_ARG_DST = 17,
  DNNL_ARG_TO = DNNL_ARG_DST,
  DNNL_ARG_WEIGHTS = 33,
  DNNL_ARG_BIAS = 41,
  DNNL_ARG_SCRATCHPAD = 80,
  DNNL_ARG_MULTIPLE_SRC = 1024,
  DNNL_ARG_ATTR_SCALES = 4096,
  DNNL_ARG_ATTR_ZERO_POINTS = 8192,
};
constexpr int DNNL_ARG_ATTR_MULTIPLE_POST_OP(int index) { return 16384 * (index + 1); }
inline constexpr std::nullptr_t DNNL_MEMORY_NONE = nullptr;

namespace dnnl {

struct error : std::exception {
  dnnl_status_t status;
  const char* message;

  error(dnnl_status_t code, const char* text) : status(code), message(text) {}
  const char* what() const noexcept override { return message; }
  static void wrap_c_api(dnnl_status_t status, const char* message) {
    if (status != dnnl_success) throw error(status, message);
  }
};

enum class algorithm : uint8_t {
  eltwise_relu,
  eltwise_logistic,
  eltwise_tanh,
  eltwise_elu,
  eltwise_linear,
  eltwise_clip,
  eltwise_hardsigmoid,
  eltwise_hardswish,
  eltwise_swish,
  eltwise_gelu_erf,
  eltwise_gelu_tanh,
  undef,
  binary_add,
  binary_mul,
  pooling_max,
  pooling_avg_include_padding,
  pooling_avg_exclude_padding,
  lrn_across_channels,
  convolution_direct,
  deconvolution_direct,
};
enum class prop_kind : uint8_t { forward_inference };
enum class scratchpad_mode : uint8_t { user };

class engine {
 public:
  enum class kind : uint8_t { cpu };
  engine(kind, size_t) {}
};

class stream {
 public:
  stream() = default;
  explicit stream(const engine&) : there_(true) {}
  explicit operator bool() const { return there_; }
  dnnl_stream_t get() const { return nullptr; }
  void wait() {}

 private:
  bool there_ = false;
};

class memory {
 public:
  using dim = int64_t;
  using dims = std::vector<dim>;
  /// Types have oneDNN's numbers, which engine files contain.
  enum class data_type : uint8_t { undef = 0, f16 = 1, bf16 = 2, f32 = 3, s32 = 4, s8 = 5, u8 = 6 };
  enum class format_kind : uint8_t { any, blocked };
  enum class format_tag : uint8_t {
    any,
    a,
    aBc4b,
    aBc16b,
    aBc32b,
    aBcd4b,
    aBcd16b,
    aBcd32b,
    aBcde4b,
    aBcde16b,
    aBcde32b
  };
  static size_t data_type_size(data_type type);

  /// A layout of strides. The second axis may be in blocks.
  class desc {
   public:
    desc() = default;
    desc(dims extents, data_type type, dims strides);
    desc(dims extents, data_type type, format_tag tag);

    int get_ndims() const { return static_cast<int>(extents_.size()); }
    const dims& get_dims() const { return extents_; }
    dims get_padded_dims() const;
    const dims& get_strides() const { return strides_; }
    data_type get_data_type() const { return type_; }
    format_kind get_format_kind() const { return any_ ? format_kind::any : format_kind::blocked; }
    int get_inner_nblks() const { return block_ > 0 ? 1 : 0; }
    dims get_inner_blks() const { return block_ > 0 ? dims{block_} : dims{}; }
    dims get_inner_idxs() const { return block_ > 0 ? dims{1} : dims{}; }
    size_t get_size() const;
    bool operator==(const desc& other) const;

    /// Distance of the element at `position` of an axis from the first one.
    int64_t offset(int axis, int64_t position) const {
      if (block_ > 0 && axis == 1) return position / block_ * strides_[1] + position % block_;
      return strides_[static_cast<size_t>(axis)] * position;
    }
    int64_t extent(int axis) const { return extents_[static_cast<size_t>(axis)]; }

   private:
    dims extents_, strides_;
    data_type type_ = data_type::undef;
    int64_t block_ = 0;
    bool any_ = false;
  };

  memory(const desc& of, const engine&, void* data);
  dnnl_memory_t get() const { return own_.get(); }

 private:
  std::shared_ptr<dnnl_memory> own_;
};

class post_ops {
 public:
  struct Step {
    bool is_sum;
    algorithm kind;
    float alpha, beta;
  };
  void append_sum() { steps_.push_back({true, {}, 0, 0}); }
  void append_eltwise(algorithm kind, float alpha, float beta) {
    steps_.push_back({false, kind, alpha, beta});
  }
  /// Only products of bytes add tensors, and this implementation has none.
  void append_binary(algorithm kind, const memory::desc&) { steps_.push_back({true, kind, 0, 0}); }
  int len() const { return static_cast<int>(steps_.size()); }
  void get_params_eltwise(int index, algorithm& kind, float& alpha, float& beta) const {
    const Step& step = steps_[static_cast<size_t>(index)];
    kind = step.kind, alpha = step.alpha, beta = step.beta;
  }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

/// Attributes of a primitive. Scratch memory is always the caller's.
class primitive_attr {
 public:
  void set_scratchpad_mode(scratchpad_mode) {}
  void set_post_ops(const post_ops& steps) { steps_ = steps; }
  const post_ops& get_post_ops() const { return steps_; }
  /// Only products of bytes have zero points and scales, and this implementation has none.
  void set_zero_points_mask(int, int) { has_zero_points_ = true; }
  void set_scales_mask(int, int) { has_scales_ = true; }
  bool has_scales() const { return has_scales_; }
  bool has_zero_points() const { return has_zero_points_; }

 private:
  post_ops steps_;
  bool has_zero_points_ = false, has_scales_ = false;
};

class primitive_desc_base {
 public:
  explicit operator bool() const { return own_ != nullptr; }
  const_dnnl_primitive_desc_t get() const { return own_.get(); }
  void reset(dnnl_primitive_desc_t own) { own_.reset(own); }
  /// There is only one implementation of each primitive.
  bool next_impl() { return false; }
  const char* impl_info_str() const { return "plain"; }
  memory::desc src_desc() const;
  memory::desc weights_desc() const;
  memory::desc bias_desc() const;
  memory::desc dst_desc() const;
  memory::desc scratchpad_desc() const;

 protected:
  primitive_desc_base() = default;
  explicit primitive_desc_base(std::shared_ptr<const plain::Operation> operation);

 private:
  std::shared_ptr<dnnl_primitive_desc> own_;
};

class primitive {
 public:
  primitive() = default;
  explicit primitive(const_dnnl_primitive_desc_t desc) : operation_(desc->operation) {}
  explicit operator bool() const { return operation_ != nullptr; }
  const_dnnl_primitive_t get() const { return operation_.get(); }

 private:
  std::shared_ptr<const plain::Operation> operation_;
};

struct reorder : primitive {
  struct primitive_desc : primitive_desc_base {
    primitive_desc(const engine&, const memory::desc& from, const engine&, const memory::desc& to,
                   const primitive_attr& = {}, bool allow_empty = false);
  };
  reorder(const memory& from, const memory& to);
  void execute(const stream&, const memory& from, const memory& to) const;
};

struct matmul : primitive {
  struct primitive_desc : primitive_desc_base {
    primitive_desc() = default;
    primitive_desc(const engine&, const memory::desc& a, const memory::desc& b,
                   const memory::desc& bias, const memory::desc& y, const primitive_attr&,
                   bool allow_empty);
    primitive_desc(const engine& on, const memory::desc& a, const memory::desc& b,
                   const memory::desc& y, const primitive_attr& attributes, bool allow_empty)
        : primitive_desc(on, a, b, memory::desc(), y, attributes, allow_empty) {}
  };
};

/// The template of oneDNN's convolution_forward and deconvolution_forward, which take the same
/// arguments.
template <bool is_transposed>
struct convolution : primitive {
  struct primitive_desc : primitive_desc_base {
    primitive_desc() = default;
    primitive_desc(const engine&, prop_kind, algorithm, const memory::desc& x,
                   const memory::desc& weights, const memory::desc& bias, const memory::desc& y,
                   const memory::dims& strides, const memory::dims& dilates,
                   const memory::dims& pre, const memory::dims& post, const primitive_attr&,
                   bool allow_empty);
  };
};
using convolution_forward = convolution<false>;
using deconvolution_forward = convolution<true>;

struct pooling_forward : primitive {
  struct primitive_desc : primitive_desc_base {
    primitive_desc() = default;
    primitive_desc(const engine&, prop_kind, algorithm, const memory::desc& x,
                   const memory::desc& y, const memory::dims& strides, const memory::dims& window,
                   const memory::dims& dilates, const memory::dims& pre, const memory::dims& post,
                   const primitive_attr&, bool allow_empty);
  };
};

struct lrn_forward : primitive {
  struct primitive_desc : primitive_desc_base {
    primitive_desc() = default;
    primitive_desc(const engine&, prop_kind, algorithm, const memory::desc& x,
                   const memory::desc& y, int64_t window, float alpha, float beta, float k,
                   const primitive_attr&, bool allow_empty);
  };
};

struct eltwise_forward : primitive {
  struct primitive_desc : primitive_desc_base {
    primitive_desc(const engine&, prop_kind, algorithm, const memory::desc& x,
                   const memory::desc& y, float alpha, float beta, const primitive_attr&);
  };
};

struct binary : primitive {
  struct primitive_desc : primitive_desc_base {
    primitive_desc(const engine&, algorithm, const memory::desc& a, const memory::desc& b,
                   const memory::desc& y, const primitive_attr&);
  };
};

struct sum : primitive {
  struct primitive_desc : primitive_desc_base {
    primitive_desc(const engine&, const memory::desc& y, const std::vector<float>& scales,
                   const std::vector<memory::desc>& of, const primitive_attr&);
  };
};

}  // namespace dnnl

dnnl_status_t dnnl_primitive_desc_clone(dnnl_primitive_desc_t* copy,
                                        const_dnnl_primitive_desc_t desc);
dnnl_status_t dnnl_memory_set_data_handle(dnnl_memory_t memory, void* data);
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                     int count, const dnnl_exec_arg_t* arguments);
