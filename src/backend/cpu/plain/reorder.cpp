#include <algorithm>
#include <cstring>

#include "backend/cpu/plain/operation.h"
#include "base/parallel.h"

namespace dnnl {
namespace plain {
namespace {

constexpr int64_t kMoveGrain = 1 << 14;  ///< elements that are worth a thread

/// Moves elements of one type from one layout to another.
class ReorderOperation final : public Operation {
 public:
  ReorderOperation(const memory::desc& from, const memory::desc& to) {
    src = from, dst = to;
    // Rows run along the target's innermost axis.
    for (int axis = 0; axis < to.get_ndims(); ++axis)
      if (to.extent(axis) > 1 && (to.extent(inner_) <= 1 || step_of(axis) <= step_of(inner_)))
        inner_ = axis;
  }

  void run(const Arguments& arguments) const override {
    const void* const from = arguments.find(DNNL_ARG_FROM);
    void* const to = arguments.find(DNNL_ARG_TO);
    if (src == dst) {
      std::memcpy(to, from, src.get_size());
      return;
    }
    switch (memory::data_type_size(src.get_data_type())) {
      case 1:
        return move(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to));
      case 2:
        return move(static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to));
      default:
        return move(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to));
    }
  }

 private:
  int64_t step_of(int axis) const {
    return axis == 1 && dst.get_inner_nblks() > 0 ? 1
                                                  : dst.get_strides()[static_cast<size_t>(axis)];
  }

  template <class T>
  void move(const T* from, T* to) const {
    const int rank = dst.get_ndims();
    int64_t rows = 1;
    for (int axis = 0; axis < rank; ++axis) rows *= axis == inner_ ? 1 : dst.extent(axis);
    const int64_t width = dst.extent(inner_);
    if (width == 0) return;
    opwright::parallel_for(rows, kMoveGrain / width + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t rest = row, source = 0, target = 0;
        for (int axis = rank; axis-- > 0;) {
          if (axis == inner_) continue;
          const int64_t at = rest % dst.extent(axis);
          rest /= dst.extent(axis);
          source += src.offset(axis, at), target += dst.offset(axis, at);
        }
        for (int64_t i = 0; i < width; ++i)
          to[target + dst.offset(inner_, i)] = from[source + src.offset(inner_, i)];
      }
    });
  }

  int inner_ = 0;
};

std::shared_ptr<const Operation> make_reorder(const memory::desc& from, const memory::desc& to,
                                              bool allow_empty) {
  const bool possible = from.get_data_type() == to.get_data_type() && from.get_ndims() > 0 &&
                        from.get_dims() == to.get_dims() &&
                        to.get_format_kind() != memory::format_kind::any;
  if (!possible) return nothing(allow_empty);
  return std::make_shared<ReorderOperation>(from, to);
}

}  // namespace
}  // namespace plain

reorder::primitive_desc::primitive_desc(const engine&, const memory::desc& from, const engine&,
                                        const memory::desc& to, const primitive_attr&,
                                        bool allow_empty)
    : primitive_desc_base(plain::make_reorder(from, to, allow_empty)) {}

reorder::reorder(const memory& from, const memory& to)
    : primitive(primitive_desc(engine(engine::kind::cpu, 0), from.get()->desc,
                               engine(engine::kind::cpu, 0), to.get()->desc)
                    .get()) {}

void reorder::execute(const stream& on, const memory& from, const memory& to) const {
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}};
  error::wrap_c_api(dnnl_primitive_execute(get(), on.get(), 2, arguments),
                    "a tensor could not be reordered");
}

}  // namespace dnnl
