#include "host_call.h"

#include <cstring>

#include "call_memory.h"
#include "runtime/call_shapes.h"
#include "runtime/context_pool.h"

namespace opwright::python {

void check_arguments(CallShapes& shapes, const std::vector<Argument>& arguments) {
  std::vector<Shape> given;
  std::vector<const void*> addresses;
  for (const Argument& argument : arguments) {
    given.push_back(argument.shape);
    addresses.push_back(argument.data);
  }
  shapes.check(given, addresses);
}

HostCall::HostCall(const Engine& engine, const HostArrays& arrays, ContextPool& contexts,
                   bool updates_arguments, const nb::args& args, const nb::kwargs& kwargs)
    : engine_(engine),
      arrays_(arrays),
      contexts_(contexts),
      updates_arguments_(updates_arguments),
      arguments_(engine.plan().inputs.size()),
      given_(engine.plan().inputs.size()) {
  sort_arguments(engine_, args, kwargs, [&](size_t input, nb::handle value) {
    arguments_[input] = arrays_.convert(input, value);
    given_[input] = nb::borrow(value);
    if (kind_ == ArrayKind::kNumpy) kind_ = kind_of(value);
  });
}

void HostCall::check(CallShapes& shapes) const {
  for (const PlanPort& output : engine_.plan().outputs) check_array_type(output);
  check_arguments(shapes, arguments_);
}

nb::object HostCall::run() {
  ContextPool::Lease lease(contexts_);
  Context& context = lease.context();
  for (size_t i = 0; i < arguments_.size(); ++i) {
    context.set_input_address(static_cast<int>(i), arguments_[i].data);
    if (!(context.input_shape(static_cast<int>(i)) == arguments_[i].shape))
      context.set_input_shape(static_cast<int>(i), arguments_[i].shape);
  }
  const std::vector<PlanPort>& ports = engine_.plan().outputs;
  std::vector<nb::object> outputs;
  const int count = static_cast<int>(ports.size());
  for (int i = 0; i < count; ++i) {
    const int input = ports[i].aliased_input;
    if (input >= 0 && updates_arguments_) {
      const Argument& given = arguments_[input];
      check_alias(engine_, i, context.max_output_shape(i), given);
      context.set_output_address(i, const_cast<void*>(given.data));
      outputs.push_back(given_[input]);
      continue;
    }
    auto [array, address] = arrays_.allocate(kind_, i, context.max_output_shape(i));
    if (input >= 0) {
      // An output that updates its input works on a copy, since a function does not change its
      // arguments.
      const Argument& given = arguments_[input];
      check_alias(engine_, i, context.max_output_shape(i), given);
      std::memcpy(address, given.data,
                  static_cast<size_t>(bytes_of(given.dtype, given.shape.numel())));
      context.set_input_address(input, address);
    }
    context.set_output_address(i, address);
    outputs.push_back(std::move(array));
  }
  {
    const CallMemory memory(arguments_, outputs);
    nb::gil_scoped_release release;
    context.enqueue();
  }
  for (int i = 0; i < count; ++i)
    outputs[i] =
        HostArrays::give(kind_, HostArrays::trim(std::move(outputs[i]), context.max_output_shape(i),
                                                 context.output_shape(i)));
  lease.give_back();
  if (count == 1) return outputs[0];
  nb::dict named;
  for (int i = 0; i < count; ++i) named[ports[i].name.c_str()] = outputs[i];
  return named;
}

}  // namespace opwright::python
