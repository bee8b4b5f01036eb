#include <algorithm>
#include <cstring>

#include "backend/cpu/plain/operation.h"

namespace dnnl {

size_t memory::data_type_size(data_type type) {
  switch (type) {
    case data_type::undef:
      return 0;
    case data_type::f16:
    case data_type::bf16:
      return 2;
    case data_type::f32:
    case data_type::s32:
      return 4;
    default:
      return 1;
  }
}

memory::desc::desc(dims extents, data_type type, dims strides)
    : extents_(std::move(extents)), strides_(std::move(strides)), type_(type) {}

memory::desc::desc(dims extents, data_type type, format_tag tag)
    : extents_(std::move(extents)), type_(type), any_(tag == format_tag::any) {
  using Tag = format_tag;
  if (tag == Tag::aBc4b || tag == Tag::aBcd4b || tag == Tag::aBcde4b) block_ = 4;
  if (tag == Tag::aBc16b || tag == Tag::aBcd16b || tag == Tag::aBcde16b) block_ = 16;
  if (tag == Tag::aBc32b || tag == Tag::aBcd32b || tag == Tag::aBcde32b) block_ = 32;
  strides_.resize(extents_.size());
  int64_t stride = block_ > 0 ? block_ : 1;
  for (size_t axis = extents_.size(); axis-- > 0;) {
    strides_[axis] = stride;
    stride *= block_ > 0 && axis == 1 ? (extents_[1] + block_ - 1) / block_ : extents_[axis];
  }
}

memory::dims memory::desc::get_padded_dims() const {
  dims padded = extents_;
  if (block_ > 0) padded[1] = (padded[1] + block_ - 1) / block_ * block_;
  return padded;
}

size_t memory::desc::get_size() const {
  if (extents_.empty() || any_) return 0;
  const dims padded = get_padded_dims();
  int64_t elements = std::max<int64_t>(block_, 1);
  for (size_t axis = 0; axis < padded.size(); ++axis) {
    if (padded[axis] == 0) return 0;
    const int64_t steps = block_ > 0 && axis == 1 ? padded[axis] / block_ : padded[axis];
    elements = std::max(elements, steps * strides_[axis]);
  }
  return static_cast<size_t>(elements) * data_type_size(type_);
}

bool memory::desc::operator==(const desc& other) const {
  if (type_ != other.type_ || block_ != other.block_ || any_ != other.any_ ||
      extents_ != other.extents_)
    return false;
  // The stride of an axis with one element does not matter.
  for (size_t axis = 0; axis < extents_.size(); ++axis)
    if (extents_[axis] > 1 && strides_[axis] != other.strides_[axis]) return false;
  return true;
}

memory::memory(const desc& of, const engine&, void* data)
    : own_(std::make_shared<dnnl_memory>(dnnl_memory{of, data})) {}

primitive_desc_base::primitive_desc_base(std::shared_ptr<const plain::Operation> operation) {
  if (operation)
    own_ = std::make_shared<dnnl_primitive_desc>(dnnl_primitive_desc{std::move(operation)});
}

memory::desc primitive_desc_base::src_desc() const { return own_->operation->src; }
memory::desc primitive_desc_base::weights_desc() const { return own_->operation->weights; }
memory::desc primitive_desc_base::bias_desc() const { return own_->operation->bias; }
memory::desc primitive_desc_base::dst_desc() const { return own_->operation->dst; }

memory::desc primitive_desc_base::scratchpad_desc() const {
  const int64_t size = own_->operation->scratch_size();
  if (size == 0) return {};
  return {{size}, memory::data_type::f32, memory::format_tag::a};
}

namespace {

/// Writes zeros into the padding of the last block of the second axis.
void clear_rest_of_blocks(const memory::desc& desc, void* data) {
  const int64_t rest = desc.get_inner_nblks() > 0 ? desc.extent(1) % desc.get_inner_blks()[0] : 0;
  if (rest == 0) return;
  const size_t element = memory::data_type_size(desc.get_data_type());
  const size_t bytes = static_cast<size_t>(desc.get_inner_blks()[0] - rest) * element;
  int64_t spatial = 1;
  for (int axis = 2; axis < desc.get_ndims(); ++axis) spatial *= desc.extent(axis);
  for (int64_t image = 0; image < desc.extent(0); ++image)
    for (int64_t at = 0; at < spatial; ++at) {
      int64_t offset = desc.offset(0, image) + desc.offset(1, desc.extent(1) - 1) + 1;
      int64_t position = at;
      for (int axis = desc.get_ndims(); axis-- > 2;) {
        offset += desc.offset(axis, position % desc.extent(axis));
        position /= desc.extent(axis);
      }
      std::memset(static_cast<std::byte*>(data) + static_cast<size_t>(offset) * element, 0, bytes);
    }
}

}  // namespace
}  // namespace dnnl

dnnl_status_t dnnl_primitive_desc_clone(dnnl_primitive_desc_t* copy,
                                        const_dnnl_primitive_desc_t desc) {
  *copy = new dnnl_primitive_desc(*desc);
  return dnnl_success;
}

dnnl_status_t dnnl_memory_set_data_handle(dnnl_memory_t memory, void* data) {
  memory->data = data;
  return dnnl_success;
}

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t, int count,
                                     const dnnl_exec_arg_t* arguments) {
  const dnnl::plain::Arguments all({arguments, static_cast<size_t>(count)});
  primitive->run(all);
  dnnl::clear_rest_of_blocks(primitive->dst, all.find(DNNL_ARG_DST));
  return dnnl_success;
}
