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

/// oneDNN's name of kFLOAT, kHALF, kBF16, kINT8, kUINT8 or kINT32; throws Error for other types.
dnnl::memory::data_type dnnl_type(DataType type);
/// The inverse of dnnl_type().
DataType from_dnnl(dnnl::memory::data_type type);
/// Extents in oneDNN's type. Throws Error for extents that do not fit 31 bits: oneDNN's kernels
/// count with 32.
dnnl::memory::dims dnnl_dims(const Shape& shape);
dnnl::memory::dims dnnl_dims(dnnl::memory::dims extents);
/// Descriptor of a tensor in row-major order.
dnnl::memory::desc dense_desc(const dnnl::memory::dims& extents, dnnl::memory::data_type type);
bool fits_dnnl(int64_t extent);

/// A window along one axis, at `output` positions.
struct DnnlWindow {
  int64_t input, output, window, stride, dilation, pre, post;
};
/// Throws Error for windows that are too large, given one for each axis: oneDNN's arithmetic might
/// overflow, or its code generation would take too long.
void require_dnnl_windows(std::span<const DnnlWindow> windows);

/// Descriptor of a tensor in that format: LINEAR, HWC, and CHW4, CHW16, CHW32 with up to three
/// spatial axes.
dnnl::memory::desc dnnl_desc(const Shape& shape, DataType type,
                             TensorFormat format = TensorFormat::kLINEAR);
/// Descriptor of a tensor whose layout the primitive chooses.
dnnl::memory::desc dnnl_any(const Shape& shape, DataType type);

/// Whether the layout has only strides, or is one that dnnl_desc() makes.
bool has_port_layout(const dnnl::memory::desc& desc);
/// The same layout with elements of another type. Needs has_port_layout().
dnnl::memory::desc with_type(const dnnl::memory::desc& desc, dnnl::memory::data_type type);

/// Text with everything that decides where an element lies: "type:extents:padded
/// extents:strides:blocks". Empty for layouts that only oneDNN knows.
std::string layout_text(const dnnl::memory::desc& desc);

/// Unpacks a tensor into row-major order. layout_text() has described its layout. Throws Error
/// unless the text describes a tensor of these extents and type that fits `size`.
void unpack_layout(std::string_view layout, const dnnl::memory::dims& extents, const void* packed,
                   size_t size, void* row_major);

/// Throws Error unless the text is one of layout_text() and `size` bytes hold its tensor.
void require_packed_layout(std::string_view layout, size_t size);
/// The elements' type according to such a text.
dnnl::memory::data_type packed_type(std::string_view layout);

/// Whether an implementation of this name is a plain loop rather than a tuned kernel.
bool is_reference(std::string_view implementation);

/// The type in which kernels compute tensors of a floating type. It is the type itself where the
/// processor has fast instructions for it, else FP32.
DataType compute_type(DataType type);

/// The types in which a floating-point operator may be offered when the network's type is `type`.
std::vector<DataType> offered_types(const CandidateQuery& query, DataType type);

}  // namespace opwright
