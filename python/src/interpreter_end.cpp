// Handles threads that are within an engine or a callback while the interpreter ends: daemon
// threads, and threads of C++ programs.
//
// Up to Python 3.13, pthread_exit ends a thread that then asks for the interpreter's lock. This
// unwinds the thread's stack like an exception that must not be swallowed. Destructors would touch
// Python objects without the lock, and a noexcept function would end the process. From Python 3.14
// on such a thread waits for ever. This file makes it wait for ever in all versions.
//
// Any function of Python that runs Python code may ask for the lock, whether we or nanobind call
// it. So the linker replaces the interpreter's functions by those below (--wrap,
// python/CMakeLists.txt), and the unwinding ends in the function that was called.

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bindings.h"

namespace {

/// Waits until the process has ended. Nothing of the thread is destroyed.
[[noreturn, gnu::cold]] void wait_for_end() {
  for (;;) pause();
}

/// The thread that ends the interpreter, once it does.
std::atomic<std::thread::id> ending_thread;

/// Waits for ever once the interpreter is ending, unless this thread ends it. The interpreter and
/// the state of this thread may be gone by then.
void check_interpreter() {
  if (!Py_IsInitialized() && ending_thread.load() != std::this_thread::get_id()) wait_for_end();
}

/// Calls a function of Python and waits for ever if the thread is being unwound. Inlined, since
/// these functions are called often.
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

// Functions that ask for the lock.
OPWRIGHT_WRAPPED(void, PyEval_RestoreThread, (PyThreadState * state), check_interpreter(), state)
OPWRIGHT_WRAPPED(PyGILState_STATE, PyGILState_Ensure, (), check_interpreter())
OPWRIGHT_WRAPPED(void, PyGILState_Release, (PyGILState_STATE state), {}, state)

// Functions that run Python code.
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

// Functions that run Python code for objects of some classes.
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
