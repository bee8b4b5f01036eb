#pragma once

// Before Python 3.11 PyObject_Vectorcall is inline, so that the linker cannot put ours in its place
// (interpreter_end.cpp). There the compiler does, which includes this file before all others.

#include <Python.h>

extern "C" PyObject* opwright_vectorcall(PyObject* callee, PyObject* const* arguments, size_t count,
                                         PyObject* names);
#define PyObject_Vectorcall opwright_vectorcall
