// What becomes of threads that are within an engine, or within a callback, while the interpreter
// ends: daemon threads, and those of C++ programs.
//
// Up to Python 3.13 a thread that asks for the interpreter's lock then is ended by pthread_exit.
// That unwinds its stack as an exception does which nobody may catch for good: through destructors,
// which would touch Python's objects without the lock, and through functions that are noexcept,
// where it ends the process. From Python 3.14 on such a thread waits for ever, and so it does here.
//
// Any function of Python's that runs Python's code may ask for the lock, in ours and in nanobind's
// hands. So the linker puts those below in the place of the interpreter's own (--wrap,
// python/CMakeLists.txt), and the unwinding goes no further than to the one that was called.

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bindings.h"

namespace {

/// Until the process has ended. Nothing of the thread is destroyed.
[[noreturn, gnu::cold]] void wait_for_end() {
  for (;;) pause();
}

/// The one that ends the interpreter, once it does.
std::atomic<std::thread::id> ending_thread;

/// Once the interpreter has begun to end it may be gone, with the state of this thread.
void check_interpreter() {
  if (!Py_IsInitialized() && ending_thread.load() != std::this_thread::get_id()) wait_for_end();
}

/// Inlined, since these functions are called often.
template <class Function, class... Arguments>
[[gnu::always_inline]] inline auto call(Function* function, Arguments... arguments) {
  try {
    return function(arguments...);
  } catch (abi::__forced_unwind&) {
    wait_for_end();
  }
}

}  // namespace

// The linker calls Python's function __real_NAME, and takes __wrap_NAME for it.
#define OPWRIGHT_WRAPPED(Result, NAME, parameters, before, ...) \
  Result real_##NAME parameters asm("__real_" #NAME);           \
  Result wrapped_##NAME parameters asm("__wrap_" #NAME);        \
  Result wrapped_##NAME parameters {                            \
    before;                                                     \
    return call(&real_##NAME __VA_OPT__(, ) __VA_ARGS__);       \
  }

extern "C" {

// Ask for the lock.
OPWRIGHT_WRAPPED(void, PyEval_RestoreThread, (PyThreadState * state), check_interpreter(), state)
OPWRIGHT_WRAPPED(PyGILState_STATE, PyGILState_Ensure, (), check_interpreter())
OPWRIGHT_WRAPPED(void, PyGILState_Release, (PyGILState_STATE state), {}, state)

// Run Python's code.
#if PY_VERSION_HEX < 0x030B0000
#undef PyObject_Vectorcall
PyObject* opwright_vectorcall(PyObject* callee, PyObject* const* arguments, size_t count,
                              PyObject* names) {
  return call(&PyObject_Vectorcall, callee, arguments, count, names);
}
#else
OPWRIGHT_WRAPPED(PyObject*, PyObject_Vectorcall,
                 (PyObject * callee, PyObject* const* arguments, size_t count, PyObject* names), {},
                 callee, arguments, count, names)
#endif
OPWRIGHT_WRAPPED(PyObject*, PyObject_VectorcallMethod,
                 (PyObject * name, PyObject* const* arguments, size_t count, PyObject* names), {},
                 name, arguments, count, names)
OPWRIGHT_WRAPPED(PyObject*, PyObject_Call,
                 (PyObject * callee, PyObject* arguments, PyObject* named), {}, callee, arguments,
                 named)
OPWRIGHT_WRAPPED(PyObject*, PyObject_CallNoArgs, (PyObject * callee), {}, callee)
OPWRIGHT_WRAPPED(PyObject*, PyEval_EvalCode, (PyObject * code, PyObject* globals, PyObject* locals),
                 {}, code, globals, locals)
OPWRIGHT_WRAPPED(PyObject*, PyImport_ImportModule, (const char* name), {}, name)
OPWRIGHT_WRAPPED(int, PyErr_CheckSignals, (), {})
OPWRIGHT_WRAPPED(void, PyErr_WriteUnraisable, (PyObject * where), {}, where)
OPWRIGHT_WRAPPED(void, _Py_Dealloc, (PyObject * object), {}, object)

// Do so for objects of some classes.
OPWRIGHT_WRAPPED(PyObject*, PyObject_GetAttr, (PyObject * object, PyObject* name), {}, object, name)
OPWRIGHT_WRAPPED(PyObject*, PyObject_GetAttrString, (PyObject * object, const char* name), {},
                 object, name)
OPWRIGHT_WRAPPED(int, PyObject_SetAttr, (PyObject * object, PyObject* name, PyObject* value), {},
                 object, name, value)
OPWRIGHT_WRAPPED(int, PyObject_SetAttrString,
                 (PyObject * object, const char* name, PyObject* value), {}, object, name, value)
OPWRIGHT_WRAPPED(int, PyObject_HasAttr, (PyObject * object, PyObject* name), {}, object, name)
OPWRIGHT_WRAPPED(PyObject*, PyObject_GetItem, (PyObject * object, PyObject* key), {}, object, key)
OPWRIGHT_WRAPPED(int, PyObject_GetBuffer, (PyObject * object, Py_buffer* view, int flags), {},
                 object, view, flags)
OPWRIGHT_WRAPPED(void, PyBuffer_Release, (Py_buffer * view), {}, view)
OPWRIGHT_WRAPPED(int, PyObject_IsInstance, (PyObject * object, PyObject* type), {}, object, type)
OPWRIGHT_WRAPPED(int, PyObject_IsTrue, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(PyObject*, PyObject_GetIter, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(PyObject*, PyIter_Next, (PyObject * iterator), {}, iterator)
OPWRIGHT_WRAPPED(Py_ssize_t, PyObject_Size, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(Py_ssize_t, PySequence_Size, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(PyObject*, PySequence_GetItem, (PyObject * object, Py_ssize_t index), {}, object,
                 index)
OPWRIGHT_WRAPPED(PyObject*, PySequence_List, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(PyObject*, PySequence_Tuple, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(PyObject*, PyNumber_Index, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(PyObject*, PyNumber_Long, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(PyObject*, PyObject_Repr, (PyObject * object), {}, object)
OPWRIGHT_WRAPPED(PyObject*, PyObject_Str, (PyObject * object), {}, object)
}

namespace opwright::python {

void bind_interpreter_end(nb::module_&) {
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function([] { ending_thread = std::this_thread::get_id(); }));
}

}  // namespace opwright::python
