#pragma once

// Before Python 3.11 PyObject_Vectorcall is inline, so the linker cannot replace it by ours
// (interpreter_end.cpp). There the compiler replaces it: it includes this file before all others.

#include <Python.h>

extern "C" PyObject* opwright_vectorcall(PyObject* callee, PyObject* const* arguments, size_t count,
                                         PyObject* names);
#define PyObject_Vectorcall opwright_vectorcall
