/* Python module of the compiled library: calls of entry points with converted arguments.

   Compiled code takes its arguments as an array of 8-byte words, and writes its result as such words. The header with
   the table of entries is written by `streamsvm.core.build`. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { MOST_WORDS = 32, MOST_ARRAYS = 8, MOST_DIMS = 2 };

/* Kinds of arguments: i int64, d float64, b boolean, s state, p bytes, and for an array "a", the number of dimensions
   and the format of its elements. Results: n none, i int64, d float64, b boolean, l list of float64. An entry without
   kinds is called by its address alone. */
typedef struct {
    const char *name, *kinds;
    int n_arguments;
    char result;
    int releases_gil;
    void (*run)(void);
} Entry;

#define HIDDEN __attribute__((visibility("hidden")))
#include "entries.h"

static PyObject *address_name;
static _Thread_local int32_t failure;

/* Compiled code calls this where the Python function would raise an exception. */
HIDDEN void streamsvm_failed(int32_t status) { failure = status; }

static char plain_format(const Py_buffer *view) {
    const char *format = view->format == NULL ? "B" : view->format;
    if (format[1] != '\0') return '\0';
    return format[0] == 'l' ? 'q' : format[0] == 'L' ? 'Q' : format[0];
}

static int put_array(PyObject *value, const char *kind, Py_buffer *view, int64_t *words) {
    int n_dims = kind[1] - '0';
    if (PyObject_GetBuffer(value, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return -1;
    if (view->ndim != n_dims || plain_format(view) != kind[2]) {
        PyErr_Format(PyExc_TypeError, "expected a contiguous array of %d dimensions and format '%c'", n_dims, kind[2]);
        PyBuffer_Release(view);
        return -1;
    }
    words[0] = (int64_t)(intptr_t)view->buf;
    for (int i = 0; i < n_dims; i++) words[1 + i] = view->shape[i];
    return 0;
}

static int put_address(PyObject *state, int64_t *word) {
    PyObject *address = PyObject_GetAttr(state, address_name);
    if (address == NULL) return -1;
    *word = PyLong_AsLongLong(address);
    Py_DECREF(address);
    return *word == -1 && PyErr_Occurred() ? -1 : 0;
}

static int put_bytes(PyObject *packed, int64_t *words) {
    char *start;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(packed, &start, &size) < 0) return -1;
    words[0] = (int64_t)(intptr_t)start;
    words[1] = size;
    return 0;
}

/* Convert arguments to words; count the buffers of arrays, which the caller releases. */
static int put_arguments(const Entry *entry, PyObject *const *values, int64_t *words, Py_buffer *views, int *n_views) {
    double number;
    int error = 0;
    for (const char *kind = entry->kinds; *kind != '\0' && !error; kind++, values++) {
        switch (*kind) {
        case 'i':
            *words = PyLong_AsLongLong(*values);
            error = *words++ == -1 && PyErr_Occurred();
            break;
        case 'd':
            number = PyFloat_AsDouble(*values);
            memcpy(words++, &number, sizeof number);
            error = number == -1.0 && PyErr_Occurred();
            break;
        case 'b':
            *words = PyObject_IsTrue(*values);
            error = *words++ < 0;
            break;
        case 's':
            error = put_address(*values, words++);
            break;
        case 'p':
            error = put_bytes(*values, words);
            words += 2;
            break;
        default:
            error = put_array(*values, kind, &views[*n_views], words);
            *n_views += !error;
            words += 1 + (kind[1] - '0');
            kind += 2;
        }
    }
    return error ? -1 : 0;
}

static PyObject *list_of(const int64_t *result) {
    const double *values = (const double *)(intptr_t)result[0];
    PyObject *made = PyList_New(result[1]);
    for (Py_ssize_t i = 0; made != NULL && i < result[1]; i++) {
        PyObject *value = PyFloat_FromDouble(values[i]);
        if (value == NULL || PyList_SetItem(made, i, value) < 0) Py_CLEAR(made);
    }
    return made;
}

static PyObject *result_of(const Entry *entry, const int64_t *result) {
    double number;
    switch (entry->result) {
    case 'i':
        return PyLong_FromLongLong(result[0]);
    case 'd':
        memcpy(&number, result, sizeof number);
        return PyFloat_FromDouble(number);
    case 'b':
        return PyBool_FromLong(result[0] != 0);
    case 'l':
        return list_of(result);
    default:
        Py_RETURN_NONE;
    }
}

static PyObject *call(PyObject *self, PyObject *const *values, Py_ssize_t n) {
    const Entry *entry = PyCapsule_GetPointer(self, NULL);
    int64_t words[MOST_WORDS], result[2];
    Py_buffer views[MOST_ARRAYS];
    int n_views = 0;
    PyObject *made = NULL;
    if (n != entry->n_arguments)
        return PyErr_Format(PyExc_TypeError, "%s takes %d arguments, got %zd", entry->name, entry->n_arguments, n);
    if (put_arguments(entry, values, words, views, &n_views) == 0) {
        void (*run)(int64_t, int64_t) = (void (*)(int64_t, int64_t))entry->run;
        failure = 0;
        if (entry->releases_gil) {
            PyThreadState *thread = PyEval_SaveThread();
            run((int64_t)(intptr_t)words, (int64_t)(intptr_t)result);
            PyEval_RestoreThread(thread);
        } else
            run((int64_t)(intptr_t)words, (int64_t)(intptr_t)result);
        if (failure != 0)
            PyErr_Format(PyExc_ArithmeticError, "%s failed with code %d", entry->name, (int)failure);
        else
            made = result_of(entry, result);
    }
    while (n_views > 0) PyBuffer_Release(&views[--n_views]);
    return made;
}

static PyMethodDef call_method = {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, NULL};

static PyObject *is_supported(PyObject *module, PyObject *unused) { return PyBool_FromLong(IS_SUPPORTED); }

static PyMethodDef methods[] = {{"is_supported", is_supported, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_library", NULL, -1, methods, NULL, NULL, NULL, NULL};

/* Return the pair of name and callable, or of name and (address, number of arguments). */
static PyObject *pair_of(const Entry *entry) {
    if (entry->kinds == NULL)
        return Py_BuildValue("(s(Li))", entry->name, (long long)(intptr_t)entry->run, entry->n_arguments);
    PyObject *capsule = PyCapsule_New((void *)entry, NULL, NULL);
    if (capsule == NULL) return NULL;
    PyObject *function = PyCFunction_NewEx(&call_method, capsule, NULL);
    Py_DECREF(capsule);
    return function == NULL ? NULL : Py_BuildValue("(sN)", entry->name, function);
}

PyMODINIT_FUNC PyInit__library(void) {
    PyObject *module = PyModule_Create(&definition), *pairs = PyList_New(N_ENTRIES);
    address_name = PyUnicode_InternFromString("address");
    if (module == NULL || pairs == NULL || address_name == NULL) return NULL;
    for (int i = 0; i < N_ENTRIES; i++) {
        PyObject *pair = pair_of(&ENTRIES[i]);
        if (pair == NULL || PyList_SetItem(pairs, i, pair) < 0) return NULL;
    }
    if (PyModule_AddObject(module, "entries", pairs) < 0 || PyModule_AddStringConstant(module, "key", KEY) < 0 ||
        PyModule_AddStringConstant(module, "sources", SOURCES) < 0 ||
        PyModule_AddStringConstant(module, "target", TARGET) < 0)
        return NULL;
    return module;
}
