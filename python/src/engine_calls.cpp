#include "engine_calls.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/per_process.h"
#include "base/printable.h"
#include "host_call.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// The engines to which calls were submitted. Used under the interpreter's lock.
std::vector<std::weak_ptr<EngineCalls>>& users_of_threads() {
  static auto* all = new std::vector<std::weak_ptr<EngineCalls>>;
  return *all;
}

/// The number of queue threads that are within Python. Used under the interpreter's lock.
int& num_within() {
  static auto* count = new PerProcess<int>([] { return std::make_unique<int>(0); });
  return count->get();
}

/// A call in the queue, shared by its future and the thread that runs it. Its members are dropped
/// under the interpreter's lock, as soon as they are not needed.
class SubmittedCall final : public QueuedRun {
 public:
  SubmittedCall(std::shared_ptr<EngineCalls> calls, std::unique_ptr<PreparedCall> call)
      : calls_(std::move(calls)), call_(std::move(call)) {}

  void set_future(nb::object future) { future_ = std::move(future); }

  void run() noexcept override {
    const nb::gil_scoped_acquire gil;
    ++num_within();
    {
      const Contents contents = take();
      tell(contents, [&] {
        const nb::object& future = contents.future;
        if (!nb::cast<bool>(future.attr("set_running_or_notify_cancel")())) return;
        running_ = &contents;
        nb::object result;
        try {
          // Calls execute() through the interpreter, which turns exceptions of C++ into Python's.
          result = future.attr("_call").attr("_execute")();
        } catch (nb::python_error& error) {
          running_ = nullptr;
          nb::object value = nb::borrow(error.value());
          const nb::object traceback = nb::steal(PyException_GetTraceback(value.ptr()));
          if (!traceback.is_valid() && error.traceback().is_valid())
            PyException_SetTraceback(value.ptr(), error.traceback().ptr());
          future.attr("set_exception")(value);
          return;
        }
        running_ = nullptr;
        future.attr("set_result")(result);
      });
    }
    --num_within();
  }

  void drop() noexcept override {
    const nb::gil_scoped_acquire gil;
    const Contents contents = take();
    tell(contents, [&] {
      contents.future.attr("cancel")();
      contents.future.attr("set_running_or_notify_cancel")();
    });
  }

  /// Runs the call within run() and returns its result. Errors are reported to the engine's error
  /// recorder.
  nb::object execute() {
    require(running_ != nullptr, "this call is not running");
    try {
      return running_->call->run();
    } catch (...) {
      record_exception(running_->calls->engine()->errors());
      throw;
    }
  }

  /// Takes the call out of the queue if it has not begun. Returns whether it did.
  bool withdraw() {
    const std::shared_ptr<EngineCalls> calls = calls_;
    if (calls == nullptr || !calls->queue().withdraw(*this)) return false;
    take();
    return true;
  }

 private:
  /// Members are destroyed in reverse order, and the call uses the engine, so `calls` stands first.
  struct Contents {
    std::shared_ptr<EngineCalls> calls;
    std::unique_ptr<PreparedCall> call;
    nb::object future;
  };
  Contents take() { return {std::move(calls_), std::move(call_), std::move(future_)}; }

  template <class Body>
  static void tell(const Contents& contents, Body&& body) noexcept {
    try {
      body();
    } catch (nb::python_error& error) {
      // Other code has already set the future's result.
      error.discard_as_unraisable(contents.future);
    } catch (const std::exception& error) {
      contents.calls->engine()->errors().report(ErrorCode::kINTERNAL_ERROR, error.what());
    }
  }

  std::shared_ptr<EngineCalls> calls_;
  std::unique_ptr<PreparedCall> call_;
  nb::object future_;
  const Contents* running_ = nullptr;
};

/// Whether the interpreter is ending. Used under its lock.
bool is_ending = false;

/// Stops all queues before the interpreter ends. A thread that asks for its lock later would never
/// get it.
void stop_all() {
  is_ending = true;
  const auto users = users_of_threads();
  for (const auto& user : users)
    if (const std::shared_ptr<EngineCalls> calls = user.lock(); calls != nullptr) calls->stop();
  // A thread whose call was the last to use an engine may still be dropping it.
  while (num_within() > 0) {
    const nb::gil_scoped_release release;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

EngineCalls::EngineCalls(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)),
      arrays_(*engine_),
      contexts_(engine_),
      shapes_(*engine_),
      queue_(engine_->name(), "allow more with engine.configure_submit(queue=...)") {
  if (!engine_->device().is_host()) device_calls_ = std::make_unique<DeviceCalls>(engine_);
  const auto is_linear = [](const PlanPort& port) {
    return port.type.format == TensorFormat::kLINEAR;
  };
  const Plan& plan = engine_->plan();
  has_array_formats_ = std::all_of(plan.inputs.begin(), plan.inputs.end(), is_linear) &&
                       std::all_of(plan.outputs.begin(), plan.outputs.end(), is_linear);
}

nb::object EngineCalls::call(const nb::args& args, const nb::kwargs& kwargs) {
  if (!has_array_formats_) check_array_formats(*engine_);
  if (device_calls_ != nullptr) return device_calls_->call(args, kwargs, updates_arguments_);
  return HostCall(*engine_, arrays_, contexts_, updates_arguments_, args, kwargs).run();
}

nb::object EngineCalls::call_into(const nb::dict& arguments, const nb::dict& outputs) {
  require(device_calls_ != nullptr,
          "the engine runs on the CPU: its outputs are not in GPU memory");
  return device_calls_->call_into(arguments, outputs);
}

nb::object EngineCalls::submit(const nb::args& args, const nb::kwargs& kwargs) {
  if (!has_array_formats_) check_array_formats(*engine_);
  engine_->require_weights();
  std::unique_ptr<PreparedCall> prepared;
  if (device_calls_ != nullptr) {
    prepared = device_calls_->prepare(args, kwargs, shapes_);
  } else {
    auto call = std::make_unique<HostCall>(*engine_, arrays_, contexts_, false, args, kwargs);
    call->check(shapes_);
    prepared = std::move(call);
  }
  if (!make_future_.is_valid()) start();
  const auto call = std::make_shared<SubmittedCall>(shared_from_this(), std::move(prepared));
  nb::object future = make_future_.get()(nb::cast(call));
  call->set_future(future);
  try {
    queue_.submit(call);
  } catch (...) {
    call->set_future({});
    throw;
  }
  return future;
}

/// Prepares the queue before the first call is submitted.
void EngineCalls::start() {
  require(!is_ending, queue_.owner(), " takes no calls with submit: the interpreter is ending");
  auto& users = users_of_threads();
  std::erase_if(users, [](const auto& user) { return user.expired(); });
  users.push_back(weak_from_this());
  make_future_ = Reference(nb::module_::import_("opwright._submit").attr("SubmittedCall"));
}

void EngineCalls::stop() {
  const nb::gil_scoped_release release;
  queue_.stop();
}

void bind_engine_calls(nb::module_& m) {
  nb::exception<QueueFullError> full(m, "QueueFullError", m.attr("Error"));
  full.doc() =
      "What `Engine.submit` raises where as many calls wait as its queue holds: `waiting` is how "
      "many do, `limit` how many may. `Engine.configure_submit` raises the limit.";
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const QueueFullError& problem) {
          nb::object error = nb::handle(static_cast<PyObject*>(type))(
              nb::str(printable(problem.what(), LineEnds::kKeep).c_str()));
          error.attr("waiting") = problem.waiting();
          error.attr("limit") = problem.limit();
          PyErr_SetObject(static_cast<PyObject*>(type), error.ptr());
        }
      },
      full.ptr());
  nb::class_<SubmittedCall>(m, "_SubmittedCall", "A call in an engine's queue.")
      .def("_execute", &SubmittedCall::execute, "What the call returns.")
      .def("_withdraw", &SubmittedCall::withdraw,
           "Takes the call out of the queue; False if it has begun.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&stop_all));
}

}  // namespace opwright::python
