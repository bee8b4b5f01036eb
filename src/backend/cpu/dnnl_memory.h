#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/shape.h"
#include "network/operator.h"

namespace opwright {

/// oneDNN's engine for the host, one for the process.
const dnnl::engine& dnnl_engine();

/// kFLOAT, kHALF, kBF16, kINT8, kUINT8, kINT32; throws Error for others.
dnnl::memory::data_type dnnl_type(DataType type);
/// The way back.
DataType from_dnnl(dnnl::memory::data_type type);
/// Extents as oneDNN takes them. Throws Error for those that do not fit 31 bits: its kernels count
/// with 32.
dnnl::memory::dims dnnl_dims(const Shape& shape);
dnnl::memory::dims dnnl_dims(dnnl::memory::dims extents);
bool fits_dnnl(int64_t extent);

/// A window along one axis; `output` positions.
struct DnnlWindow {
  int64_t input, output, window, stride, dilation, pre, post;
};
/// Throws Error for windows, one for each axis, that are so large that oneDNN's arithmetic may
/// overflow, or that making code for them takes too long.
void require_dnnl_windows(std::span<const DnnlWindow> windows);

/// A tensor as it lies in memory in that format: LINEAR, HWC, and CHW4, CHW16, CHW32 up to three
/// spatial axes.
dnnl::memory::desc dnnl_desc(const Shape& shape, DataType type,
                             TensorFormat format = TensorFormat::kLINEAR);
/// A tensor of that shape whose layout the primitive chooses.
dnnl::memory::desc dnnl_any(const Shape& shape, DataType type);

/// Whether the layout is all strides or one that dnnl_desc() makes.
bool has_port_layout(const dnnl::memory::desc& desc);
/// The same layout with elements of another type, for layouts for which has_port_layout() holds.
dnnl::memory::desc with_type(const dnnl::memory::desc& desc, dnnl::memory::data_type type);

/// Everything that decides where an element lies: "type:extents:padded extents:strides:blocks".
/// Empty for layouts that only oneDNN knows.
std::string layout_text(const dnnl::memory::desc& desc);

/// Writes the elements of a tensor that lies as layout_text() described it into row-major order.
/// Throws Error unless the text describes a tensor of these extents and type that fits `size`.
void unpack_layout(std::string_view layout, const dnnl::memory::dims& extents, const void* packed,
                   size_t size, void* row_major);

/// Throws Error unless this is such a text and `size` bytes hold the tensor.
void require_packed_layout(std::string_view layout, size_t size);
/// The type of the elements by such a text.
dnnl::memory::data_type packed_type(std::string_view layout);

/// Whether an implementation of this name is a plain loop rather than a tuned kernel.
bool is_reference(std::string_view implementation);

/// The type that kernels compute in for tensors of a floating type: itself where the processor has
/// fast instructions for it, else FP32.
DataType compute_type(DataType type);

/// The types that a floating operator may be offered in when the network says `type`.
std::vector<DataType> offered_types(const CandidateQuery& query, DataType type);

}  // namespace opwright
